//! [`Letter`]: one record, or a run of unreadable ones, that a tree cannot apply.

use bytes::{BufMut, Bytes, BytesMut};

use crate::id::{Dot, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};

/// The first byte of a stored letter.
const VERSION: u8 = 1;
/// Everything before the stretches: version, fate and its position, origin, incarnation, HLC, time, position.
const HEAD_BYTES: usize = 2 + 8 * 6;
const STRETCH_BYTES: usize = 14;

/// Records of one partition that stand behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The partition.
    pub partition: PartitionId,
    /// The offset of the first of them.
    pub first: Offset,
    /// How many.
    pub count: u32,
}

impl Stretch {
    /// The offset after the last.
    pub fn end(&self) -> Offset {
        self.first.advanced(u64::from(self.count))
    }
}

/// What has become of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits for somebody to decide.
    Parked,
    /// It was applied when the log ended here; it is kept until snapshots hold it.
    Replayed(Lsn),
    /// It was given up when the log ended here; remembered until no opening of the tree meets its block.
    Dropped(Lsn),
}

/// One record that a tree cannot apply, or all that stand in a block behind one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Where it was committed.
    pub origin: OriginTag,
    /// The incarnation of that cluster's log.
    pub incarnation: Incarnation,
    /// Its identity: one offset, or all that the bytes stand for. At least one.
    pub stretches: Vec<Stretch>,
    /// Its HLC, or one that none of its records lies below.
    pub hlc: Hlc,
    /// The bytes, as they stand in the block.
    pub bytes: Bytes,
    /// Why it cannot be applied.
    pub reason: String,
    /// When it was parked, in milliseconds since 1970.
    pub first_seen_ms: u64,
    /// Its block lies here in the log, or above.
    pub lsn: Lsn,
    /// What has become of it.
    pub fate: Fate,
}

impl Letter {
    /// The identity of its first record.
    pub fn dot(&self) -> Dot {
        let Stretch { partition, first, .. } = self.stretches[0];
        Dot { origin: self.origin, incarnation: self.incarnation, partition, offset: first }
    }

    /// How many records it stands for.
    pub fn records(&self) -> u64 {
        self.stretches.iter().map(|stretch| u64::from(stretch.count)).sum()
    }

    /// What it is stored under: rises with the offset within a partition.
    pub(super) fn name(&self) -> String {
        let Dot { origin, incarnation, partition, offset } = self.dot();
        let (origin, incarnation) = (origin.get(), incarnation.get());
        format!("{origin:016x}-{incarnation:016x}-{:04x}-{:016x}", partition.get(), offset.get())
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + 64 + self.reason.len() + self.bytes.len());
        let (fate, at) = match self.fate {
            Fate::Parked => (0, Lsn::ZERO),
            Fate::Replayed(at) => (1, at),
            Fate::Dropped(at) => (2, at),
        };
        bytes.put_slice(&[VERSION, fate]);
        for long in [
            at.get(),
            self.origin.get(),
            self.incarnation.get(),
            self.hlc.get(),
            self.first_seen_ms,
            self.lsn.get(),
        ] {
            bytes.put_u64_le(long);
        }
        bytes.put_u16_le(u16::try_from(self.stretches.len()).expect("no more than there are partitions"));
        for Stretch { partition, first, count } in &self.stretches {
            bytes.put_u16_le(partition.get());
            bytes.put_u64_le(first.get());
            bytes.put_u32_le(*count);
        }
        bytes.put_u32_le(u32::try_from(self.reason.len()).expect("a reason is a sentence"));
        bytes.put_slice(self.reason.as_bytes());
        bytes.put_slice(&self.bytes);
        bytes.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let long = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let at = Lsn::new(long(2)?);
        let fate = match (head[0], head[1]) {
            (VERSION, 0) => Fate::Parked,
            (VERSION, 1) => Fate::Replayed(at),
            (VERSION, 2) => Fate::Dropped(at),
            _ => return None,
        };
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let (stretches, rest) =
            rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * STRETCH_BYTES)?;
        let stretch = |bytes: &[u8]| {
            Some(Stretch {
                partition: PartitionId::new(u16::from_le_bytes(bytes[..2].try_into().ok()?)),
                first: Offset::new(u64::from_le_bytes(bytes[2..10].try_into().ok()?)),
                count: u32::from_le_bytes(bytes[10..].try_into().ok()?),
            })
        };
        let stretches: Vec<Stretch> =
            stretches.chunks_exact(STRETCH_BYTES).map(stretch).collect::<Option<_>>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (reason, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if stretches.is_empty() {
            return None;
        }
        Some(Self {
            origin: OriginTag::new(long(10)?),
            incarnation: Incarnation::new(long(18)?),
            stretches,
            hlc: Hlc::new(long(26)?),
            bytes: Bytes::copy_from_slice(rest),
            reason: String::from_utf8(reason.to_vec()).ok()?,
            first_seen_ms: long(34)?,
            lsn: Lsn::new(long(42)?),
            fate,
        })
    }
}

#[cfg(test)]
pub(super) fn sample(partition: u16, offset: u64, hlc: u64) -> Letter {
    Letter {
        origin: OriginTag::new(7),
        incarnation: Incarnation::new(9),
        stretches: vec![Stretch {
            partition: PartitionId::new(partition),
            first: Offset::new(offset),
            count: 1,
        }],
        hlc: Hlc::new(hlc),
        bytes: Bytes::from_static(b"the record"),
        reason: "too large".to_owned(),
        first_seen_ms: 5,
        lsn: Lsn::new(offset),
        fate: Fate::Parked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_survives_being_stored_with_its_fate_and_half_a_head_is_refused() {
        for fate in [Fate::Parked, Fate::Replayed(Lsn::new(3)), Fate::Dropped(Lsn::new(4))] {
            let mut letter = Letter { fate, ..sample(3, 17, 99) };
            letter.stretches.push(Stretch {
                partition: PartitionId::new(5),
                first: Offset::new(2),
                count: 8,
            });
            let bytes = letter.encode();
            assert_eq!(Letter::decode(&bytes), Some(letter.clone()));
            assert_eq!((letter.records(), letter.dot().offset), (9, Offset::new(17)));
            let behind_the_reason = bytes.len() - letter.bytes.len();
            for length in 0..behind_the_reason {
                assert_eq!(Letter::decode(&bytes[..length]), None, "{length}");
            }
        }
    }
}
