//! Positions between domain and wire: watermarks, vectors and marks.
//!
//! What a peer sends is checked while it is decoded: counts are bounded, partitions exist, nothing is said twice, and
//! no position is so high that counting on from it could overflow. Whoever decodes a frame calls this, on both sides.

use std::collections::BTreeMap;

use super::wire;
use crate::causal::{OriginMarks, VersionVector, Watermarks};
use crate::error::{LinkError, LinkErrorKind};
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::limits::MAX_KNOWN_CLUSTERS;

/// Offsets a peer may name end here: no log comes near, and adding any count to one below it is safe.
const OFFSET_END: u64 = 1 << 62;

pub(super) fn violation(what: impl Into<String>) -> LinkError {
    LinkError::new(LinkErrorKind::Protocol, what)
}

fn partition(raw: u32, partitions: u16) -> Result<PartitionId, LinkError> {
    match u16::try_from(raw) {
        Ok(partition) if partition < partitions => Ok(PartitionId::new(partition)),
        _ => Err(violation(format!("partition {raw} of a tree with {partitions} partitions"))),
    }
}

fn offset(raw: u64) -> Result<Offset, LinkError> {
    if raw < OFFSET_END { Ok(Offset::new(raw)) } else { Err(violation(format!("offset {raw} cannot be"))) }
}

fn bounded<T>(what: &str, entries: &[T], most: usize) -> Result<(), LinkError> {
    if entries.len() <= most {
        return Ok(());
    }
    Err(violation(format!("{} {what}, at most {most} can be", entries.len())))
}

/// The marks of one origin as they travel. Partitions of which nothing is covered are left out.
pub fn encode_origin(origin: OriginTag, marks: &OriginMarks) -> wire::OriginWatermarks {
    let partitions = marks.iter().filter(|(_, mark)| mark.next > Offset::ZERO).map(|(partition, mark)| {
        wire::PartitionWatermark {
            partition: u32::from(partition.get()),
            next: mark.next.get(),
            hlc: mark.hlc.get(),
        }
    });
    wire::OriginWatermarks {
        origin: origin.get(),
        incarnation: marks.incarnation().get(),
        partitions: partitions.collect(),
    }
}

/// The marks of every origin as they travel.
pub fn encode_watermarks(watermarks: &Watermarks) -> Vec<wire::OriginWatermarks> {
    watermarks.iter().map(|(origin, marks)| encode_origin(origin, marks)).collect()
}

/// The marks of one origin, for a tree of that many partitions.
///
/// # Errors
/// `Protocol` when a partition does not exist or is named twice, or an offset cannot be.
pub fn decode_origin(
    sent: &wire::OriginWatermarks,
    partitions: u16,
) -> Result<(OriginTag, OriginMarks), LinkError> {
    bounded("partitions of one origin", &sent.partitions, usize::from(partitions))?;
    let mut marks = OriginMarks::new(Incarnation::new(sent.incarnation), partitions);
    let mut last = None;
    for mark in &sent.partitions {
        let partition = partition(mark.partition, partitions)?;
        if last.replace(partition).is_some_and(|last| last >= partition) {
            return Err(violation("watermarks are not in the order of their partitions"));
        }
        marks.advance(partition, offset(mark.next)?, Hlc::new(mark.hlc));
    }
    Ok((OriginTag::new(sent.origin), marks))
}

/// The marks of every origin, for a tree of that many partitions.
///
/// # Errors
/// `Protocol` as [`decode_origin`], and when there are more origins than can be known, or one twice.
pub fn decode_watermarks(sent: &[wire::OriginWatermarks], partitions: u16) -> Result<Watermarks, LinkError> {
    bounded("origins with watermarks", sent, MAX_KNOWN_CLUSTERS)?;
    let mut watermarks = Watermarks::default();
    for one in sent {
        let (origin, marks) = decode_origin(one, partitions)?;
        if watermarks.origin(origin).is_some() {
            return Err(violation(format!("watermarks of origin {origin} twice")));
        }
        watermarks.insert(origin, marks);
    }
    Ok(watermarks)
}

/// A vector as it travels.
pub fn encode_vector(vector: &VersionVector) -> Vec<wire::OriginHlc> {
    vector.iter().map(|(origin, hlc)| wire::OriginHlc { origin: origin.get(), hlc: hlc.get() }).collect()
}

/// A vector.
///
/// # Errors
/// `Protocol` when there are more origins than can be known, or one twice.
pub fn decode_vector(sent: &[wire::OriginHlc]) -> Result<VersionVector, LinkError> {
    bounded("origins in a vector", sent, MAX_KNOWN_CLUSTERS)?;
    let entries: BTreeMap<_, _> =
        sent.iter().map(|entry| (OriginTag::new(entry.origin), Hlc::new(entry.hlc))).collect();
    if entries.len() != sent.len() {
        return Err(violation("a vector names an origin twice"));
    }
    Ok(entries.into_iter().collect())
}

/// Positions by partition as they travel.
pub fn encode_offsets(offsets: &[(PartitionId, Offset)]) -> Vec<wire::PartitionMark> {
    let mark = |(partition, offset): &(PartitionId, Offset)| wire::PartitionMark {
        partition: u32::from(partition.get()),
        offset: offset.get(),
    };
    offsets.iter().map(mark).collect()
}

/// Positions by partition, sorted by it, for a tree of that many partitions.
///
/// # Errors
/// `Protocol` when a partition does not exist or is named twice, or an offset cannot be.
pub fn decode_offsets(
    sent: &[wire::PartitionMark],
    partitions: u16,
) -> Result<Vec<(PartitionId, Offset)>, LinkError> {
    bounded("marks of partitions", sent, usize::from(partitions))?;
    let mut offsets = BTreeMap::new();
    for mark in sent {
        let partition = partition(mark.partition, partitions)?;
        if offsets.insert(partition, offset(mark.offset)?).is_some() {
            return Err(violation(format!("partition {partition} is marked twice")));
        }
    }
    Ok(offsets.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTITIONS: u16 = 8;

    fn origins() -> impl Strategy<Value = Watermarks> {
        let mark = (0..PARTITIONS, 0_u64..50, any::<u64>());
        let marks = proptest::collection::vec(mark, 0..12);
        proptest::collection::btree_map(any::<u64>(), (any::<u64>(), marks), 0..6).prop_map(|origins| {
            let mut watermarks = Watermarks::default();
            for (origin, (incarnation, marks)) in origins {
                let mut all = OriginMarks::new(Incarnation::new(incarnation), PARTITIONS);
                for (partition, next, hlc) in marks.into_iter().filter(|(_, next, _)| *next > 0) {
                    all.advance(PartitionId::new(partition), Offset::new(next), Hlc::new(hlc));
                }
                watermarks.insert(OriginTag::new(origin), all);
            }
            watermarks
        })
    }

    proptest! {
        #[test]
        fn watermarks_survive_the_wire(watermarks in origins()) {
            let sent = encode_watermarks(&watermarks);
            prop_assert_eq!(decode_watermarks(&sent, PARTITIONS).unwrap(), watermarks);
        }

        #[test]
        fn vectors_survive_the_wire(entries in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..9)) {
            let entries = entries.into_iter().map(|(origin, hlc)| (OriginTag::new(origin), Hlc::new(hlc)));
            let vector: VersionVector = entries.collect();
            prop_assert_eq!(decode_vector(&encode_vector(&vector)).unwrap(), vector);
        }

        #[test]
        fn offsets_survive_the_wire_and_come_back_sorted(
            offsets in proptest::collection::btree_map(0..PARTITIONS, 0..OFFSET_END, 0..9),
        ) {
            let offsets: Vec<_> =
                offsets.into_iter().map(|(p, o)| (PartitionId::new(p), Offset::new(o))).collect();
            let mut sent = encode_offsets(&offsets);
            sent.reverse();
            prop_assert_eq!(decode_offsets(&sent, PARTITIONS).unwrap(), offsets);
        }
    }

    #[test]
    fn f52_what_a_peer_cannot_mean_is_refused() {
        let mark = |partition, offset| wire::PartitionMark { partition, offset };
        assert!(decode_offsets(&[mark(7, 1)], PARTITIONS).is_ok());
        for bad in [&[mark(8, 1)][..], &[mark(65_536, 1)], &[mark(1, 1), mark(1, 2)], &[mark(0, u64::MAX)]] {
            let error = decode_offsets(bad, PARTITIONS).unwrap_err();
            assert_eq!(error.kind(), LinkErrorKind::Protocol, "{bad:?}");
        }
        let origin = |origin, partitions: &[u32]| wire::OriginWatermarks {
            origin,
            incarnation: 1,
            partitions: partitions
                .iter()
                .map(|partition| wire::PartitionWatermark { partition: *partition, next: 1, hlc: 1 })
                .collect(),
        };
        for bad in [&[origin(1, &[8])][..], &[origin(1, &[2, 2])], &[origin(1, &[]), origin(1, &[])]] {
            assert!(decode_watermarks(bad, PARTITIONS).is_err(), "{bad:?}");
        }
        let many: Vec<_> = (0..=MAX_KNOWN_CLUSTERS as u64).map(|tag| origin(tag, &[])).collect();
        assert!(decode_watermarks(&many, PARTITIONS).is_err());
        assert!(decode_watermarks(&many[1..], PARTITIONS).is_ok());
        let entry = |origin| wire::OriginHlc { origin, hlc: 1 };
        assert!(decode_vector(&[entry(1), entry(1)]).is_err());
    }
}
