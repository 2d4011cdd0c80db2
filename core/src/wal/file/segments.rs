//! [`Segments`]: the segments of a log in order, what lies beside them, and who may add to them.

use std::path::PathBuf;

use super::filling::Filling;
use super::index::SegmentIndex;
use super::recovery::Recovered;
use super::segment::{HEADER_BYTES, SegmentNumber};
use super::spare::Spare;
use super::trim_point::TrimPoint;
use crate::id::{GroupSequence, Lsn, Offset};
use crate::wal::selection::PartitionKey;
use crate::wal::storage::Bounds;

/// What all segments below one hold together, since the log was opened: so that sums cost a subtraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    bytes: u64,
    records: u64,
    physical: u64,
}

/// Segments of a log, and who may add to them.
pub(super) struct Segments {
    pub(super) list: Vec<SegmentIndex>,
    pub(super) next_group: GroupSequence,
    pub(super) next_number: SegmentNumber,
    /// Raised by every repair: a write that began before one is not taken note of.
    pub(super) epoch: u64,
    pub(super) spares: Vec<Spare>,
    pub(super) filling: Filling,
    pub(super) trim: Option<TrimPoint>,
    /// Records and bytes of groups that were trimmed since.
    pub(super) trimmed: (u64, u64),
    /// Files that could not be removed yet, with their bytes.
    pub(super) dead: Vec<(PathBuf, u64)>,
}

impl Segments {
    pub(super) fn recovered(found: Recovered, trim: Option<TrimPoint>) -> Self {
        let mut segments = Self {
            next_number: found.highest.map_or(SegmentNumber(1), |number| SegmentNumber(number.0 + 1)),
            list: Vec::with_capacity(found.segments.len()),
            next_group: found.next_group,
            epoch: 0,
            spares: found.spares,
            filling: Filling::default(),
            trim,
            trimmed: (0, 0),
            dead: found.dead.into_iter().map(|path| (path, 0)).collect(),
        };
        for segment in found.segments {
            segments.push(segment);
        }
        segments
    }

    /// Where the trimmed offsets of a partition end.
    pub(super) fn trimmed_end(&self, key: PartitionKey) -> Offset {
        self.trim.as_ref().and_then(|trim| trim.ends.get(&key)).copied().unwrap_or_default()
    }

    /// Adds a segment behind the last one, which does not grow any more.
    pub(super) fn push(&mut self, mut segment: SegmentIndex) {
        segment.below = self.list.last().map_or_else(Sums::default, through);
        self.list.push(segment);
    }

    /// The file of a segment that is complete has become longer.
    pub(super) fn sealed(&mut self, at: usize, file_bytes: u64) {
        let segment = &mut self.list[at];
        segment.sealed = true;
        let grown = file_bytes.saturating_sub(physical(segment));
        segment.file_bytes += grown;
        for above in &mut self.list[at + 1..] {
            above.below.physical += grown;
        }
    }

    pub(super) fn find(&self, number: SegmentNumber) -> Option<usize> {
        self.list.binary_search_by_key(&number, |segment| segment.header.number).ok()
    }

    /// How many segments lie wholly below a position. The last one stays: it is being written.
    pub(super) fn below(&self, before: Lsn) -> usize {
        let old = &self.list[..self.list.len().saturating_sub(1)];
        old.partition_point(|segment| segment.next_lsn() <= before)
    }

    /// What the log holds.
    pub(super) fn bounds(&self) -> Bounds {
        let spares = self.spares.iter().map(|spare| spare.bytes);
        let beside: u64 = spares.chain(self.dead.iter().map(|(_, bytes)| *bytes)).sum();
        let bounds = self.bounds_from(0);
        Bounds {
            physical_bytes: bounds.physical_bytes + beside + self.filling.bytes(),
            trimmed_records: self.trimmed.0,
            trimmed_bytes: self.trimmed.1,
            ..bounds
        }
    }

    /// What the segments from a place in the list on hold.
    pub(super) fn bounds_from(&self, at: usize) -> Bounds {
        let Some((first, last)) = self.list.get(at).zip(self.list.last()) else { return Bounds::default() };
        let sums = through(last);
        Bounds {
            first: first.header.first_lsn,
            next: last.next_lsn(),
            records: sums.records - first.below.records,
            retained_bytes: sums.bytes - first.below.bytes,
            physical_bytes: sums.physical - first.below.physical,
            trimmed_records: 0,
            trimmed_bytes: 0,
        }
    }

    /// Bytes of groups from a position to the end, to the accuracy of the marks.
    pub(super) fn bytes_after(&self, lsn: Lsn) -> u64 {
        let at = self.list.partition_point(|segment| segment.next_lsn() <= lsn);
        let Some((segment, last)) = self.list.get(at).zip(self.list.last()) else { return 0 };
        let inside =
            if segment.header.first_lsn >= lsn { 0 } else { segment.position_of(lsn) - HEADER_BYTES as u64 };
        through(last).bytes - segment.below.bytes - inside
    }
}

/// What a segment and all below it hold.
fn through(segment: &SegmentIndex) -> Sums {
    Sums {
        bytes: segment.below.bytes + segment.bytes(),
        records: segment.below.records + segment.contents.records,
        physical: segment.below.physical + physical(segment),
    }
}

fn physical(segment: &SegmentIndex) -> u64 {
    segment.file_bytes.max(HEADER_BYTES as u64)
}
