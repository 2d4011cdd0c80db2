//! [`Selection`]: the records of a stretch of a log that a filter wants, copied out of it.
//!
//! What is not wanted leaves nothing behind: memory follows what matches, not what is read.

use std::sync::Arc;

use bytes::Bytes;

use super::filter::Filter;
use crate::error::StorageError;
use crate::id::{Lsn, Offset, OriginTag, PartitionId};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FramedBlock, Group, Kind, RecordView};

/// Where a record lies in the bytes of a selection.
#[derive(Clone, Copy, Debug)]
struct Place {
    lsn: Lsn,
    origin: OriginTag,
    offset: Offset,
    at: usize,
    length: usize,
}

/// Records that a filter wanted, in log order, and where reading goes on, which lies behind everything that was looked at.
#[derive(Clone, Debug)]
pub struct Selection {
    bytes: Bytes,
    places: Vec<Place>,
    next: Lsn,
}

/// A record of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected<'a> {
    /// Where it lies in this log.
    pub lsn: Lsn,
    /// Where it was first committed.
    pub origin: OriginTag,
    /// Its place in its partition at its origin.
    pub offset: Offset,
    /// The record; [`Selection::slice`] makes its parts outlive the selection.
    pub record: RecordView<'a>,
}

impl Selection {
    /// What a filter wants of groups in memory, from a position up to another.
    ///
    /// # Errors
    /// `Corrupt` when a record cannot be read.
    pub fn of_groups(
        groups: &[Arc<Group>],
        range: (Lsn, Lsn),
        filter: &Filter,
    ) -> Result<Self, StorageError> {
        let mut selecting = Selecting::new(filter, range);
        groups.iter().flat_map(|group| group.blocks()).try_for_each(|framed| selecting.take(framed))?;
        let next = groups.last().map_or(range.0, |last| last.next_lsn());
        Ok(selecting.finish(next.min(range.1).max(range.0)))
    }

    /// The same, read up to `next`: what lies between is known to hold nothing that is wanted.
    #[must_use]
    pub fn up_to(self, next: Lsn) -> Self {
        Self { next: self.next.max(next), ..self }
    }

    /// This one, and the one of the stretch behind it.
    #[must_use]
    pub(super) fn followed_by(self, behind: Self) -> Self {
        if behind.is_empty() {
            return self.up_to(behind.next);
        }
        let shift = self.bytes.len();
        let mut bytes = Vec::from(self.bytes);
        bytes.extend_from_slice(&behind.bytes);
        let mut places = self.places;
        places.extend(behind.places.into_iter().map(|place| Place { at: place.at + shift, ..place }));
        Self { bytes: Bytes::from(bytes), places, next: behind.next }
    }

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = Selected<'_>> {
        self.places.iter().map(|place| {
            let bytes = &self.bytes[place.at..place.at + place.length];
            let (record, _) = RecordView::parse(bytes).expect("it was read when it was copied");
            Selected { lsn: place.lsn, origin: place.origin, offset: place.offset, record }
        })
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing was wanted.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where reading goes on.
    pub fn next(&self) -> Lsn {
        self.next
    }

    /// Bytes of its records.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A part of a record, sharing the memory of the selection.
    pub fn slice(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

/// A selection in the making.
pub(super) struct Selecting<'a> {
    filter: &'a Filter,
    /// Records outside of these positions are not wanted.
    from: Lsn,
    until: Lsn,
    /// Of a partition, records below an offset are not wanted.
    above: Offset,
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl<'a> Selecting<'a> {
    pub(super) fn new(filter: &'a Filter, (from, until): (Lsn, Lsn)) -> Self {
        Self { filter, from, until, above: Offset::ZERO, bytes: Vec::new(), places: Vec::new() }
    }

    /// Leaves out records below an offset.
    pub(super) fn above(mut self, offset: Offset) -> Self {
        self.above = offset;
        self
    }

    /// Bytes of records that were taken.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes what is wanted of a block.
    ///
    /// # Errors
    /// `Corrupt` when a record cannot be read.
    pub(super) fn take(&mut self, framed: &FramedBlock) -> Result<(), StorageError> {
        let block = &framed.block;
        let outside = framed.next_lsn() <= self.from || framed.frame.first_lsn >= self.until;
        if outside || !block.runs().any(|run| self.filter.may_want(block.origin(), run.partition)) {
            return Ok(());
        }
        let mut counts = [0_u32; MAX_PARTITIONS as usize];
        let (mut skip, mut lsn) = (framed.frame.skip, framed.frame.first_lsn);
        let mut records = block.records();
        let all = records.left();
        let mut left = all;
        while let Some(record) = records.next() {
            // The checksum holds, so it is what its origin wrote: parked here as a dead letter, with all behind it.
            let Ok(record) = record else { break };
            let length = left - records.left() - records.lead();
            let end = all - records.left();
            left = records.left();
            let Some(count) = counts.get_mut(record.partition.index()) else { continue };
            let before = *count;
            *count += 1;
            if skip > 0 {
                skip -= 1;
                continue;
            }
            // The mark of a cover is no record of its partition: it stands for what was left out.
            let covers = record.offset.is_some() && record.kind == Kind::Mark;
            if !covers && self.filter.wants(&record) && (self.from..self.until).contains(&lsn) {
                self.push(framed, &record, (lsn, before), block.record_bytes(end - length..end));
            }
            lsn = lsn.next();
        }
        Ok(())
    }

    fn push(
        &mut self,
        framed: &FramedBlock,
        record: &RecordView<'_>,
        (lsn, before): (Lsn, u32),
        bytes: &[u8],
    ) {
        let first = framed.block.run(record.partition).map_or(Offset::ZERO, |run| run.first);
        let offset = record.offset.unwrap_or_else(|| first.advanced(u64::from(before)));
        if offset < self.above {
            return;
        }
        let place =
            Place { lsn, origin: framed.block.origin(), offset, at: self.bytes.len(), length: bytes.len() };
        self.places.push(place);
        self.bytes.extend_from_slice(bytes);
    }

    /// The selection; reading goes on at `next`.
    pub(super) fn finish(self, next: Lsn) -> Selection {
        Selection { bytes: Bytes::from(self.bytes), places: self.places, next }
    }
}

/// What a log retains of one partition of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionExtent {
    /// The lowest offset that is sure to be there: what lies below was trimmed, or may have been.
    pub first: Offset,
    /// The offset after the last record.
    pub next: Offset,
    /// How many records are retained.
    pub records: u64,
    /// Bytes of them: headers, keys and values.
    pub bytes: u64,
}

/// A partition of an origin.
pub type PartitionKey = (OriginTag, PartitionId);
