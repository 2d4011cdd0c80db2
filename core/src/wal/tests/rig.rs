//! [`Rig`]: a writer over a log in memory with faults.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::clock::{CeilingStore, HybridClock, WallClock};
use crate::error::{Error, MetaError};
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, TreeName};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::record::{Group, Mutation};
use crate::tasks::{Tasks, Threads};
use crate::wal::{
    CommitRunner, DurableGroups, FaultyStorage, LogState, MemStorage, WalFaults, WalMetrics, WalStorage,
    Writer, WriterConfig, WriterStart,
};

pub(super) const PARTITIONS: u16 = 4;

/// What was applied, in order, and on which threads; and whether somebody follows.
#[derive(Default)]
pub(super) struct Applied(
    pub(super) Mutex<Vec<Arc<Group>>>,
    pub(super) Mutex<Vec<ThreadId>>,
    pub(super) AtomicBool,
);

impl DurableGroups for Applied {
    fn apply(&self, group: &Arc<Group>) {
        self.0.lock().push(group.clone());
        self.1.lock().push(std::thread::current().id());
    }

    fn is_followed(&self) -> bool {
        self.2.load(Ordering::Relaxed)
    }
}

struct Fixed;

impl WallClock for Fixed {
    fn now_millis(&self) -> u64 {
        1_000
    }
}

#[async_trait]
impl CeilingStore for Fixed {
    async fn load(&self) -> Result<Hlc, MetaError> {
        Ok(Hlc::ZERO)
    }

    async fn store(&self, _ceiling: Hlc) -> Result<(), MetaError> {
        Ok(())
    }
}

pub(super) fn cluster() -> ClusterId {
    ClusterId::new("here").expect("a name")
}

/// A writer over any provider, watched; and how often the watch was at work.
pub(super) async fn writer_over(
    storage: Arc<dyn WalStorage>,
    limits: Limits,
    runner: CommitRunner,
    tasks: &Tasks,
    metrics: &Metrics,
) -> (Writer, Arc<Applied>, Arc<AtomicU64>) {
    let applied = Arc::new(Applied::default());
    let clock = HybridClock::open(Arc::new(Fixed), Arc::new(Fixed), Duration::from_secs(30));
    let config = WriterConfig {
        tree: TreeName::new("t").expect("a name"),
        origin: cluster().tag(),
        incarnation: Incarnation::new(77),
        partitions: PARTITIONS,
        limits,
        clock: Arc::new(clock.await.expect("the clock opens")),
        storage,
        runner,
        groups: applied.clone(),
        metrics: WalMetrics::new(metrics),
    };
    let writer = Writer::new(config, WriterStart::default());
    let (watched, polls) = (writer.clone(), Arc::new(AtomicU64::new(0)));
    let counted = polls.clone();
    tasks.spawn("deadlines", async move {
        let watch = watched.watch_deadlines();
        tokio::pin!(watch);
        std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            watch.as_mut().poll(context)
        })
        .await;
    });
    (writer, applied, polls)
}

pub(super) struct Rig {
    pub(super) memory: MemStorage,
    pub(super) faults: WalFaults,
    pub(super) storage: Arc<FaultyStorage>,
    pub(super) writer: Writer,
    applied: Arc<Applied>,
    polls: Arc<AtomicU64>,
    pub(super) tasks: Tasks,
    metrics: Metrics,
}

impl Rig {
    /// With so many groups in flight, and up to `pause` of virtual time before a committer is at work.
    pub(super) async fn new(limits: Limits, in_flight: usize, pause: Duration, seed: u64) -> Self {
        let (tasks, metrics) = (Tasks::new(Threads::Inline), Metrics::default());
        let memory = MemStorage::new(&cluster(), Incarnation::new(77), in_flight);
        let faults = WalFaults::from_seed(seed);
        let storage = FaultyStorage::new(Arc::new(memory.clone()), faults.clone(), tasks.clone());
        let storage = Arc::new(storage);
        let runner = CommitRunner::simulated(tasks.clone(), pause, Random::from_seed(seed));
        let (writer, applied, polls) = writer_over(storage.clone(), limits, runner, &tasks, &metrics).await;
        Self { memory, faults, storage, writer, applied, polls, tasks, metrics }
    }

    /// One group at a time.
    pub(super) async fn single(limits: Limits) -> Self {
        Self::new(limits, 1, Duration::from_millis(1), 1).await
    }

    pub(super) async fn put(&self, key: impl Into<bytes::Bytes>) -> Result<Hlc, Error> {
        self.writer.append(&[Mutation::set(key, "v")]).await
    }

    /// Positions of what was applied.
    pub(super) fn applied(&self) -> Vec<Lsn> {
        self.applied.0.lock().iter().map(|group| group.first_lsn()).collect()
    }

    /// What was applied is what can be read, in the same order.
    pub(super) fn applied_is_what_is_readable(&self) {
        assert_eq!(*self.applied.0.lock(), self.memory.groups());
    }

    /// The keys that can be read, in the order of the log.
    pub(super) fn readable_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for group in self.memory.groups() {
            for framed in group.blocks() {
                let records = framed.block.records().map(|record| record.expect("a record").key.to_vec());
                keys.extend(records.map(|key| String::from_utf8(key).expect("a text")));
            }
        }
        keys
    }

    pub(super) fn works(&self) -> bool {
        matches!(self.writer.log_state(), LogState::Working)
    }

    /// How often the watch was at work.
    pub(super) fn watch_polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The value of a series of this log.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no series {name} in {text}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    }
}
