//! [`Threaded`]: a writer over a log in memory whose committers have threads. Virtual time stands still while they are at
//! work: it moves when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::rig::{Applied, cluster, writer_over};
use crate::id::Incarnation;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::record::Mutation;
use crate::tasks::{Tasks, Threads};
use crate::wal::{CommitRunner, FaultyStorage, MemStorage, WalCall, WalFault, WalFaults, Writer};

pub(super) const LINGER: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "virtual time stands still, and threads are at work")]
fn moment() {
    std::thread::sleep(Duration::from_millis(1));
}

/// A writer whose committers have threads of their own.
pub(super) struct Threaded {
    pub(super) writer: Writer,
    pub(super) applied: Arc<Applied>,
    pub(super) storage: Arc<FaultyStorage>,
    pub(super) faults: WalFaults,
    watched: Arc<AtomicU64>,
    pub(super) tasks: Tasks,
    pub(super) runner: CommitRunner,
}

impl Threaded {
    pub(super) async fn new() -> Self {
        Self::lending(0).await
    }

    /// That may use so many threads of those who write, at once.
    pub(super) async fn lending(threads: usize) -> Self {
        Self::with(Limits { linger: LINGER, ..Limits::default() }, threads).await
    }

    pub(super) async fn with(limits: Limits, threads: usize) -> Self {
        let (tasks, faults) = (Tasks::new(Threads::Spawn), WalFaults::from_seed(1));
        let memory = Arc::new(MemStorage::new(&cluster(), Incarnation::new(77), 1));
        let storage = Arc::new(FaultyStorage::new(memory, faults.clone(), tasks.clone()));
        let (runner, metrics) = (CommitRunner::new(tasks.clone()).lending(threads), Metrics::default());
        let (writer, applied, watched) =
            writer_over(storage.clone(), limits, runner.clone(), &tasks, &metrics).await;
        Self { writer, applied, storage, faults, watched, tasks, runner }
    }

    pub(super) fn put(&self, key: &'static str, records: usize) {
        let writer = self.writer.clone();
        self.tasks.spawn("a writer", async move {
            let batch: Vec<_> = (0..records).map(|at| Mutation::set(format!("{key}{at}"), "v")).collect();
            writer.append(&batch).await.expect("a sound log takes writes");
        });
    }

    /// How often the watch was at work: it is while a committer is.
    pub(super) fn watched(&self) -> u64 {
        self.watched.load(Ordering::Relaxed)
    }

    /// Records of each group that was applied.
    pub(super) fn groups(&self) -> Vec<u64> {
        self.applied.0.lock().iter().map(|group| group.records()).collect()
    }

    /// Lets tasks and threads go on for a moment of real time, or until something holds.
    pub(super) async fn until(&self, most: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..most.as_millis() {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            if holds(self) {
                return true;
            }
            moment();
        }
        false
    }

    pub(super) async fn comes_to(&self, groups: &[u64]) {
        let came = self.until(Duration::from_secs(10), |this| this.groups() == groups).await;
        assert!(came, "{:?} and not {groups:?}", self.groups());
    }

    pub(super) async fn stays_at(&self, groups: &[u64]) {
        let moved = self.until(Duration::from_millis(40), |this| this.groups() != groups).await;
        assert!(!moved, "{:?} and not {groups:?}", self.groups());
    }

    /// One write is on its way while two more come: three write.
    pub(super) async fn with_three_writers(self) -> Self {
        let log = self;
        log.faults.order(WalCall::Append, 1, WalFault::Hang);
        log.put("a", 1);
        let hangs = log.until(Duration::from_secs(10), |this| this.faults.hanging() == 1).await;
        assert!(hangs, "a committer came");
        log.put("b", 1);
        log.put("c", 1);
        let pending = log.until(Duration::from_secs(10), |this| this.writer.pending_bytes() > 0).await;
        assert!(pending && log.groups().is_empty());
        log.until(Duration::from_millis(5), |_| false).await;
        log.storage.release();
        log
    }

    pub(super) async fn ends(self) {
        let drained = self.writer.drain(Duration::from_secs(3_600));
        let (drained, rests) = (tokio::task::unconstrained(drained), Duration::from_secs(10));
        tokio::pin!(drained);
        let mut done = false;
        for _ in 0..rests.as_millis() {
            done = futures::poll!(drained.as_mut()).is_ready();
            if done {
                break;
            }
            moment();
        }
        assert!(done, "whoever waits for company with nothing to commit waits for ever");
        assert!(self.tasks.panics().is_empty());
        self.tasks.abort_and_join().await;
    }
}
