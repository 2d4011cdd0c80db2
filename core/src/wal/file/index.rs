//! [`SegmentIndex`]: where things are in one segment, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::{HEADER_BYTES, SegmentHeader};
use super::segments::Sums;
use crate::causal::OriginMarks;
use crate::disk::DiskFile;
use crate::id::{GroupSequence, Hlc, Lsn, Offset, OriginTag, PartitionId};
use crate::record::Group;

/// A mark for every so many bytes.
const MARK_BYTES: u64 = 64 * 1024;

/// A group whose place is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) lsn: Lsn,
    pub(super) at: u64,
    /// The HLC of its first record.
    pub(super) hlc: Hlc,
}

/// The offsets of one origin's partition that occur: from the first to the end, gaps possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: Offset,
    pub(super) end: Offset,
}

pub(super) type Extents = BTreeMap<(OriginTag, PartitionId), Extent>;

/// What lies in a segment: kept while it is written, and stored in its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// Where valid bytes end.
    pub(super) end: u64,
    pub(super) next_lsn: Lsn,
    pub(super) next_group: GroupSequence,
    pub(super) records: u64,
    /// The highest HLC of a record.
    pub(super) last_hlc: Hlc,
    pub(super) marks: Vec<Mark>,
    pub(super) extents: Extents,
}

/// One segment of a log.
#[derive(Clone)]
pub(super) struct SegmentIndex {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) contents: Contents,
    /// How long its file is.
    pub(super) file_bytes: u64,
    /// It has a footer: every write into it has succeeded, and nothing is on its way into it any more.
    pub(super) sealed: bool,
    /// What the segments below it hold.
    pub(super) below: Sums,
}

impl Contents {
    pub(super) fn new(header: &SegmentHeader) -> Self {
        Self {
            end: HEADER_BYTES as u64,
            next_lsn: header.first_lsn,
            next_group: header.first_group,
            records: 0,
            last_hlc: Hlc::ZERO,
            marks: Vec::new(),
            extents: Extents::new(),
        }
    }

    fn push(&mut self, group: &Group) {
        if self.marks.last().is_none_or(|mark| self.end - mark.at >= MARK_BYTES) {
            let hlc = group.blocks()[0].block.first_hlc();
            self.marks.push(Mark { lsn: group.first_lsn(), at: self.end, hlc });
        }
        for block in group.blocks().iter().map(|framed| &framed.block) {
            self.last_hlc = self.last_hlc.max(block.last_hlc());
            for run in block.runs() {
                let whole = Extent { first: run.first, end: run.end() };
                let extent = self.extents.entry((block.origin(), run.partition)).or_insert(whole);
                extent.first = extent.first.min(run.first);
                extent.end = extent.end.max(run.end());
            }
        }
        self.end += group.stored_bytes();
        self.next_lsn = group.next_lsn();
        self.next_group = group.sequence().next();
        self.records += group.records();
    }
}

impl SegmentIndex {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn DiskFile>, file_bytes: u64) -> Self {
        let contents = Contents::new(&header);
        Self { file, contents, file_bytes, sealed: false, below: Sums::default(), header }
    }

    /// Takes note of a group that lies at the present end.
    pub(super) fn push(&mut self, group: &Group) {
        self.contents.push(group);
        self.file_bytes = self.file_bytes.max(self.contents.end);
    }

    /// Where valid bytes end.
    pub(super) fn end(&self) -> u64 {
        self.contents.end
    }

    /// The position after its last record.
    pub(super) fn next_lsn(&self) -> Lsn {
        self.contents.next_lsn
    }

    /// A position in the file at or before the group that holds `lsn`.
    pub(super) fn position_of(&self, lsn: Lsn) -> u64 {
        let marks = &self.contents.marks;
        let after = marks.partition_point(|mark| mark.lsn <= lsn);
        after.checked_sub(1).map_or(HEADER_BYTES as u64, |at| marks[at].at)
    }

    /// Whether it may hold a record of `origin` that `held` does not cover.
    pub(super) fn may_hold_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> bool {
        let range = (origin, PartitionId::ZERO)..=(origin, PartitionId::new(u16::MAX));
        self.contents.extents.range(range).any(|((_, partition), extent)| {
            extent.end > held.map_or(Offset::ZERO, |marks| marks.get(*partition).next)
        })
    }

    /// Bytes of its groups.
    pub(super) fn bytes(&self) -> u64 {
        self.contents.end - HEADER_BYTES as u64
    }
}
