//! [`State`]: what the log says now. Changed by applying groups, in log order, and by nothing else.
//!
//! One lock covers it: a group appears at once, so a reader never sees a later write of an origin without the earlier
//! ones, nor half of a batch, whatever partitions they are in.

mod applying;
mod digesting;
mod reaping;
mod totals;

use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;

pub(super) use self::applying::GroupOutcome;
use self::digesting::Digesting;
use self::reaping::Leavings;
use self::totals::Totals;
use super::entry::{Entry, Row, Value};
use super::index::KeyIndex;
use super::key_table::{KeyTable, KeyTag};
use super::ranges::RangeTombstones;
use super::superseded::Superseded;
use super::target::Progress;
use crate::id::{Lsn, OriginTag};
use crate::letters::Parked;
use crate::record::Interest;

/// What an interest keeps out of a state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unheld {
    /// Keys of the snapshot that it was loaded from.
    pub(super) keys: u64,
    /// Records of the log.
    pub(super) records: u64,
}

/// Keys, values, and how far every origin is applied.
#[derive(Debug)]
pub(super) struct State {
    origin: OriginTag,
    partitions: u16,
    table: KeyTable,
    entries: Vec<Entry>,
    index: Mutex<KeyIndex>,
    totals: Totals,
    pub(super) ranges: RangeTombstones,
    pub(super) superseded: Superseded,
    /// What is left of what was reaped.
    leavings: Leavings,
    /// A digest in the making.
    digesting: Mutex<Option<Digesting>>,
    /// Which keys are held here: whatever the log holds of others has no effect.
    pub(super) interest: Interest,
    /// What it had no effect of for that reason, since it was opened.
    pub(super) unheld: Unheld,
    /// What is left out when blocks are applied, and not claimed.
    pub(super) parked: Parked,
    /// The end of the applied log.
    pub(super) next_lsn: Lsn,
    pub(super) progress: Progress,
}

impl State {
    pub(super) fn new(origin: OriginTag, partitions: u16) -> Self {
        Self {
            origin,
            partitions,
            table: KeyTable::default(),
            entries: Vec::new(),
            index: Mutex::default(),
            totals: Totals::default(),
            ranges: RangeTombstones::default(),
            superseded: Superseded::default(),
            leavings: Leavings::default(),
            digesting: Mutex::default(),
            interest: Interest::all(),
            unheld: Unheld::default(),
            parked: Parked::default(),
            next_lsn: Lsn::ZERO,
            progress: Progress::default(),
        }
    }

    fn slots_within(&mut self, from: &[u8], to: &[u8]) -> Vec<u32> {
        let (index, entries) = (self.index.get_mut(), &self.entries);
        let key = |slot: u32| entries[slot as usize].key();
        let mut slots = Vec::new();
        index.settle(key);
        index.walk(
            key,
            |key| key < from,
            |slot| {
                let inside = key(slot) < to;
                slots.extend(inside.then_some(slot));
                inside
            },
        );
        slots
    }

    fn replace(&mut self, slot: u32, fresh: Entry) {
        let entry = &mut self.entries[slot as usize];
        self.totals.remove(entry);
        self.totals.add(&fresh);
        if let Some(digesting) = self.digesting.get_mut() {
            digesting.leaves(slot, entry);
            digesting.comes(slot, &fresh);
        }
        *entry = fresh;
    }

    fn insert(&mut self, tag: KeyTag, fresh: Entry) {
        self.totals.add(&fresh);
        let slot = self.put_somewhere(fresh);
        if let Some(digesting) = self.digesting.get_mut() {
            digesting.comes(slot, &self.entries[slot as usize]);
        }
        self.table.insert(tag, slot);
        self.index.get_mut().push(slot);
    }

    /// Puts an entry in its place, whatever is there.
    pub(super) fn overwrite(&mut self, fresh: Entry) {
        let tag = KeyTag::of(fresh.key());
        match self.slot(tag, fresh.key()) {
            Some(slot) => self.replace(slot, fresh),
            None => self.insert(tag, fresh),
        }
    }

    /// Puts an entry in its place, unless what is there is as new.
    #[cfg(test)]
    pub(super) fn place(&mut self, fresh: Entry) {
        let tag = KeyTag::of(fresh.key());
        match self.slot(tag, fresh.key()) {
            Some(slot) if self.entries[slot as usize].version < fresh.version => self.replace(slot, fresh),
            Some(_) => {}
            None => self.insert(tag, fresh),
        }
    }

    /// Makes room for so many entries.
    pub(super) fn reserve(&mut self, entries: usize) {
        self.entries.reserve(entries);
    }

    /// Takes over entries in key order. Says whether they lie behind all that came this way before: if not, nothing is
    /// taken. Only before any group is applied; nothing is found before [`index_sorted`](Self::index_sorted).
    pub(super) fn append_sorted(&mut self, rows: &mut Vec<Entry>) -> bool {
        let first = rows.first().map(Entry::key);
        if self.entries.last().map(Entry::key).zip(first).is_some_and(|(last, first)| last >= first) {
            return false;
        }
        for entry in rows.iter() {
            self.totals.add(entry);
        }
        self.entries.append(rows);
        true
    }

    /// Gives memory of their own to some of the entries that came packed, from a place on. Answers where to go on.
    pub(super) fn unpack_some(&mut self, from: usize, most: usize) -> Option<usize> {
        let mut bytes = 0;
        let (mut at, end) = (from, self.entries.len());
        while at < end && bytes < most {
            let entry = &mut self.entries[at];
            entry.unpack();
            bytes += entry.bytes();
            at += 1;
        }
        (at < end).then_some(at)
    }

    /// How many entries are packed.
    #[cfg(test)]
    pub(super) fn packed(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_packed()).count()
    }

    /// Makes what was taken over in key order known by its keys.
    pub(super) fn index_sorted(&mut self, table: KeyTable) {
        self.table = table;
        let slots = u32::try_from(self.entries.len()).expect("fewer than 2^32 keys fit the memory of a tree");
        *self.index.get_mut() = KeyIndex::sorted(slots);
    }

    /// How many entries there are, tombstones included.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.leavings.len()
    }

    fn slot(&self, tag: KeyTag, key: &[u8]) -> Option<u32> {
        self.table.find(tag, |slot| self.entries[slot as usize].key() == key)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.slot(KeyTag::of(key), key).map(|slot| &self.entries[slot as usize])
    }

    /// Does a small part of what the next walk would do first: putting new keys in order. Says whether there may be
    /// more.
    pub(super) fn settle_some(&self) -> bool {
        self.index.lock().step(|slot| self.entries[slot as usize].key())
    }

    /// Whether the next walk would have many new keys to put in order first.
    pub(super) fn is_unsettled(&self) -> bool {
        self.index.lock().is_unsettled()
    }

    /// Visits entries in key order, tombstones included, from the first key for which `before` is false, until `visit`
    /// says stop.
    pub(super) fn walk<'s>(
        &'s self,
        before: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(&'s Entry) -> bool,
    ) {
        let mut index = self.index.lock();
        let key = |slot: u32| self.entries[slot as usize].key();
        index.settle(key);
        index.walk(key, before, |slot| {
            let entry = &self.entries[slot as usize];
            entry.is_gone() || visit(entry)
        });
    }

    /// The value of a key; `now` is asked only if it can expire.
    pub(super) fn get(&self, key: &[u8], now: impl FnOnce() -> u64) -> Option<Value> {
        let entry = self.find(key)?;
        let deadline_ms = entry.deadline_ms();
        let value = if deadline_ms.is_some() { entry.value_at(now()) } else { entry.value() };
        value.map(|value| Value { value: value.to_vec().into(), version: entry.version, deadline_ms })
    }

    /// Keys of a range, after one of them, whose entry is a tombstone of the record at `by`, at most `limit`.
    pub(super) fn removed(
        &self,
        range: Range<&[u8]>,
        by: Lsn,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let before = |key: &[u8]| key < range.start || after.is_some_and(|after| key <= after);
        self.walk(before, |entry| {
            if entry.key() >= range.end || keys.len() >= limit {
                return false;
            }
            if entry.lsn == by && !entry.is_live() {
                keys.push(Bytes::copy_from_slice(entry.key()));
            }
            true
        });
        keys
    }

    /// How many keys of a range hold a value, expired or not; counts no further than `limit`.
    pub(super) fn count_within(&self, range: Range<&[u8]>, limit: usize) -> usize {
        let mut count = 0;
        self.walk(
            |key| key < range.start,
            |entry| {
                let inside = entry.key() < range.end && count < limit;
                count += usize::from(inside && entry.is_live());
                inside
            },
        );
        count
    }

    /// Rows in key order that are live when the clock says `now`: with the prefix, after a key, at most `limit`.
    pub(super) fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, now: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        let before = |key: &[u8]| key < prefix || after.is_some_and(|after| key <= after);
        self.walk(before, |entry| {
            if !entry.key().starts_with(prefix) || rows.len() >= limit {
                return false;
            }
            if let Some(value) = entry.value_at(now) {
                rows.push(Row {
                    key: entry.key().to_vec().into(),
                    value: value.to_vec().into(),
                    version: entry.version,
                    deadline_ms: entry.deadline_ms(),
                });
            }
            true
        });
        rows
    }

    /// How many keys are live when the clock says `now`.
    pub(super) fn live(&self, now: u64) -> u64 {
        self.totals.live() - self.totals.expired(now)
    }

    /// Bytes of keys and values, of what is deleted or expired too.
    pub(super) fn bytes(&self) -> u64 {
        self.totals.bytes()
    }
}
