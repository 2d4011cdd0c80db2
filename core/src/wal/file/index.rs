//! [`SegmentIndex`]: where things are in one segment, in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::places::Places;
use super::segment::{HEADER_BYTES, SegmentHeader};
use super::segments::Sums;
use crate::causal::OriginMarks;
use crate::disk::DiskFile;
use crate::id::{GroupSequence, Hlc, Lsn, Offset, OriginTag, PartitionId};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FramedBlock, Group, Kind};

/// A mark for every so many bytes.
const MARK_BYTES: u64 = if cfg!(test) { 300 } else { 64 * 1024 };

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
    /// How many records of it count.
    pub(super) records: u64,
    /// Bytes of those.
    pub(super) bytes: u64,
    /// Its number in the segment, in the order of first appearance.
    pub(super) slot: u32,
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
    pub(super) places: Places,
}

/// One segment of a log.
#[derive(Clone)]
pub(super) struct SegmentIndex {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn DiskFile>,
    /// Shared with those who read the segment at this moment.
    pub(super) contents: Arc<Contents>,
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
            places: Places::default(),
        }
    }

    pub(super) fn push(&mut self, group: &Group) {
        if self.marks.last().is_none_or(|mark| self.end - mark.at >= MARK_BYTES) {
            if !self.marks.is_empty() {
                self.places.close(&self.extents);
            }
            let hlc = group.blocks()[0].block.first_hlc();
            self.marks.push(Mark { lsn: group.first_lsn(), at: self.end, hlc });
        }
        for framed in group.blocks() {
            let (block, tally) = (&framed.block, tally(framed));
            self.last_hlc = self.last_hlc.max(block.last_hlc());
            for run in block.runs() {
                let slot = u32::try_from(self.extents.len()).expect("origins and partitions are bounded");
                let new = Extent { first: run.first, end: run.first, records: 0, bytes: 0, slot };
                let extent = self.extents.entry((block.origin(), run.partition)).or_insert(new);
                let (records, bytes) = tally[run.partition.index()];
                extent.first = extent.first.min(run.first);
                extent.end = extent.end.max(run.end());
                extent.records += records;
                extent.bytes += bytes;
            }
        }
        self.end += group.stored_bytes();
        self.next_lsn = group.next_lsn();
        self.next_group = group.sequence().next();
        self.records += group.records();
    }
}

/// Records that count, and their bytes, by partition. The mark of a cover is in no place of a partition: it stands for what was
/// left out.
fn tally(framed: &FramedBlock) -> [(u64, u64); MAX_PARTITIONS as usize] {
    let mut tally = [(0, 0); MAX_PARTITIONS as usize];
    let mut records = framed.block.records();
    let (mut skip, mut left) = (framed.frame.skip, records.left());
    while let Some(Ok(record)) = records.next() {
        let bytes = left - records.left() - records.lead();
        left = records.left();
        match tally.get_mut(record.partition.index()) {
            Some(_) if skip == 0 && record.offset.is_some() && record.kind == Kind::Mark => {}
            Some((count, sum)) if skip == 0 => {
                *count += 1;
                *sum += bytes as u64;
            }
            _ => skip = skip.saturating_sub(1),
        }
    }
    tally
}

impl SegmentIndex {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn DiskFile>, file_bytes: u64) -> Self {
        let contents = Arc::new(Contents::new(&header));
        Self { file, contents, file_bytes, sealed: false, below: Sums::default(), header }
    }

    /// Takes note of a group that lies at the present end.
    pub(super) fn push(&mut self, group: &Group) {
        Arc::make_mut(&mut self.contents).push(group);
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

    /// Where groups may stand that hold something of the partitions that `wanted` gives an offset for, at or above that
    /// offset: stretches from mark to mark, in order, those that touch as one.
    pub(super) fn stretches(
        &self,
        wanted: impl Fn(OriginTag, PartitionId) -> Option<Offset>,
    ) -> Vec<Range<u64>> {
        let contents = &*self.contents;
        // By slot: where the partition stands so far, where it must stand, where it ends.
        let mut slots = vec![None; contents.extents.len()];
        for ((origin, partition), extent) in &contents.extents {
            if let Some(slot) = slots.get_mut(extent.slot as usize) {
                *slot = wanted(*origin, *partition).map(|from| (extent.first, from, extent.end));
            }
        }
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut add = |stretch: usize| {
            let Some(mark) = contents.marks.get(stretch) else { return };
            let end = contents.marks.get(stretch + 1).map_or(contents.end, |next| next.at);
            match found.last_mut() {
                Some(last) if last.end >= mark.at => last.end = end,
                _ => found.push(mark.at..end),
            }
        };
        for (stretch, slot, advance) in contents.places.walk() {
            if let Some(Some((at, from, _))) = slots.get_mut(slot as usize) {
                *at = Offset::new(at.get().saturating_add(advance));
                if *at > *from {
                    add(stretch);
                }
            }
        }
        if slots.iter().flatten().any(|(at, from, end)| end > at && end > from) {
            add(contents.marks.len().saturating_sub(1));
        }
        found
    }

    /// The first mark at least so many bytes behind a place; None if the segment ends before.
    pub(super) fn mark_after(&self, at: u64, bytes: u64) -> Option<&Mark> {
        let marks = &self.contents.marks;
        marks.get(marks.partition_point(|mark| mark.at < at + bytes.max(1)))
    }

    /// Bytes of its groups.
    pub(super) fn bytes(&self) -> u64 {
        self.contents.end - HEADER_BYTES as u64
    }
}
