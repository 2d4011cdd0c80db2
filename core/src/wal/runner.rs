//! [`CommitRunner`]: where committing happens. A thread that may block in production, a task in simulation.

use std::sync::Arc;
use std::time::Duration;

use crate::random::Random;
use crate::tasks::{Tasks, Threads};

/// Something with groups to commit.
pub(super) trait CommitJob: Send + Sync + 'static {
    /// Commits one after the other until nothing is pending. May block the thread.
    fn drive(&self, linger: bool);
}

/// Runs committers. Idle trees have none.
#[derive(Clone, Debug)]
pub struct CommitRunner {
    tasks: Tasks,
    /// In simulation: how long a write takes at most.
    latency: Duration,
    random: Random,
}

impl CommitRunner {
    /// A runner on the threads of `tasks`.
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, latency: Duration::ZERO, random: Random::from_seed(0) }
    }

    /// A runner for simulation, in which a write takes up to `latency` of virtual time.
    pub fn simulated(tasks: Tasks, latency: Duration, random: Random) -> Self {
        Self { tasks, latency, random }
    }

    /// Whether a caller may commit in its own thread.
    pub(super) fn lends_thread(&self) -> bool {
        self.tasks.threads() == Threads::Spawn
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
