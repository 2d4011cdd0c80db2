//! The reading side of [`FileStorage`]: whole groups out of the segments, or what a filter wants of them. Checksums are
//! verified either way.
//!
//! The index says where groups stand that are asked for, so that what is read begins and ends with a group: at marks, if
//! nothing else asks for less. Nothing is read under a lock.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::buffers::ReadBuffers;
use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::storage::{FileStorage, failed};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{Lsn, Offset};
use crate::record::Group;
use crate::wal::filter::Filter;
use crate::wal::selection::{PartitionExtent, PartitionKey, Selecting, Selection};

/// Bytes that a selection reads at once: they stay in the cache of a core.
const PIECE_BYTES: u64 = if cfg!(test) { 700 } else { 256 * 1024 };
/// A reading that asks for less than this stops inside of a stretch between marks.
const SMALL_READ: usize = 64 * 1024;

impl FileStorage {
    /// Whole groups from the first that reaches beyond `from`: about `limit` bytes of them.
    pub(super) fn read_blocking(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        let Some(segment) = self.segment_of(from)? else { return Ok(Vec::new()) };
        let start = segment.position_of(from);
        let end = segment.mark_after(start, limit as u64).map_or(segment.end(), |mark| mark.at);
        let most = if limit < SMALL_READ { limit } else { usize::MAX };
        self.unless_trimmed(&segment, from, self.read_groups(&segment, start..end, (from, most), None))
    }

    /// Whole groups from the first that reaches beyond `from` up to a position that [`stride`](Self::stride) gave. Blocks.
    ///
    /// # Errors
    /// As [`read`](crate::wal::WalStorage::read).
    pub fn read_stride(
        &self,
        from: Lsn,
        until: Lsn,
        buffers: &ReadBuffers,
    ) -> Result<Vec<Arc<Group>>, StorageError> {
        let Some(segment) = self.segment_of(from)? else { return Ok(Vec::new()) };
        let range = range_of(&segment, from, until);
        self.unless_trimmed(
            &segment,
            from,
            self.read_groups(&segment, range, (from, usize::MAX), Some(buffers)),
        )
    }

    /// Where a reading of about so many bytes ends that begins at a position: without I/O.
    pub fn stride(&self, from: Lsn, bytes: usize) -> Lsn {
        let segments = self.segments.read();
        let at = segments.list.partition_point(|segment| segment.next_lsn() <= from);
        let Some(segment) = segments.list.get(at) else { return from };
        let mark = segment.mark_after(segment.position_of(from), bytes as u64);
        mark.map_or(segment.next_lsn(), |mark| mark.lsn)
    }

    /// The records that a filter wants from a position on, up to one that [`stride`](Self::stride) gave, or to the end of
    /// the segment. Values are not looked at, and memory follows what is wanted. Blocks.
    ///
    /// # Errors
    /// As [`read`](crate::wal::WalStorage::read).
    pub fn select(
        &self,
        (from, until): (Lsn, Lsn),
        filter: &Filter,
        buffers: &ReadBuffers,
    ) -> Result<Selection, StorageError> {
        let mut selecting = Selecting::new(filter, (from, until));
        let Some(segment) = self.segment_of(from)? else { return Ok(selecting.finish(from)) };
        let range = range_of(&segment, from, until);
        let ranges = if filter.is_narrow() {
            let wanted = |origin, partition| filter.may_want(origin, partition).then_some(Offset::ZERO);
            clip(segment.stretches(wanted), &range)
        } else {
            vec![range]
        };
        let selected = self.select_in(&segment, &ranges, buffers, usize::MAX, &mut selecting);
        self.unless_trimmed(&segment, from, selected)?;
        Ok(selecting.finish(segment.next_lsn().min(until).max(from)))
    }

    /// What is retained of a partition. Without I/O.
    pub fn partition(&self, key: PartitionKey) -> PartitionExtent {
        let segments = self.segments.read();
        let first = segments.trimmed_end(key);
        let mut whole = PartitionExtent { first, next: first, ..PartitionExtent::default() };
        for segment in &segments.list {
            if let Some(extent) = segment.contents.extents.get(&key) {
                whole.next = whole.next.max(extent.end);
                whole.records += extent.records;
                whole.bytes += extent.bytes;
            }
        }
        whole
    }

    /// Records of one partition from an offset on, about `limit` bytes of them, that lie below a position of the log. Only
    /// stretches of the log are read in which there may be some. Blocks.
    ///
    /// # Errors
    /// `Trimmed` below what is retained; `Corrupt` and `Io` name the place.
    pub fn read_partition(
        &self,
        key: PartitionKey,
        from: Offset,
        until: Lsn,
        limit: usize,
    ) -> Result<Selection, StorageError> {
        let (filter, buffers) =
            (Filter::all().origins([key.0]).partitions([key.1]).maintenance(), ReadBuffers::default());
        let mut selecting = Selecting::new(&filter, (Lsn::ZERO, until)).above(from);
        let mut next = Lsn::ZERO;
        loop {
            let first = self.segments.read().trimmed_end(key);
            if from < first {
                let said = format!("the partition begins at {first}, and {from} was asked for");
                return Err(StorageError::new(StorageErrorKind::Trimmed, said));
            }
            let segment = {
                let segments = self.segments.read();
                let reaches = |segment: &&SegmentIndex| {
                    let extent = segment.contents.extents.get(&key);
                    segment.header.first_lsn >= next && extent.is_some_and(|extent| extent.end > from)
                };
                segments.list.iter().find(reaches).cloned()
            };
            let Some(segment) = segment.filter(|segment| segment.header.first_lsn < until) else { break };
            next = segment.next_lsn();
            let ranges = segment.stretches(|origin, partition| ((origin, partition) == key).then_some(from));
            let selected = self.select_in(&segment, &ranges, &buffers, limit, &mut selecting);
            self.unless_trimmed(&segment, segment.header.first_lsn, selected)?;
            if selecting.bytes() >= limit {
                break;
            }
        }
        Ok(selecting.finish(next))
    }

    /// The segment with the group that reaches beyond a position; None at the end of the log.
    fn segment_of(&self, from: Lsn) -> Result<Option<SegmentIndex>, StorageError> {
        let segments = self.segments.read();
        let first = segments.list.first().map_or(Lsn::ZERO, |first| first.header.first_lsn);
        if from < first {
            return Err(trimmed(from, first));
        }
        let at = segments.list.partition_point(|segment| segment.next_lsn() <= from);
        Ok(segments.list.get(at).cloned())
    }

    /// A reading that failed may have met a file that was trimmed and written over meanwhile.
    fn unless_trimmed<T>(
        &self,
        segment: &SegmentIndex,
        from: Lsn,
        read: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        read.map_err(|error| {
            let first = self.segments.read().list.first().map(|first| first.header);
            match first.filter(|first| first.number > segment.header.number) {
                Some(first) => trimmed(from, first.first_lsn),
                None => error,
            }
        })
    }

    fn read_groups(
        &self,
        segment: &SegmentIndex,
        range: Range<u64>,
        (from, most): (Lsn, usize),
        buffers: Option<&ReadBuffers>,
    ) -> Result<Vec<Arc<Group>>, StorageError> {
        let bytes = self.read_bytes(segment, &range, buffers)?;
        let (mut groups, mut taken) = (Vec::new(), 0);
        self.walk(segment, range.start, &bytes, &mut |group| {
            if group.next_lsn() > from {
                taken += group.stored_bytes();
                groups.push(Arc::new(group));
            }
            Ok(taken < most as u64)
        })?;
        Ok(groups)
    }

    /// Takes what is wanted out of stretches of a segment, until that is more than `limit` bytes.
    fn select_in(
        &self,
        segment: &SegmentIndex,
        ranges: &[Range<u64>],
        buffers: &ReadBuffers,
        limit: usize,
        selecting: &mut Selecting<'_>,
    ) -> Result<(), StorageError> {
        for range in ranges {
            let mut at = range.start;
            while at < range.end && selecting.bytes() < limit {
                let mark = segment.mark_after(at, PIECE_BYTES).map_or(range.end, |mark| mark.at);
                let piece = at..mark.min(range.end);
                let bytes = self.read_bytes(segment, &piece, Some(buffers))?;
                self.walk(segment, at, &bytes, &mut |group| {
                    group.blocks().iter().try_for_each(|framed| selecting.take(framed))?;
                    Ok(true)
                })?;
                at = piece.end;
            }
        }
        Ok(())
    }

    fn read_bytes(
        &self,
        segment: &SegmentIndex,
        range: &Range<u64>,
        buffers: Option<&ReadBuffers>,
    ) -> Result<Bytes, StorageError> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut buffer = buffers.cloned().unwrap_or_default().take(length);
        let read = segment
            .file
            .read_at(buffer.as_mut(), range.start)
            .map_err(|error| failed(format!("log of {} cannot be read", self.dir.display()), error))?;
        if read < length {
            return Err(self.damaged_at(segment, range.start + read as u64, "the file has become shorter"));
        }
        Ok(buffer.share())
    }

    /// Shows the groups in bytes that stand at `base`, which begin and end with a group, until `visit` has enough.
    fn walk(
        &self,
        segment: &SegmentIndex,
        base: u64,
        bytes: &Bytes,
        visit: &mut dyn FnMut(Group) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let (manifest, seed): (Arc<Manifest>, u64) = (self.manifest(), segment.header.seed());
        let mut at = 0;
        while at < bytes.len() {
            let what = match parse_group(bytes, at, seed, &manifest) {
                Parsed::Group(group, length) => {
                    at += length;
                    if visit(group)? {
                        continue;
                    }
                    return Ok(());
                }
                Parsed::Short(_) => "a group is cut short".to_owned(),
                Parsed::Damaged(error) => error.to_string(),
            };
            return Err(self.damaged_at(segment, base + at as u64, &what));
        }
        Ok(())
    }

    fn damaged_at(&self, segment: &SegmentIndex, at: u64, what: &str) -> StorageError {
        let path = self.dir.join(segment.header.number.file_name());
        StorageError::new(
            StorageErrorKind::Corrupt,
            format!(
                "{} is damaged at byte {at}: {what}; put the tree's directory back from a copy",
                path.display()
            ),
        )
    }
}

/// The bytes of a segment from the group at or before a position to the mark at or behind another, or to its end.
fn range_of(segment: &SegmentIndex, from: Lsn, until: Lsn) -> Range<u64> {
    let marks = &segment.contents.marks;
    let behind = marks.get(marks.partition_point(|mark| mark.lsn < until));
    let start = segment.position_of(from);
    start..behind.map_or(segment.end(), |mark| mark.at).max(start)
}

fn clip(ranges: Vec<Range<u64>>, to: &Range<u64>) -> Vec<Range<u64>> {
    let clipped = ranges.into_iter().map(|range| range.start.max(to.start)..range.end.min(to.end));
    clipped.filter(|range| range.start < range.end).collect()
}

fn trimmed(from: Lsn, first: Lsn) -> StorageError {
    StorageError::new(
        StorageErrorKind::Trimmed,
        format!("the log begins at {first}, and {from} was asked for: take a snapshot and go on from there"),
    )
}
