//! The suite of [`WalStorage`] on every provider, and on providers that break the contract on purpose: each fails.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use parking_lot::Mutex;

use super::rig::{PARTITIONS, cluster};
use crate::causal::OriginMarks;
use crate::disk::MemDisk;
use crate::error::StorageError;
use crate::id::{ClusterId, Incarnation, Lsn, Offset, OriginTag, PartitionId, TreeName};
use crate::limits::Limits;
use crate::record::{Group, MergeMode};
use crate::tasks::{Tasks, Threads};
use crate::wal::file::{FileStorage, Manifest};
use crate::wal::{
    Bounds, Completion, FaultyStorage, MemStorage, WalFaults, WalStorage, WalSubject, conformance,
};

const INCARNATION: Incarnation = Incarnation::new(77);

fn subject(storage: Arc<dyn WalStorage>) -> WalSubject {
    WalSubject { storage, cluster: cluster(), incarnation: INCARNATION, partitions: PARTITIONS }
}

#[tokio::test(start_paused = true)]
async fn the_log_in_memory_conforms() {
    for in_flight in [1, 2, 16] {
        conformance(async || subject(Arc::new(MemStorage::new(&cluster(), INCARNATION, in_flight)))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_with_faults_conforms_while_none_is_ordered_however_long_a_write_takes() {
    for most in [0, 30].map(Duration::from_millis) {
        conformance(async || {
            let (memory, faults) = (MemStorage::new(&cluster(), INCARNATION, 16), WalFaults::from_seed(3));
            faults.latency(Duration::ZERO, most);
            let tasks = Tasks::new(Threads::Inline);
            subject(Arc::new(FaultyStorage::new(Arc::new(memory), faults, tasks)))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_in_files_conforms() {
    for limits in [Limits::tiny(), Limits::default()] {
        conformance(async || {
            let manifest = Manifest {
                incarnation: INCARNATION,
                cluster: cluster(),
                tree: TreeName::new("t").expect("a name"),
                partitions: PARTITIONS,
                merge: MergeMode::LastWriterWins,
                origins: Default::default(),
            };
            let (disk, tasks) = (Arc::new(MemDisk::new()), Tasks::new(Threads::Inline));
            let dir = Path::new("/data/trees/t/wal");
            let opened =
                FileStorage::open(disk, dir, manifest, limits.clone(), tasks, Lsn::ZERO, &mut |_| {});
            subject(opened.expect("a new log opens").storage)
        })
        .await;
    }
}

/// One way to break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breach {
    /// Shows what was given up on.
    LandsWhatNobodyWaitsFor,
    /// Answers that it is durable, and forgets it.
    ForgetsAGroup,
    /// Keeps what landed behind a group that failed.
    RepairsNothing,
    /// Trims everything.
    TrimsTooMuch,
    /// Passes over what is uncovered.
    SkipsTheUncovered,
    /// Takes any incarnation of an origin that it knows.
    TakesAnotherIncarnation,
    /// Does not know where a trimmed partition ended.
    ForgetsTrimmedEnds,
}

struct Breaching {
    inner: MemStorage,
    breach: Option<Breach>,
    origins: Mutex<Vec<ClusterId>>,
}

#[async_trait]
impl WalStorage for Breaching {
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn append(&self, group: Arc<Group>, done: Completion) {
        match self.breach {
            Some(Breach::LandsWhatNobodyWaitsFor) => {
                self.inner.append(group, Completion::new(move |answer| done.complete(answer)))
            }
            Some(Breach::ForgetsAGroup) => done.complete(Ok(())),
            _ => self.inner.append(group, done),
        }
    }

    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        self.inner.read(from, limit).await
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.inner.bytes_after(lsn)
    }

    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn {
        match self.breach {
            Some(Breach::SkipsTheUncovered) => self.inner.bounds().next,
            _ => self.inner.first_uncovered(origin, held),
        }
    }

    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset {
        match self.breach {
            Some(Breach::ForgetsTrimmedEnds) => Offset::ZERO,
            _ => self.inner.trimmed_end(origin, partition),
        }
    }

    async fn trim(&self, before: Lsn) -> Result<(), StorageError> {
        let all = self.inner.bounds().next;
        self.inner.trim(if self.breach == Some(Breach::TrimsTooMuch) { all } else { before }).await
    }

    fn reconcile(&self, done: Completion) {
        match self.breach {
            Some(Breach::RepairsNothing) => done.complete(Ok(())),
            _ => self.inner.reconcile(done),
        }
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let known = self.origins.lock().contains(origin);
        self.origins.lock().push(origin.clone());
        if known && self.breach == Some(Breach::TakesAnotherIncarnation) {
            return Ok(());
        }
        self.inner.enroll(origin, incarnation).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_breaks_the_contract_does_not_conform() {
    let breaches = [
        Breach::LandsWhatNobodyWaitsFor,
        Breach::ForgetsAGroup,
        Breach::RepairsNothing,
        Breach::TrimsTooMuch,
        Breach::SkipsTheUncovered,
        Breach::TakesAnotherIncarnation,
        Breach::ForgetsTrimmedEnds,
    ];
    let checked = |breach| {
        conformance(async move || {
            let inner = MemStorage::new(&cluster(), INCARNATION, 4);
            subject(Arc::new(Breaching { inner, breach, origins: Mutex::default() }))
        })
    };
    // What breaks nothing passes: it is the breach that fails.
    checked(None).await;
    for breach in breaches {
        assert!(AssertUnwindSafe(checked(Some(breach))).catch_unwind().await.is_err(), "{breach:?} passes");
    }
}
