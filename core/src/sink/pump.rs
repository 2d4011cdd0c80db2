//! [`Pump`]: the one loop that drives every sink.
//!
//! A run asks the sink where it stands, reads the feed from there, hands batches over while the bytes that are not
//! durable yet stay below a bound, and passes on what the sink answers as durable. An error or a panic ends the run; the
//! sink is closed and, after a wait, asked again. What is decided lies in `Taken` and [`Backoff`]; here it is acted on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, BackoffSettings};
use super::contract::{Sink, SinkContext};
use super::pump_handle::{PumpHandle, PumpState, PumpStatus};
use super::taken::Taken;
use crate::error::{SinkError, SinkErrorKind};
use crate::feed::{Batch, Cursor, FeedError, FeedSource};
use crate::id::Lsn;
use crate::random::Random;
use crate::tasks::{Tasks, panic_text};
use crate::tree::{ChangeView, LogView};

/// A log that a pump reads: a tree.
pub trait PumpLog: FeedSource + LogView + ChangeView {}

impl<T: FeedSource + LogView + ChangeView> PumpLog for T {}

/// Who learns what is durable at a sink, in the order in which the sink says it. It may go back once at the start of a
/// run, when a destination was restored.
pub type OnDurable = Arc<dyn Fn(Cursor) + Send + Sync>;

/// How a pump drives its sink.
#[derive(Clone, Debug)]
pub struct PumpSettings {
    /// Waits between failed runs.
    pub backoff: BackoffSettings,
    /// After a fault of the settings: try again after this long, or only when told. Default: only when told.
    pub halted_retry: Option<Duration>,
    /// Bytes that a sink may have taken over without having made them durable. Default 16 MiB.
    pub window_bytes: u64,
    /// How long after the last record the first batch without records comes. Default 100 ms.
    pub idle_first: Duration,
    /// The time between such batches doubles up to this. Default 1 s.
    pub idle_most: Duration,
    /// How long a write, a sync and a close may take each when the pump stops. Default 5 s.
    pub stop_budget: Duration,
}

impl Default for PumpSettings {
    fn default() -> Self {
        Self {
            backoff: BackoffSettings::default(),
            halted_retry: None,
            window_bytes: 16 * 1024 * 1024,
            idle_first: Duration::from_millis(100),
            idle_most: Duration::from_secs(1),
            stop_budget: Duration::from_secs(5),
        }
    }
}

/// Everything that a pump needs beside its sink.
pub struct Pump {
    /// Name of the consumer, for the log and the task.
    pub name: String,
    /// What is read.
    pub log: Arc<dyn PumpLog>,
    /// How.
    pub settings: PumpSettings,
    /// The seeded generator of this consumer.
    pub random: Random,
    /// Where a sink starts that does not keep its own position; without it, at the beginning of the log.
    pub checkpoint: Option<Cursor>,
    /// Who learns what is durable.
    pub on_durable: OnDurable,
}

/// Why a run failed.
enum Fault {
    Sink(SinkError),
    Feed(FeedError),
    Panicked(String),
    /// The sink claims what it was never given.
    Claim(Cursor),
}

impl Fault {
    /// Whether another run can help, though nobody changes anything.
    fn is_passing(&self) -> bool {
        match self {
            Self::Sink(error) => {
                matches!(error.kind(), SinkErrorKind::Transient | SinkErrorKind::Destination)
            }
            Self::Feed(FeedError::Failed(_)) | Self::Panicked(_) => true,
            Self::Feed(FeedError::FellOff { .. } | FeedError::Foreign { .. }) | Self::Claim(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Sink(error) => error.to_string(),
            Self::Feed(error) => error.to_string(),
            Self::Panicked(said) => format!("the sink panicked: {said}; report it"),
            Self::Claim(cursor) => {
                format!("the sink answered {cursor} as durable, which it was never given; report it")
            }
        }
    }
}

impl From<SinkError> for Fault {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

impl From<FeedError> for Fault {
    fn from(error: FeedError) -> Self {
        Self::Feed(error)
    }
}

enum Event {
    Stop,
    Durable(Cursor),
    Batch(Batch),
    Idle,
}

struct Worker {
    pump: Pump,
    tasks: Tasks,
    backoff: Backoff,
    stop: CancellationToken,
    wake: Arc<Notify>,
    status: watch::Sender<PumpStatus>,
}

impl Pump {
    /// Starts to drive a sink, until the handle or the tasks stop it.
    pub fn spawn(self, tasks: &Tasks, sink: Box<dyn Sink>) -> PumpHandle {
        #[expect(
            clippy::disallowed_methods,
            reason = "whoever follows a pump's status decides nothing by the order of waking"
        )]
        let (status, seen) = watch::channel(PumpStatus {
            state: PumpState::Resuming,
            durable: None,
            failures: 0,
            error: None,
        });
        let stop = tasks.stop_token().child_token();
        let wake = Arc::new(Notify::new());
        let handle =
            PumpHandle { stop: stop.clone(), wake: wake.clone(), status: seen, log: self.log.clone() };
        let backoff = Backoff::new(self.settings.backoff.clone());
        let name = self.name.clone();
        let worker = Worker { pump: self, tasks: tasks.clone(), backoff, stop, wake, status };
        tasks.spawn(name, worker.work(sink));
        handle
    }
}

impl Worker {
    async fn work(mut self, mut sink: Box<dyn Sink>) {
        let budget = self.pump.settings.stop_budget;
        loop {
            let started = Instant::now();
            let run = AssertUnwindSafe(self.run(sink.as_mut())).catch_unwind().await;
            let run = run.unwrap_or_else(|panic| Err(Fault::Panicked(panic_text(panic.as_ref()))));
            match AssertUnwindSafe(timeout(budget, sink.close())).catch_unwind().await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => {
                    tracing::warn!(consumer = self.pump.name, %error, "sink not closed in order")
                }
                Ok(Err(_)) => tracing::warn!(consumer = self.pump.name, "sink not closed in time"),
                Err(_) => tracing::error!(consumer = self.pump.name, "sink panicked while it was closed"),
            }
            match run {
                Ok(()) => break,
                Err(fault) => {
                    self.backoff.reset_after(started.elapsed());
                    if !self.pause(&fault).await {
                        break;
                    }
                }
            }
        }
        self.set_state(PumpState::Stopped);
    }

    /// Waits after a failed run; false when the pump is stopped meanwhile.
    async fn pause(&mut self, fault: &Fault) -> bool {
        let passing = fault.is_passing();
        let wait = self.backoff.failed(&self.pump.random);
        let wait = if passing { Some(wait) } else { self.pump.settings.halted_retry };
        let (failures, error) = (self.backoff.failures(), fault.text());
        if self.backoff.complains(Instant::now()) {
            tracing::warn!(consumer = self.pump.name, failures, error, retry_in = ?wait, "not delivering");
        }
        let state = if passing { PumpState::BackingOff } else { PumpState::Halted };
        self.status.send_modify(|status| {
            (status.state, status.failures, status.error) = (state, failures, Some(error));
        });
        let waited = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { biased;
            () = self.stop.cancelled() => false,
            () = self.wake.notified() => true,
            () = waited => true,
        }
    }

    /// One run; ready when the pump is stopped.
    async fn run(&mut self, sink: &mut dyn Sink) -> Result<(), Fault> {
        self.set_state(PumpState::Resuming);
        let log = self.pump.log.clone();
        let beginning = Cursor { incarnation: log.identity().incarnation, lsn: Lsn::ZERO };
        let checkpoint = self.pump.checkpoint.unwrap_or(beginning);
        let context = SinkContext {
            log: log.clone(),
            changes: log.clone(),
            checkpoint,
            tasks: self.tasks.clone(),
            random: self.pump.random.clone(),
        };
        let answered = tokio::select! { biased;
            () = self.stop.cancelled() => return Ok(()),
            answered = sink.resume(&context) => answered?,
        };
        let from = answered.unwrap_or(checkpoint);
        if answered.is_some() {
            let progress = self.pump.checkpoint.is_none_or(|before| before.lsn < from.lsn);
            self.report(from, progress);
        }
        self.set_state(PumpState::Running);
        self.feed(sink, from).await
    }

    async fn feed(&mut self, sink: &mut dyn Sink, from: Cursor) -> Result<(), Fault> {
        let PumpSettings { window_bytes, idle_first, idle_most, .. } = self.pump.settings;
        let mut taken = Taken::new(from, window_bytes);
        let mut reader = self.pump.log.feed(from);
        let mut pace = idle_first;
        let mut idle_at = Instant::now() + pace;
        loop {
            let event = tokio::select! { biased;
                () = self.stop.cancelled() => Event::Stop,
                cursor = sink.durable() => Event::Durable(cursor?),
                batch = reader.next(), if taken.has_room() => Event::Batch(batch?),
                () = sleep_until(idle_at) => Event::Idle,
            };
            match event {
                Event::Stop => return self.finish(sink, &mut taken).await,
                Event::Durable(cursor) => self.advance(&mut taken, cursor)?,
                Event::Batch(batch) => {
                    self.set_state(PumpState::Running);
                    let (end, bytes) = (batch.end(), batch.bytes());
                    if !self.write(sink, batch).await? {
                        return Ok(());
                    }
                    taken.take(end, bytes);
                    pace = idle_first;
                    idle_at = Instant::now() + pace;
                }
                Event::Idle => {
                    let idle = match reader.idle().await {
                        Err(FeedError::Failed(error)) => {
                            // No promise can be made now, but what is in the log can still be handed over.
                            tracing::debug!(consumer = self.pump.name, %error, "no progress without records");
                            None
                        }
                        other => other?,
                    };
                    if let Some(batch) = idle {
                        self.set_state(PumpState::CaughtUp);
                        if !self.write(sink, batch).await? {
                            return Ok(());
                        }
                        pace = (pace * 2).min(idle_most);
                    }
                    idle_at = Instant::now() + pace;
                }
            }
        }
    }

    /// Hands a batch over; false when that was given up because the pump stops.
    async fn write(&self, sink: &mut dyn Sink, batch: Batch) -> Result<bool, Fault> {
        let mut write = sink.write(batch);
        tokio::select! { biased;
            () = self.stop.cancelled() => {}
            written = &mut write => return Ok(written.map(|()| true)?),
        }
        match timeout(self.pump.settings.stop_budget, write).await {
            Ok(written) => Ok(written.map(|()| true)?),
            Err(_) => Ok(false),
        }
    }

    /// The end of a run by a stop: what was taken over becomes durable if that goes quickly.
    async fn finish(&mut self, sink: &mut dyn Sink, taken: &mut Taken) -> Result<(), Fault> {
        match timeout(self.pump.settings.stop_budget, sink.sync()).await {
            Ok(Ok(cursor)) => self.advance(taken, cursor)?,
            Ok(Err(error)) => {
                tracing::info!(consumer = self.pump.name, %error, "sink not synced at the stop")
            }
            Err(_) => {
                tracing::info!(consumer = self.pump.name, "sink not synced within the budget of the stop")
            }
        }
        Ok(())
    }

    fn advance(&mut self, taken: &mut Taken, cursor: Cursor) -> Result<(), Fault> {
        if taken.advance(cursor).ok_or(Fault::Claim(cursor))? {
            self.report(cursor, true);
        }
        Ok(())
    }

    fn report(&mut self, cursor: Cursor, progress: bool) {
        self.pump.checkpoint = Some(cursor);
        (self.pump.on_durable)(cursor);
        if progress && self.backoff.failures() > 0 {
            tracing::info!(consumer = self.pump.name, failures = self.backoff.failures(), "delivering again");
            self.backoff.reset();
        }
        let failures = self.backoff.failures();
        self.status.send_modify(|status| {
            (status.durable, status.failures) = (Some(cursor), failures);
            if progress {
                status.error = None;
            }
        });
    }

    fn set_state(&self, state: PumpState) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.state, state) != state);
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
