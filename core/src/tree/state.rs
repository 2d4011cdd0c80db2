//! [`State`]: what the log says now. Changed by applying groups, in log order, and by nothing else.
//!
//! One lock covers it: a group appears at once, so a reader never sees a later write of an origin without the earlier
//! ones, nor half of a batch, whatever partitions they are in.

use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashTable;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::entry::{Entry, Row, Value};
use super::index::KeyIndex;
use super::target::Progress;
use crate::id::{Hlc, Lsn, OriginTag, Version};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FramedBlock, Group, Kind, RecordView};

/// What applying a group did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupOutcome {
    /// Concurrent writes of one key, of which one lost.
    pub(super) conflicts: u64,
}

/// Keys, values, and how far every origin is applied.
#[derive(Debug)]
pub(super) struct State {
    origin: OriginTag,
    partitions: u16,
    table: HashTable<u32>,
    entries: Vec<Entry>,
    index: Mutex<KeyIndex>,
    live: u64,
    bytes: u64,
    /// The end of the applied log.
    pub(super) next_lsn: Lsn,
    pub(super) progress: Progress,
}

impl State {
    pub(super) fn new(origin: OriginTag, partitions: u16) -> Self {
        Self {
            origin,
            partitions,
            table: HashTable::new(),
            entries: Vec::new(),
            index: Mutex::default(),
            live: 0,
            bytes: 0,
            next_lsn: Lsn::ZERO,
            progress: Progress::default(),
        }
    }

    /// Applies a group whole. `incarnation_of` knows the incarnation of every origin in the log.
    pub(super) fn apply(
        &mut self,
        group: &Group,
        incarnation_of: impl Fn(OriginTag) -> crate::id::Incarnation,
    ) -> GroupOutcome {
        let mut outcome = GroupOutcome::default();
        for framed in group.blocks() {
            let last = self.apply_block(framed, &mut outcome);
            let origin = framed.block.origin();
            let marks = self.progress.watermarks.origin_mut(origin, incarnation_of(origin), self.partitions);
            for run in framed.block.runs() {
                marks.advance(run.partition, run.end(), last[run.partition.index()]);
            }
            self.progress.frontier.raise(origin, framed.frame.closed);
        }
        self.next_lsn = group.next_lsn();
        outcome
    }

    /// Applies the records of a block; returns the HLC of the last one of each partition.
    fn apply_block(
        &mut self,
        framed: &FramedBlock,
        outcome: &mut GroupOutcome,
    ) -> [Hlc; MAX_PARTITIONS as usize] {
        let mut last = [Hlc::ZERO; MAX_PARTITIONS as usize];
        let origin = framed.block.origin();
        let deps = (origin != self.origin).then(|| framed.block.deps());
        let mut lsn = framed.frame.first_lsn;
        for record in framed.block.records().skip(usize::from(framed.frame.skip)) {
            let Ok(record) = record else {
                // Blocks are checked record by record before they are appended, and by checksum when they are read.
                tracing::error!(%lsn, "a record of the log cannot be read");
                return last;
            };
            let version = Version { hlc: record.hlc, origin };
            let seen = |other: Version| match &deps {
                None => true,
                Some(deps) => other.origin == origin || deps.get(other.origin) >= other.hlc,
            };
            self.apply_record(&record, version, lsn, seen, outcome);
            if let Some(last) = last.get_mut(record.partition.index()) {
                *last = record.hlc;
            }
            lsn = lsn.next();
        }
        last
    }

    /// Last writer wins. `seen` says whether the writer may have seen a version that is here.
    fn apply_record(
        &mut self,
        record: &RecordView<'_>,
        version: Version,
        lsn: Lsn,
        seen: impl Fn(Version) -> bool,
        outcome: &mut GroupOutcome,
    ) {
        let value = match record.kind {
            Kind::Set => Some(record.value),
            Kind::Delete => None,
            Kind::DeleteRange | Kind::Mark => return,
        };
        let hash = xxh3_64(record.key);
        let entries = &mut self.entries;
        if let Some(slot) = self.table.find(hash, |slot| entries[*slot as usize].key() == record.key) {
            let entry = &mut entries[*slot as usize];
            if !seen(entry.version) {
                outcome.conflicts += 1;
            }
            if entry.version >= version {
                return;
            }
            let fresh = Entry::new(record.key, value, version, lsn);
            self.bytes = self.bytes + fresh.bytes() as u64 - entry.bytes() as u64;
            self.live = self.live + u64::from(fresh.value().is_some()) - u64::from(entry.value().is_some());
            *entry = fresh;
            return;
        }
        let slot = u32::try_from(entries.len()).expect("fewer than 2^32 keys fit the memory of a tree");
        let fresh = Entry::new(record.key, value, version, lsn);
        self.bytes += fresh.bytes() as u64;
        self.live += u64::from(fresh.value().is_some());
        entries.push(fresh);
        self.table.insert_unique(hash, slot, |slot| xxh3_64(entries[*slot as usize].key()));
        self.index.get_mut().push(slot);
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let slot = self.table.find(xxh3_64(key), |slot| self.entries[*slot as usize].key() == key)?;
        Some(&self.entries[*slot as usize])
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Value> {
        let entry = self.find(key)?;
        entry.value().map(|value| Value { value: value.to_vec().into(), version: entry.version })
    }

    /// Whether a write is, or was when it was applied, the winner of its key.
    pub(super) fn was_effective(&self, key: &[u8], version: Version, lsn: Lsn) -> bool {
        self.find(key).is_none_or(|entry| entry.version <= version || entry.lsn > lsn)
    }

    /// Keys of a range, after one of them, that are deleted since the position of the delete, at most `limit`.
    pub(super) fn removed(
        &self,
        range: Range<&[u8]>,
        by: Lsn,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let mut index = self.index.lock();
        let key = |slot: u32| self.entries[slot as usize].key();
        index.settle(key);
        let before = |key: &[u8]| key < range.start || after.is_some_and(|after| key <= after);
        index.walk(key, before, |slot| {
            let entry = &self.entries[slot as usize];
            if entry.key() >= range.end || keys.len() >= limit {
                return false;
            }
            if entry.lsn == by && entry.value().is_none() {
                keys.push(Bytes::copy_from_slice(entry.key()));
            }
            true
        });
        keys
    }

    /// Live rows in key order: with the prefix, after a key, at most `limit`.
    pub(super) fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut index = self.index.lock();
        let key = |slot: u32| self.entries[slot as usize].key();
        index.settle(key);
        let before = |key: &[u8]| key < prefix || after.is_some_and(|after| key <= after);
        index.walk(key, before, |slot| {
            let entry = &self.entries[slot as usize];
            if !entry.key().starts_with(prefix) || rows.len() >= limit {
                return false;
            }
            if let Some(value) = entry.value() {
                rows.push(Row {
                    key: entry.key().to_vec().into(),
                    value: value.to_vec().into(),
                    version: entry.version,
                });
            }
            true
        });
        rows
    }

    /// How many keys are live.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of keys and values, tombstones included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A digest of live keys, values and versions, whatever order they came in: the sum of one 128-bit xxh3 each.
    pub(super) fn digest(&self) -> u128 {
        let live = self.entries.iter().filter_map(|entry| Some((entry, entry.value()?)));
        live.fold(0_u128, |sum, (entry, value)| {
            let mut hasher = Xxh3::new();
            hasher.update(&(entry.key().len() as u64).to_le_bytes());
            hasher.update(entry.key());
            hasher.update(&entry.version.hlc.get().to_le_bytes());
            hasher.update(&entry.version.origin.get().to_le_bytes());
            // No deadline; a later format puts it here.
            hasher.update(&0_u64.to_le_bytes());
            hasher.update(value);
            sum.wrapping_add(hasher.digest128())
        })
    }
}
