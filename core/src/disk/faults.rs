//! [`DiskFaults`]: what a [`FaultyDisk`](super::FaultyDisk) is to do wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::random::Random;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOperation {
    /// Opening a file, and locking one.
    Open,
    /// Reading a file, and listing a directory.
    Read,
    /// Writing and resizing: a part of what was to be written is written before a write fails.
    Write,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
}

/// The faults of one disk, to be changed while it is in use. Clones are the same faults; they may be handed to the
/// disk of a restarted process. Without an order nothing fails.
#[derive(Clone)]
pub struct DiskFaults(Arc<(Mutex<Plan>, Condvar)>);

type Meanwhile = Box<dyn FnOnce() + Send>;

struct Plan {
    random: Random,
    counts: BTreeMap<DiskOperation, u64>,
    scripted: BTreeSet<(DiskOperation, u64)>,
    meanwhile: BTreeMap<(DiskOperation, u64), Meanwhile>,
    always: BTreeSet<DiskOperation>,
    chances: BTreeMap<DiskOperation, f64>,
    full: bool,
    hung: bool,
}

impl DiskFaults {
    /// No faults yet. The seed decides those that are left to chance, and how much of a failing write is written.
    pub fn from_seed(seed: u64) -> Self {
        let plan = Plan {
            random: Random::from_seed(seed),
            counts: BTreeMap::new(),
            scripted: BTreeSet::new(),
            meanwhile: BTreeMap::new(),
            always: BTreeSet::new(),
            chances: BTreeMap::new(),
            full: false,
            hung: false,
        };
        Self(Arc::new((Mutex::new(plan), Condvar::new())))
    }

    /// The `nth` operation of a kind from now on fails once, with an input or output error; 1 is the next one.
    pub fn fail_nth(&self, operation: DiskOperation, nth: u64) {
        let mut plan = self.0.0.lock();
        let at = plan.counts.get(&operation).copied().unwrap_or(0) + nth;
        plan.scripted.insert((operation, at));
    }

    /// Something happens while the `nth` operation of a kind from now on takes its time: what others do who have the disk
    /// before it. The operation goes on afterwards. 1 is the next one.
    pub fn before_nth(&self, operation: DiskOperation, nth: u64, meanwhile: impl FnOnce() + Send + 'static) {
        let mut plan = self.0.0.lock();
        let at = plan.counts.get(&operation).copied().unwrap_or(0) + nth;
        plan.meanwhile.insert((operation, at), Box::new(meanwhile));
    }

    /// Every operation of a kind fails.
    pub fn fail_all(&self, operation: DiskOperation) {
        self.0.0.lock().always.insert(operation);
    }

    /// Operations of a kind fail with a probability from 0 to 1.
    pub fn fail_randomly(&self, operation: DiskOperation, chance: f64) {
        self.0.0.lock().chances.insert(operation, chance);
    }

    /// There is no room any more: no new files, and writes fail with `StorageFull`, those into old room included.
    pub fn fill(&self) {
        self.0.0.lock().full = true;
    }

    /// Writes and syncs block their thread. Not for a simulation, which has only one.
    pub fn hang(&self) {
        self.0.0.lock().hung = true;
    }

    /// The end of all faults; what hangs goes on.
    pub fn heal(&self) {
        let mut plan = self.0.0.lock();
        plan.scripted.clear();
        plan.meanwhile.clear();
        plan.always.clear();
        plan.chances.clear();
        plan.full = false;
        plan.hung = false;
        self.0.1.notify_all();
    }

    /// How many operations of a kind there were.
    pub fn count(&self, operation: DiskOperation) -> u64 {
        self.0.0.lock().counts.get(&operation).copied().unwrap_or(0)
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.0.lock().full
    }

    /// How much of a failing write of so many bytes is written.
    pub(super) fn part_of(&self, bytes: usize) -> usize {
        self.0.0.lock().random.below(bytes as u64) as usize
    }

    /// Counts an operation and says whether it may go on. `grows`: it needs room.
    pub(super) fn admit(&self, operation: DiskOperation, grows: bool) -> io::Result<()> {
        let (plan, released) = &*self.0;
        let mut plan = plan.lock();
        let count = plan.counts.entry(operation).or_insert(0);
        *count += 1;
        let at = (operation, *count);
        if let Some(meanwhile) = plan.meanwhile.remove(&at) {
            MutexGuard::unlocked(&mut plan, meanwhile);
        }
        while plan.hung && matches!(operation, DiskOperation::Write | DiskOperation::Sync) {
            released.wait(&mut plan);
        }
        if plan.full && grows {
            return Err(Errno::NOSPC.into());
        }
        let chance = plan.chances.get(&operation).copied().unwrap_or(0.0);
        let scripted = plan.scripted.remove(&at) || plan.always.contains(&operation);
        if scripted || chance > 0.0 && plan.random.chance(chance) {
            return Err(Errno::IO.into());
        }
        Ok(())
    }
}
