//! [`CommitRunner`]: where committing happens. A thread that may block in production, a task in simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::random::Random;
use crate::tasks::{Tasks, Threads};

/// Something with groups to commit.
pub(super) trait CommitJob: Send + Sync + 'static {
    /// Commits one after the other until nothing is pending. May block the thread.
    fn drive(&self, linger: bool);
}

/// Runs committers. Idle trees have none.
///
/// A caller may commit in its own thread, but never so many at once that no thread of the runtime would be left: a disk
/// that hangs must not stop the timers that give up on it.
#[derive(Clone, Debug)]
pub struct CommitRunner {
    tasks: Tasks,
    /// In simulation: how long a write takes at most.
    latency: Duration,
    random: Random,
    /// How many threads of callers may be lent at once, and how many are.
    lendable: usize,
    lent: Arc<AtomicUsize>,
}

/// A caller's thread, while it commits.
pub(super) struct Lent(Arc<AtomicUsize>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl CommitRunner {
    /// A runner on the threads of `tasks`. Call it within the runtime that the writers run on.
    pub fn new(tasks: Tasks) -> Self {
        let workers = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers());
        let lendable = workers.saturating_sub(1);
        Self { lendable, ..Self::simulated(tasks, Duration::ZERO, Random::from_seed(0)) }
    }

    /// A runner for simulation, in which a write takes up to `latency` of virtual time.
    pub fn simulated(tasks: Tasks, latency: Duration, random: Random) -> Self {
        Self { tasks, latency, random, lendable: 0, lent: Arc::default() }
    }

    /// The caller's thread, if it is wanted and may be used.
    pub(super) fn lend_thread(&self, wanted: bool) -> Option<Lent> {
        if !wanted || self.tasks.threads() == Threads::Inline {
            return None;
        }
        let lent = Lent(self.lent.clone());
        let others = self.lent.fetch_add(1, Ordering::AcqRel);
        (others < self.lendable).then_some(lent)
    }

    /// Runs a job soon.
    pub(super) fn submit(&self, job: Arc<dyn CommitJob>) {
        match self.tasks.threads() {
            Threads::Spawn => {
                let tasks = self.tasks.clone();
                self.tasks.spawn("commit", async move {
                    if let Err(error) = tasks.blocking(move || job.drive(true)).await {
                        tracing::error!(%error, "a committer ended");
                    }
                });
            }
            Threads::Inline => {
                let latency = self.latency.mul_f64(self.random.below(1_000) as f64 / 1_000.0);
                self.tasks.spawn("commit", async move {
                    tokio::time::sleep(latency).await;
                    job.drive(false);
                });
            }
        }
    }
}
