//! [`MemStorage`]: a log in memory, for tests and simulation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::completion::Completion;
use super::storage::{Bounds, WalStorage};
use crate::causal::OriginMarks;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, GroupSequence, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::record::Group;

#[derive(Default)]
struct Held {
    /// What can be read.
    groups: VecDeque<Arc<Group>>,
    /// What has landed behind a group that has not.
    beyond: BTreeMap<GroupSequence, Arc<Group>>,
    next_group: GroupSequence,
    first: Lsn,
    next: Lsn,
    origins: BTreeMap<OriginTag, (ClusterId, Incarnation)>,
    trimmed_ends: BTreeMap<(OriginTag, PartitionId), Offset>,
    trimmed: (u64, u64),
}

/// A log in memory. Clones are the same log, so that it can outlive a crash in a simulation.
#[derive(Clone)]
pub struct MemStorage {
    in_flight: usize,
    held: Arc<Mutex<Held>>,
}

impl std::fmt::Debug for MemStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemStorage").field("bounds", &self.bounds()).finish_non_exhaustive()
    }
}

impl MemStorage {
    /// An empty log of a cluster, with so many groups in flight at once.
    pub fn new(own: &ClusterId, incarnation: Incarnation, in_flight: usize) -> Self {
        let mut held = Held::default();
        held.origins.insert(own.tag(), (own.clone(), incarnation));
        Self { in_flight, held: Arc::new(Mutex::new(held)) }
    }

    /// Every group that can be read.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.held.lock().groups.iter().cloned().collect()
    }

    fn take(&self, group: Arc<Group>, done: &Completion) -> Result<(), StorageError> {
        let sequence = group.sequence();
        let mut held = self.held.lock();
        let window = held.next_group..held.next_group.advanced(self.in_flight as u64);
        if !window.contains(&sequence) || held.beyond.contains_key(&sequence) {
            let said = format!("group {sequence} came where {} belongs", held.next_group);
            return Err(StorageError::new(StorageErrorKind::Io, said));
        }
        let known = |origin| held.origins.contains_key(&origin);
        if let Some(stranger) = group.blocks().iter().find(|framed| !known(framed.block.origin())) {
            let said = format!("origin {} was never enrolled", stranger.block.origin());
            return Err(StorageError::new(StorageErrorKind::Unsupported, said));
        }
        if !done.land() {
            return Err(given_up());
        }
        held.beyond.insert(sequence, group);
        held.settle();
        Ok(())
    }
}

impl Held {
    /// Makes readable what has no hole before it any more.
    fn settle(&mut self) {
        while let Some(group) = self.beyond.remove(&self.next_group) {
            assert!(group.first_lsn() >= self.next, "positions only grow");
            self.next_group = self.next_group.next();
            self.next = group.next_lsn();
            self.groups.push_back(group);
        }
    }

    fn forget(&mut self, group: &Group) {
        self.first = group.next_lsn();
        self.trimmed.0 += group.records();
        self.trimmed.1 += group.stored_bytes();
        for block in group.blocks().iter().map(|framed| &framed.block) {
            for run in block.runs() {
                let end = self.trimmed_ends.entry((block.origin(), run.partition)).or_default();
                *end = run.end().max(*end);
            }
        }
    }
}

fn given_up() -> StorageError {
    StorageError::new(StorageErrorKind::Deadline, "nobody waits for this any more")
}

#[async_trait]
impl WalStorage for MemStorage {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn append(&self, group: Arc<Group>, done: Completion) {
        let taken = self.take(group, &done);
        done.complete(taken);
    }

    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        let held = self.held.lock();
        if from < held.first {
            let said = format!("the log begins at {}, and {from} was asked for", held.first);
            return Err(StorageError::new(StorageErrorKind::Trimmed, said));
        }
        let start = held.groups.partition_point(|group| group.next_lsn() <= from);
        let mut bytes = 0;
        let groups = held.groups.range(start..).take_while(|group| {
            let first = bytes == 0;
            bytes += group.stored_bytes();
            first || bytes <= limit as u64
        });
        Ok(groups.cloned().collect())
    }

    fn bounds(&self) -> Bounds {
        let held = self.held.lock();
        let retained_bytes = held.groups.iter().map(|group| group.stored_bytes()).sum();
        Bounds {
            first: held.first,
            next: held.next,
            records: held.groups.iter().map(|group| group.records()).sum(),
            retained_bytes,
            physical_bytes: retained_bytes,
            trimmed_records: held.trimmed.0,
            trimmed_bytes: held.trimmed.1,
        }
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        let held = self.held.lock();
        let after = held.groups.iter().rev().take_while(|group| group.next_lsn() > lsn);
        after.map(|group| group.stored_bytes()).sum()
    }

    fn first_uncovered(&self, origin: OriginTag, marks: Option<&OriginMarks>) -> Lsn {
        let held = self.held.lock();
        let covered = |partition| marks.map_or(Offset::ZERO, |marks| marks.get(partition).next);
        let uncovered = held.groups.iter().find(|group| {
            let blocks = group.blocks().iter().map(|framed| &framed.block);
            let mut runs = blocks.filter(|block| block.origin() == origin).flat_map(|block| block.runs());
            runs.any(|run| run.end() > covered(run.partition))
        });
        uncovered.map_or(held.next, |group| group.first_lsn())
    }

    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset {
        self.held.lock().trimmed_ends.get(&(origin, partition)).copied().unwrap_or_default()
    }

    async fn trim(&self, before: Lsn) -> Result<(), StorageError> {
        let mut held = self.held.lock();
        while held.groups.front().is_some_and(|group| group.next_lsn() <= before) {
            if let Some(group) = held.groups.pop_front() {
                held.forget(&group);
            }
        }
        Ok(())
    }

    fn reconcile(&self, done: Completion) {
        let mut held = self.held.lock();
        let wanted = done.land();
        if wanted {
            held.beyond.clear();
        }
        drop(held);
        done.complete(if wanted { Ok(()) } else { Err(given_up()) });
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let mut held = self.held.lock();
        let known = held.origins.entry(origin.tag()).or_insert_with(|| (origin.clone(), incarnation));
        if *known != (origin.clone(), incarnation) {
            let said =
                format!("{origin} with incarnation {incarnation} comes after {} with {}", known.0, known.1);
            return Err(StorageError::new(StorageErrorKind::Unsupported, said));
        }
        Ok(())
    }
}
