//! [`Checkup`]: what a look at a log at rest came to.

use std::path::PathBuf;

use super::segment::SegmentNumber;
use crate::id::{Hlc, Lsn, Offset, PartitionId};

/// The offsets of one origin's partition in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRange {
    /// The name of the origin, or a text with its tag.
    pub origin: String,
    /// The partition.
    pub partition: PartitionId,
    /// The first offset.
    pub first: Offset,
    /// The offset after the last.
    pub end: Offset,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its file.
    pub file: PathBuf,
    /// The position of its first record.
    pub first_lsn: Lsn,
    /// The position after its last record, as far as it reads.
    pub next_lsn: Lsn,
    /// Groups that read.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Whether another segment continues it.
    pub complete: bool,
    /// Whether its file was a segment before.
    pub recycled: bool,
    /// The highest HLC of a record.
    pub last_hlc: Hlc,
    /// Which records of whom.
    pub ranges: Vec<OriginRange>,
}

/// What a cut would give up, as far as it can still be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Groups that are intact.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the files, intact or not.
    pub bytes: u64,
}

/// The first place where a log does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub(super) segment: SegmentNumber,
    /// The file.
    pub file: PathBuf,
    /// The byte.
    pub at: u64,
    /// What is wrong there.
    pub what: String,
    /// The position up to which the log reads.
    pub end: Lsn,
    /// What lies behind it.
    pub lost: Lost,
}

/// A log that was read through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    /// Its segments, up to the first damage.
    pub segments: Vec<SegmentReport>,
    /// Bytes behind the last group that belong to none: what a crash left of a write that was never acknowledged, or a
    /// former use of the file. The next start cuts them.
    pub tail_bytes: u64,
    /// The first damage, if there is one.
    pub damage: Option<Damage>,
}

impl Checkup {
    /// Records that read.
    pub fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records).sum()
    }

    /// Groups that read.
    pub fn groups(&self) -> u64 {
        self.segments.iter().map(|segment| segment.groups).sum()
    }

    /// Bytes of groups that read.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}
