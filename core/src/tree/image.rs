//! Images: the state in pieces, as a snapshot carries it out of one process and into another.
//!
//! An export may be fuzzy: chunks are taken one after another while groups are applied in between. Whoever installs
//! them replays the log from the position that was noted before the first chunk, and gets exactly what a replay of the
//! whole log gives, if the deleted ranges are those of that position, and the superseded positions those of a position
//! after the last chunk: entries may be newer than the record that is replayed, ranges must not be, or a write would
//! be passed over that its range delete has yet to remove.

use std::ops::Range;

use bytes::Bytes;

#[cfg(test)]
use super::entry::Entry;
use super::ranges::{Cut, RangeTombstones};
use super::state::State;
use super::superseded::Superseded;
use crate::feed::{StateRow, StateRows};
use crate::id::{Lsn, Version};

/// One key with what set or deleted it last. Snapshots read and make entries in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryImage {
    pub(super) key: Bytes,
    /// The value, expired or not; None for a tombstone.
    pub(super) value: Option<Bytes>,
    pub(super) version: Version,
    /// Where in this log the write or delete lies.
    pub(super) lsn: Lsn,
    pub(super) deadline_ms: Option<u64>,
}

/// A deleted range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeImage {
    pub(super) from: Bytes,
    /// The key after its last one.
    pub(super) to: Bytes,
    pub(super) version: Version,
    /// Where in this log the delete lies.
    pub(super) lsn: Lsn,
}

impl RangeImage {
    /// The image of a fragment.
    pub(super) fn of((from, to, cut): (&[u8], &[u8], Cut)) -> Self {
        let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        Self { from, to, version: cut.version, lsn: cut.lsn }
    }

    /// Adds it to others.
    pub(super) fn add_to(&self, ranges: &mut RangeTombstones) {
        ranges.insert(&self.from, &self.to, Cut { version: self.version, lsn: self.lsn });
    }
}

impl State {
    /// Entries in key order, tombstones included, after a key: about `bytes` of keys and values, at least one entry
    /// unless there is none.
    pub(super) fn export(&self, after: Option<&[u8]>, bytes: usize) -> Vec<EntryImage> {
        let (mut images, mut taken) = (Vec::new(), 0);
        let before = |key: &[u8]| after.is_some_and(|after| key <= after);
        self.walk(before, |entry| {
            if !images.is_empty() && taken + entry.bytes() > bytes {
                return false;
            }
            taken += entry.bytes();
            images.push(EntryImage {
                key: Bytes::copy_from_slice(entry.key()),
                value: entry.value().map(Bytes::copy_from_slice),
                version: entry.version,
                lsn: entry.lsn,
                deadline_ms: entry.deadline_ms(),
            });
            true
        });
        images
    }

    /// Entries that lie below a position of the log or nowhere in it, in key order, after a key: of `most` that are looked
    /// at, and about `bytes` of keys and values.
    pub(super) fn rows(&self, below: Lsn, after: Option<&[u8]>, most: usize, bytes: u64) -> StateRows {
        let (mut found, mut looked, mut taken) = (StateRows::default(), 0, 0);
        let before = |key: &[u8]| after.is_some_and(|after| key <= after);
        let mut last = None;
        self.walk(before, |entry| {
            if looked >= most || taken >= bytes {
                found.after = last.map(Bytes::copy_from_slice);
                return false;
            }
            (looked, last) = (looked + 1, Some(entry.key()));
            if entry.lsn < below {
                let row = StateRow {
                    key: Bytes::copy_from_slice(entry.key()),
                    value: entry.value().map(Bytes::copy_from_slice),
                    deadline_ms: entry.deadline_ms(),
                    version: entry.version,
                };
                taken += row.bytes();
                found.rows.push(row);
            }
            true
        });
        found
    }

    /// Puts an entry in its place, unless what is there is as new.
    #[cfg(test)]
    pub(super) fn install(&mut self, image: &EntryImage) {
        let EntryImage { key, value, version, lsn, deadline_ms } = image;
        self.place(Entry::new(key, value.as_deref(), *deadline_ms, *version, *lsn));
    }

    /// The deleted ranges of this moment, in key order. To be taken in one look with `next_lsn`, before any entry.
    pub(super) fn ranges(&self) -> Vec<RangeImage> {
        self.ranges.iter().map(RangeImage::of).collect()
    }

    /// Takes over a deleted range. Removes nothing: entries come as they were after it.
    pub(super) fn install_range(&mut self, image: &RangeImage) {
        image.add_to(&mut self.ranges);
    }

    /// Positions whose records lost on arrival, of this moment. To be taken in one look with `next_lsn`, after every
    /// entry.
    pub(super) fn superseded(&self) -> Vec<Range<Lsn>> {
        self.superseded.ranges().collect()
    }

    /// Takes over which records below `until` lost. Replaying them counts nothing and adds nothing to it.
    pub(super) fn install_superseded(&mut self, ranges: Vec<Range<Lsn>>, until: Lsn) {
        self.superseded = Superseded::stored(ranges, until);
    }
}
