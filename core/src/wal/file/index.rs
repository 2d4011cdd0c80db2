//! [`SegmentIndex`]: where things are in one segment, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::{HEADER_BYTES, SegmentHeader};
use crate::causal::OriginMarks;
use crate::disk::DiskFile;
use crate::id::{Lsn, Offset, OriginTag, PartitionId};
use crate::record::Group;

/// A mark for every so many bytes.
const MARK_BYTES: u64 = 64 * 1024;

/// One segment of a log.
#[derive(Clone)]
pub(super) struct SegmentIndex {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn DiskFile>,
    /// Where valid bytes end.
    pub(super) end: u64,
    pub(super) next_lsn: Lsn,
    marks: Vec<(Lsn, u64)>,
    ends: BTreeMap<(OriginTag, PartitionId), Offset>,
}

impl SegmentIndex {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            end: HEADER_BYTES as u64,
            next_lsn: header.first_lsn,
            marks: Vec::new(),
            ends: BTreeMap::new(),
            header,
        }
    }

    /// Takes note of a group that lies at the present end.
    pub(super) fn push(&mut self, group: &Group) {
        if self.marks.last().is_none_or(|(_, at)| self.end - at >= MARK_BYTES) {
            self.marks.push((group.first_lsn(), self.end));
        }
        for framed in group.blocks() {
            for run in framed.block.runs() {
                self.ends.insert((framed.block.origin(), run.partition), run.end());
            }
        }
        self.end += group.stored_bytes();
        self.next_lsn = group.next_lsn();
    }

    /// A position in the file at or before the group that holds `lsn`.
    pub(super) fn position_of(&self, lsn: Lsn) -> u64 {
        let after = self.marks.partition_point(|(first, _)| *first <= lsn);
        after.checked_sub(1).map_or(HEADER_BYTES as u64, |at| self.marks[at].1)
    }

    /// Whether it may hold a record of `origin` that `held` does not cover.
    pub(super) fn may_hold_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> bool {
        let range = (origin, PartitionId::ZERO)..=(origin, PartitionId::new(u16::MAX));
        self.ends
            .range(range)
            .any(|((_, partition), end)| *end > held.map_or(Offset::ZERO, |marks| marks.get(*partition).next))
    }

    /// Bytes of its groups.
    pub(super) fn bytes(&self) -> u64 {
        self.end - HEADER_BYTES as u64
    }
}
