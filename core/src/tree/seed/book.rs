//! [`SeedBook`]: the record of seeds of an open tree, and what of it is known in memory alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::floors::Floors;
use super::record::{SeedRecord, SeedWish, Widening};
use crate::causal::{OriginMarks, Watermark, Watermarks};
use crate::disk::Disk;
use crate::error::StorageError;
use crate::id::{Incarnation, Offset, OriginTag, PartitionId, SeedNumber};
use crate::record::Interest;

/// What a giver of a seed for more keys has to cover and does not: one place of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) origin: OriginTag,
    pub(super) partition: PartitionId,
    pub(super) owed: Offset,
    pub(super) there: Offset,
}

/// The seeds of a tree.
pub(in crate::tree) struct SeedBook {
    pub(super) disk: Arc<dyn Disk>,
    /// The tree's own directory.
    pub(super) dir: PathBuf,
    incarnation: Incarnation,
    record: RwLock<SeedRecord>,
    /// What was covered when the tree was opened with more keys than before.
    owed: Mutex<Watermarks>,
    /// What the givers that were asked lack of it, by giver, and since when that is known.
    lacks: Mutex<BTreeMap<String, Vec<(Owed, u64)>>>,
    storing: Mutex<()>,
    /// Raised with every change of the floors: who read the log before starts anew.
    epoch: AtomicU64,
    /// A seed is being joined with the state in memory.
    joining: AtomicBool,
    /// The last seed that the state in memory holds.
    joined: AtomicU64,
    /// Held by the one seed that may come in.
    pub(super) staging: Arc<tokio::sync::Mutex<()>>,
}

impl SeedBook {
    pub(in crate::tree) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        incarnation: Incarnation,
        record: SeedRecord,
    ) -> Self {
        Self {
            disk,
            dir,
            incarnation,
            joined: AtomicU64::new(record.number().get()),
            record: RwLock::new(record),
            owed: Mutex::default(),
            lacks: Mutex::default(),
            storing: Mutex::default(),
            epoch: AtomicU64::new(0),
            joining: AtomicBool::new(false),
            staging: Arc::default(),
        }
    }

    /// Of a tree that holds more keys than before and covers this: what a giver must cover, too, for what was left out of it
    /// or dropped comes from nowhere else.
    pub(in crate::tree) fn owing(self, covered: &Watermarks) -> Self {
        let owed =
            if self.record.read().widening.is_some() { covered.clone() } else { Watermarks::default() };
        Self { owed: Mutex::new(owed), ..self }
    }

    /// What a giver that covers `theirs` has to cover and does not, of each origin.
    pub(super) fn owes(&self, theirs: &Watermarks) -> Vec<Owed> {
        if self.record.read().widening.is_none() {
            return Vec::new();
        }
        let owes = |(origin, owed): (OriginTag, &OriginMarks)| {
            let theirs = theirs.origin(origin);
            owed.iter().find_map(|(partition, mark)| {
                let there = theirs.map_or(Offset::ZERO, |theirs| theirs.get(partition).next);
                (mark.next > there).then_some(Owed { origin, partition, owed: mark.next, there })
            })
        };
        self.owed.lock().iter().filter_map(owes).collect()
    }

    /// A giver lacks this now. Says whether an origin is among it of which that was not known.
    pub(super) fn lacks(&self, giver: &str, owed: &[Owed], now_ms: u64) -> bool {
        let mut lacks = self.lacks.lock();
        let before = lacks.remove(giver).unwrap_or_default();
        let since = |owed: &Owed| before.iter().find(|(known, _)| known.origin == owed.origin);
        let new = owed.iter().any(|owed| since(owed).is_none());
        if !owed.is_empty() {
            let now = owed.iter().map(|owed| (*owed, since(owed).map_or(now_ms, |(_, since)| *since)));
            lacks.insert(giver.to_owned(), now.collect());
        }
        new
    }

    /// What givers lack, by giver, and since when that is known.
    pub(super) fn lacking(&self) -> Vec<(String, Owed, u64)> {
        if self.record.read().widening.is_none() {
            return Vec::new();
        }
        let lacks = self.lacks.lock();
        let all = lacks.iter().flat_map(|(giver, owed)| owed.iter().map(move |owed| (giver, owed)));
        all.map(|(giver, (owed, since))| (giver.clone(), *owed, *since)).collect()
    }

    /// Has another seed brought if it may be that not all of an origin's writes are here that were covered when it was sealed
    /// out. Says whether one is asked for. Blocks.
    pub(super) fn let_return(&self, origin: OriginTag, covered: &Watermarks) -> Result<bool, StorageError> {
        if !self.record.read().has_forgone(origin) {
            return Ok(false);
        }
        if let Some(marks) = covered.origin(origin) {
            // In time: from the change on a giver is measured by it.
            self.owed.lock().insert(origin, marks.clone());
        }
        self.change(|record| record.let_return(origin))?;
        Ok(self.record.read().widening.is_some())
    }

    /// Changes the record; durable when it returns, or unchanged. Blocks.
    pub(super) fn change(&self, change: impl FnOnce(&mut SeedRecord)) -> Result<(), StorageError> {
        let _one = self.storing.lock();
        let before = self.record.read().clone();
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        after.store(self.disk.as_ref(), &self.dir, self.incarnation)?;
        *self.record.write() = after;
        Ok(())
    }

    /// The seed that is wanted.
    pub(in crate::tree) fn wish(&self) -> Option<SeedWish> {
        self.record.read().wish.clone()
    }

    /// Other keys are held from now on, of a tree that covers this. Durable when it returns, or unchanged. Blocks.
    pub(in crate::tree) fn hold(
        &self,
        interest: &Interest,
        covered: &Watermarks,
    ) -> Result<(), StorageError> {
        // In time: from the change on a giver is measured by it. Without the change it is of no account.
        *self.owed.lock() = covered.clone();
        self.change(|record| _ = record.hold(interest, false))?;
        self.lacks.lock().clear();
        Ok(())
    }

    /// Of the keys that are held, those of which everything is here; None: there are none.
    pub(in crate::tree) fn whole(&self) -> Option<Interest> {
        self.record.read().whole()
    }

    /// Whether keys are held that were not before, and no seed has brought them yet.
    pub(super) fn widening(&self) -> Option<Widening> {
        self.record.read().widening.clone()
    }

    /// Below this mark the log may lack records of an origin that are covered here.
    pub(in crate::tree) fn floor(&self, origin: OriginTag, partition: PartitionId) -> Watermark {
        self.record.read().floors.get(origin, partition)
    }

    /// The partitions in which what this log lost is still missing, though the log goes on above it.
    pub(in crate::tree) fn holes(&self) -> BTreeSet<PartitionId> {
        self.record.read().holes.clone()
    }

    pub(super) fn floors(&self) -> Floors {
        self.record.read().floors.clone()
    }

    /// How often what the log lacks has changed since the tree was opened.
    pub(in crate::tree) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(in crate::tree) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// The last seed that the state in memory holds.
    pub(in crate::tree) fn joined(&self) -> SeedNumber {
        SeedNumber::new(self.joined.load(Ordering::SeqCst))
    }

    /// From now on the state in memory holds the last seed. To be said before the epoch that ends readings.
    pub(super) fn has_joined(&self) {
        self.joined.store(self.record.read().number().get(), Ordering::SeqCst);
    }

    pub(super) fn set_joining(&self, joining: bool) {
        self.joining.store(joining, Ordering::SeqCst);
    }

    /// Whether the state in memory is between two histories: it is no seed for others then.
    pub(in crate::tree) fn is_joining(&self) -> bool {
        self.joining.load(Ordering::SeqCst)
    }

    /// Whether a seed is coming in.
    pub(in crate::tree) fn is_staging(&self) -> bool {
        self.staging.try_lock().is_err()
    }
}
