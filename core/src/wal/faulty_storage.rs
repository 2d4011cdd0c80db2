//! [`FaultyStorage`]: any log provider, with faults.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::completion::Completion;
use super::faults::{Hanging, WalCall, WalFault, WalFaults};
use super::filter::Filter;
use super::selection::Selection;
use super::storage::{Bounds, WalStorage};
use crate::causal::OriginMarks;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::record::Group;
use crate::tasks::Tasks;

/// A log provider that does what another one does, but for the faults that were ordered.
pub struct FaultyStorage {
    inner: Arc<dyn WalStorage>,
    faults: WalFaults,
    tasks: Tasks,
}

impl FaultyStorage {
    /// Faults over a provider; what comes late comes in tasks of its own.
    pub fn new(inner: Arc<dyn WalStorage>, faults: WalFaults, tasks: Tasks) -> Self {
        Self { inner, faults, tasks }
    }

    /// Lets go on what hangs: late, and in the order in which it was asked for.
    pub fn release(&self) {
        for call in self.faults.release() {
            match call {
                Hanging::Append(group, done) => self.inner.append(group, done),
                Hanging::Reconcile(done) => self.inner.reconcile(done),
            }
        }
    }

    async fn admit(&self, call: WalCall) -> Result<(), StorageError> {
        match self.faults.next(call) {
            None => {}
            Some(WalFault::Fail(kind)) => return Err(on_order(kind)),
            Some(WalFault::Hang | WalFault::Block) => self.faults.wait().await,
            Some(WalFault::Late(delay) | WalFault::AnswerLate(delay)) => tokio::time::sleep(delay).await,
            Some(WalFault::Panic) => panicked(),
        }
        Ok(())
    }
}

/// A provider with a bug.
#[expect(clippy::panic, reason = "on order, to show what becomes of those who wait")]
fn panicked() -> ! {
    panic!("panicked on order")
}

/// What answers `done` so much later than it is answered itself.
fn answered_late(done: Completion, delay: Duration, tasks: Tasks) -> Completion {
    Completion::with_fate(done.fate().clone(), move |answer| {
        tasks.spawn("late answer", async move {
            tokio::time::sleep(delay).await;
            done.complete(answer);
        });
    })
}

fn on_order(kind: StorageErrorKind) -> StorageError {
    StorageError::new(kind, "failed on order")
}

#[async_trait]
impl WalStorage for FaultyStorage {
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn append(&self, group: Arc<Group>, done: Completion) {
        let delay = self.faults.delay();
        let (fault, delay) = match self.faults.next(WalCall::Append) {
            Some(WalFault::Late(late)) => (None, delay + late),
            fault => (fault, delay),
        };
        match fault {
            Some(WalFault::Hang) => return self.faults.hang(Hanging::Append(group, done)),
            Some(WalFault::Block) => self.faults.block(),
            Some(WalFault::Panic) => panicked(),
            _ => {}
        }
        let (inner, tasks) = (self.inner.clone(), self.tasks.clone());
        let go_on = move || match fault {
            Some(WalFault::Fail(kind)) => done.complete(Err(on_order(kind))),
            Some(WalFault::AnswerLate(delay)) => inner.append(group, answered_late(done, delay, tasks)),
            _ => inner.append(group, done),
        };
        if delay.is_zero() {
            return go_on();
        }
        self.tasks.spawn("late append", async move {
            tokio::time::sleep(delay).await;
            go_on();
        });
    }

    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        self.admit(WalCall::Read).await?;
        self.inner.read(from, limit).await
    }

    async fn read_filtered(
        &self,
        range: (Lsn, Lsn),
        filter: &Filter,
        limit: usize,
    ) -> Result<Selection, StorageError> {
        self.admit(WalCall::Read).await?;
        self.inner.read_filtered(range, filter, limit).await
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.inner.bytes_after(lsn)
    }

    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn {
        self.inner.first_uncovered(origin, held)
    }

    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset {
        self.inner.trimmed_end(origin, partition)
    }

    async fn trim(&self, before: Lsn) -> Result<(), StorageError> {
        self.admit(WalCall::Trim).await?;
        self.inner.trim(before).await
    }

    fn reconcile(&self, done: Completion) {
        match self.faults.next(WalCall::Reconcile) {
            None => self.inner.reconcile(done),
            Some(WalFault::Fail(kind)) => done.complete(Err(on_order(kind))),
            Some(WalFault::Hang) => self.faults.hang(Hanging::Reconcile(done)),
            Some(WalFault::Block) => {
                self.faults.block();
                self.inner.reconcile(done);
            }
            Some(WalFault::Late(delay) | WalFault::AnswerLate(delay)) => {
                let inner = self.inner.clone();
                self.tasks.spawn("late reconcile", async move {
                    tokio::time::sleep(delay).await;
                    inner.reconcile(done);
                });
            }
            Some(WalFault::Panic) => panicked(),
        }
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        self.admit(WalCall::Enroll).await?;
        self.inner.enroll(origin, incarnation).await
    }
}
