//! [`TrimPoint`]: from where on a log is retained. Durable before anything below it is removed.
//!
//! It is what tells a log that was trimmed from one with a hole: what is missing below it was let go of, what is missing
//! above it is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::index::Extents;
use super::segment::{SegmentHeader, SegmentNumber};
use super::small_file::{seal, take, unseal};
use crate::disk::{Disk, read_whole, write_atomically};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{GroupSequence, Incarnation, Lsn, Offset, OriginTag, PartitionId};

const MAGIC: &[u8; 4] = b"TWT1";
const NAME: &str = "TRIM";

/// Where a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrimPoint {
    pub(super) incarnation: Incarnation,
    /// The first segment that is retained, with what its header says.
    pub(super) segment: SegmentNumber,
    pub(super) first_lsn: Lsn,
    pub(super) first_group: GroupSequence,
    /// Where the offsets end that were trimmed, for each origin and partition.
    pub(super) ends: BTreeMap<(OriginTag, PartitionId), Offset>,
}

impl TrimPoint {
    /// A log that begins with the segment of `first`, after one that began at `before`, once `trimmed` is gone.
    pub(super) fn advanced<'a>(
        before: Option<&Self>,
        first: &SegmentHeader,
        trimmed: impl Iterator<Item = &'a Extents>,
    ) -> Self {
        let mut ends = before.map(|before| before.ends.clone()).unwrap_or_default();
        for (place, extent) in trimmed.flatten() {
            let end = ends.entry(*place).or_default();
            *end = extent.end.max(*end);
        }
        Self {
            incarnation: first.incarnation,
            segment: first.number,
            first_lsn: first.first_lsn,
            first_group: first.first_group,
            ends,
        }
    }

    /// Whether a segment's header is what it says of the first one.
    pub(super) fn fits(&self, header: &SegmentHeader) -> bool {
        (header.number, header.first_lsn, header.first_group)
            == (self.segment, self.first_lsn, self.first_group)
    }

    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// Reads it, if the log was ever trimmed.
    pub(super) fn load(
        disk: &dyn Disk,
        dir: &Path,
        incarnation: Incarnation,
    ) -> Result<Option<Self>, StorageError> {
        let path = Self::path(dir);
        let io = |error: std::io::Error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be read", path.display()))
                .with_source(error)
        };
        if !disk.exists(&path).map_err(io)? {
            return Ok(None);
        }
        let bytes = read_whole(disk, &path).map_err(io)?;
        let decoded = Self::decode(&bytes).and_then(|point| {
            let own = point.incarnation == incarnation;
            if own {
                Ok(point)
            } else {
                Err("it belongs to another log than the MANIFEST beside it".to_owned())
            }
        });
        decoded.map(Some).map_err(|what| {
            StorageError::new(
                StorageErrorKind::Corrupt,
                format!("{}: {what}; put the directory of this tree back from a copy", path.display()),
            )
        })
    }

    /// Replaces it; durable when it returns.
    pub(super) fn store(&self, disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
        write_atomically(disk, &Self::path(dir), &self.encode())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let words = [self.incarnation.get(), self.segment.0, self.first_lsn.get(), self.first_group.get()];
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let count = u32::try_from(self.ends.len()).expect("origins and partitions are bounded");
        bytes.extend_from_slice(&count.to_le_bytes());
        for ((origin, partition), end) in &self.ends {
            bytes.extend_from_slice(&origin.get().to_le_bytes());
            bytes.extend_from_slice(&partition.get().to_le_bytes());
            bytes.extend_from_slice(&end.get().to_le_bytes());
        }
        seal(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let fields = unseal(bytes, MAGIC, "trim point")?;
        Self::decode_body(fields).ok_or_else(|| "the trim point has a field that cannot be".to_owned())
    }

    fn decode_body(mut rest: &[u8]) -> Option<Self> {
        let word = |rest: &mut &[u8]| take(rest).map(|bytes| u64::from_le_bytes(*bytes));
        let mut point = Self {
            incarnation: Incarnation::new(word(&mut rest)?),
            segment: SegmentNumber(word(&mut rest)?),
            first_lsn: Lsn::new(word(&mut rest)?),
            first_group: GroupSequence::new(word(&mut rest)?),
            ends: BTreeMap::new(),
        };
        let count = u32::from_le_bytes(*take(&mut rest)?);
        for _ in 0..count {
            let origin = OriginTag::new(word(&mut rest)?);
            let partition = PartitionId::new(u16::from_le_bytes(*take(&mut rest)?));
            point.ends.insert((origin, partition), Offset::new(word(&mut rest)?));
        }
        rest.is_empty().then_some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> TrimPoint {
        TrimPoint {
            incarnation: Incarnation::new(0x77),
            segment: SegmentNumber(5),
            first_lsn: Lsn::new(900),
            first_group: GroupSequence::new(40),
            ends: [((OriginTag::new(3), PartitionId::new(1)), Offset::new(450))].into(),
        }
    }

    #[test]
    fn a_trim_point_reads_back_and_every_flipped_bit_is_noticed() {
        let bytes = point().encode();
        assert_eq!(TrimPoint::decode(&bytes), Ok(point()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(TrimPoint::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_bytes_of_a_trim_point_are_those_of_version_1() {
        let hex: String = point().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("../../../golden/trim-v1.hex").trim());
    }
}
