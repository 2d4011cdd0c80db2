//! [`SinkRunner`]: one sink of a tree from its lease to its checkpoint, whatever happens to it.
//!
//! It takes the lease, starts where the stored position is, lets a pump drive the sink, stores what the sink answers as
//! durable once a second, and at the end gives the lease back. The position is the one that the log's registry of
//! consumers holds, written only while the lease is held: there is no second one that could differ. Beside it stands the
//! last seed of which the sink has delivered what the log does not hold, and never before the position behind that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::backoff::{Backoff, BackoffSettings};
use super::board::{Board, Phase};
use super::contract::Sink;
use super::dead_letters::DeadLetters;
use super::fill::Fill;
use super::lease::{Lease, Leases};
use super::metrics::SinkMetrics;
use super::news::News;
use super::pump::{Pump, PumpLog, PumpSettings};
use super::sink_handle::SinkHandle;
use crate::clock::WallClock;
use crate::cursors::{Registry, consumer_of};
use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{Lsn, SeedNumber, SinkName, TreeName};
use crate::random::Random;
use crate::tasks::Tasks;
use crate::tree::Start;

/// How a runner goes about its work.
#[derive(Clone, Debug)]
pub struct SinkSettings {
    /// Of the pump. Waits between failed runs grow from 1 s to 60 s; the sink is left alone until there is something.
    pub pump: PumpSettings,
    /// How often the position is stored. Default 1 s.
    pub checkpoint_every: Duration,
    /// A destination that owes an answer for this long is stalled. Default 30 s.
    pub stall_after: Duration,
    /// Where a sink starts that has never run. Default: with the oldest change that is retained.
    pub start: Start,
}

impl Default for SinkSettings {
    fn default() -> Self {
        let waits = BackoffSettings {
            first: Duration::from_secs(1),
            most: Duration::from_secs(60),
            ..BackoffSettings::default()
        };
        Self {
            pump: PumpSettings {
                backoff: waits,
                dormant: true,
                idle_most: Duration::from_secs(30),
                ..PumpSettings::default()
            },
            checkpoint_every: Duration::from_secs(1),
            stall_after: Duration::from_secs(30),
            start: Start::Beginning,
        }
    }
}

/// Everything that a sink needs to be run.
pub struct SinkRunner {
    /// The tree.
    pub tree: TreeName,
    /// The sink's name.
    pub name: SinkName,
    /// What is read.
    pub log: Arc<dyn PumpLog>,
    /// Where the position is kept.
    pub cursors: Arc<Registry>,
    /// Who may run it.
    pub leases: Leases,
    /// What it does not take.
    pub letters: Arc<DeadLetters>,
    /// How.
    pub settings: SinkSettings,
    /// The cluster's wall clock.
    pub wall: Arc<dyn WallClock>,
    /// The seeded generator of this sink.
    pub random: Random,
    /// Where to count.
    pub metrics: SinkMetrics,
}

struct Running {
    runner: SinkRunner,
    tasks: Tasks,
    board: Arc<Board>,
    backoff: Backoff,
}

/// However the task ends, whoever waits for its end learns it.
struct Ended(Arc<Board>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.enter(Phase::Stopped, None);
    }
}

impl SinkRunner {
    /// Starts to run a sink, unless it is paused, until the handle or the tasks stop it.
    pub fn spawn(self, tasks: &Tasks, mut sink: Box<dyn Sink>, paused: bool) -> SinkHandle {
        let board = Arc::new(Board::new(&self, sink.kind(), paused));
        let handle = SinkHandle::new(board.clone());
        let name = format!("sink {} of {}", self.name, self.tree);
        let backoff = Backoff::new(self.settings.pump.backoff.clone());
        let mut running = Running { runner: self, tasks: tasks.clone(), board: board.clone(), backoff };
        tasks.spawn(name, async move {
            let _ended = Ended(board);
            running.work(sink.as_mut()).await;
        });
        handle
    }
}

impl Running {
    async fn work(&mut self, sink: &mut dyn Sink) {
        let stop = self.tasks.stop_token();
        loop {
            if self.board.wants_stop() || stop.is_cancelled() {
                return;
            }
            if self.board.wants_pause() {
                self.board.enter(Phase::Paused, Some("paused; it keeps its hold on the log".to_owned()));
                tokio::select! { biased;
                    () = stop.cancelled() => return,
                    () = self.board.wake.notified() => continue,
                }
            }
            let waiting = self.board.clone();
            let begun = tokio::select! { biased;
                () = stop.cancelled() => return,
                () = waiting.wake.notified() => continue,
                begun = self.begin() => begun,
            };
            let reason = match begun {
                Ok((lease, from, fill)) => match self.pump(sink, lease, from, fill).await {
                    Ok(()) => continue,
                    Err(error) => format!("the lease was lost: {error}"),
                },
                Err(error) => format!("cannot begin: {error}"),
            };
            let wait = self.backoff.failed(&self.runner.random);
            if self.backoff.complains(Instant::now()) {
                tracing::warn!(sink = %self.runner.name, tree = %self.runner.tree, reason, retry_in = ?wait, "not running");
            }
            self.board.enter(Phase::Starting, Some(reason));
            tokio::select! { biased;
                () = stop.cancelled() => return,
                () = self.board.wake.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Takes the lease, and with it the stored position. Nothing is remembered from an earlier grant.
    async fn begin(&self) -> Result<(Lease, Cursor, Fill), Error> {
        let SinkRunner { tree, name, leases, .. } = &self.runner;
        let lease = leases.acquire(tree, name).await?;
        match self.position(&lease).await {
            Ok((from, fill)) => {
                tracing::info!(sink = %name, %tree, epoch = %lease.epoch(), lsn = %from.lsn, "sink holds its lease");
                Ok((lease, from, fill))
            }
            Err(error) => {
                // Not to wait for ourselves at the next attempt.
                drop(lease.release().await);
                Err(error)
            }
        }
    }

    /// The stored position, or the first one of a sink that has never run; and what it lacks that the log does not hold.
    async fn position(&self, lease: &Lease) -> Result<(Cursor, Fill), Error> {
        let SinkRunner { name, log, cursors, settings, .. } = &self.runner;
        let consumer = consumer_of(name);
        if let Some(stored) = cursors.register(&consumer).await? {
            return Ok((stored, self.fill(None)));
        }
        // The log keeps what this sink may need from here on; only now its first position is looked up.
        let start = match settings.start {
            Start::Beginning => {
                // What of the log is older than a seed may be dead by it, and what says so may be forgotten: then it begins with
                // the state. Looked at in this order: a seed that comes in between is handed over by itself.
                let seed = log.seeded();
                let first = if seed > SeedNumber::ZERO { log.end() } else { log.first() };
                if first.lsn > Lsn::ZERO {
                    // No position is stored before it has what lies below the first one.
                    return Ok((first, Fill { seed, ..self.fill(Some(first.lsn)) }));
                }
                first
            }
            Start::Now | Start::At(_) => {
                let end = log.end();
                cursors.store_filled(&consumer, log.seeded(), lease.fence()).await?;
                if let Start::At(cursor) = settings.start { cursor } else { end }
            }
        };
        cursors.store(&consumer, start, lease.fence()).await?;
        Ok((start, self.fill(None)))
    }

    fn fill(&self, below: Option<Lsn>) -> Fill {
        let board = self.board.clone();
        let seed = self.runner.cursors.filled(&consumer_of(&self.runner.name));
        Fill { seed, below, on_filled: Arc::new(move |seed| board.filled(seed)) }
    }

    /// Lets a pump drive the sink while the lease is held; Ok when it was stopped or paused.
    async fn pump(
        &mut self,
        sink: &mut dyn Sink,
        mut lease: Lease,
        from: Cursor,
        fill: Fill,
    ) -> Result<(), Error> {
        let SinkRunner { name, tree, log, letters, wall, settings, random, .. } = &self.runner;
        let board = self.board.clone();
        board.lacks(&fill);
        let pump = Pump {
            name: format!("sink {name} of {tree}"),
            log: log.clone(),
            settings: settings.pump.clone(),
            random: random.clone(),
            checkpoint: Some(from),
            on_durable: Arc::new(move |cursor| board.advance(cursor)),
            letters: Some((letters.clone(), wall.clone())),
            news: News::default(),
            fill: Some(fill),
        };
        let (mut worker, handle) = pump.prepare(&self.tasks);
        if self.board.attach(handle, from) {
            self.backoff.reset();
            let ended = tokio::select! { biased;
                lost = self.keep(&mut lease) => Err(lost),
                () = worker.drive(sink) => Ok(()),
            };
            self.board.detach();
            if let Err(lost) = ended {
                // What was on its way may have arrived; whoever holds the lease now delivers it again.
                if timeout(settings.pump.stop_budget, sink.close()).await.is_err() {
                    tracing::warn!(sink = %name, "sink not closed in time");
                }
                return Err(lost);
            }
        }
        self.store(&lease).await.unwrap_or_else(|error| {
            tracing::warn!(sink = %name, %error, "the last position is not stored; the next run delivers some again");
        });
        lease.release().await.unwrap_or_else(|error| {
            tracing::warn!(sink = %name, %error, "the lease is not released; it ends by itself");
        });
        Ok(())
    }

    /// Stores the position and shows life, until the lease is lost.
    async fn keep(&self, lease: &mut Lease) -> Error {
        let mut troubles = Backoff::new(BackoffSettings::default());
        loop {
            sleep(self.runner.settings.checkpoint_every).await;
            let kept = match lease.renew().await {
                Ok(()) => self.store(lease).await,
                Err(error) => Err(error.into()),
            };
            match kept {
                Ok(()) => troubles.reset(),
                Err(error) if error.kind() == ErrorKind::Conflict || lease.is_stale() => return error,
                Err(error) => {
                    troubles.failed(&self.runner.random);
                    if troubles.complains(Instant::now()) {
                        tracing::warn!(sink = %self.runner.name, %error, "position not stored; tried again in a moment");
                    }
                }
            }
        }
    }

    async fn store(&self, lease: &Lease) -> Result<(), Error> {
        // Looked at in this order: what was delivered of a seed lies below what is durable since.
        let filled = self.board.last_filled();
        let Some(durable) = self.board.durable() else { return Ok(()) };
        let (cursors, consumer) = (&self.runner.cursors, consumer_of(&self.runner.name));
        cursors.store(&consumer, durable, lease.fence()).await?;
        self.board.stored(durable);
        match filled {
            Some(seed) => cursors.store_filled(&consumer, seed, lease.fence()).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
