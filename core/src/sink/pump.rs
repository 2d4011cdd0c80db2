//! [`Pump`]: the one loop that drives every sink.
//!
//! A run asks the sink where it stands, reads the feed from there, hands batches over while the bytes that are not
//! durable yet stay below a bound, and passes on what the sink answers as durable. An error or a panic ends the run; the
//! sink is closed and, after a wait, asked again. A record that a destination does not take is looked for in ever smaller
//! pieces. What is decided lies in `Taken`, `Isolation` and [`Backoff`](super::Backoff); `worker` acts on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, BackoffSettings};
use super::contract::Sink;
use super::dead_letters::DeadLetters;
use super::fill::Fill;
use super::news::News;
use super::pump_handle::{PumpHandle, PumpStatus};
use super::worker::Worker;
use crate::clock::WallClock;
use crate::feed::{Cursor, FeedSource};
use crate::random::Random;
use crate::tasks::Tasks;
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
    /// Whether the sink is left alone until there is something for it. Default: no.
    pub dormant: bool,
    /// What becomes of a record that the destination does not take. Default: stop.
    pub on_poison: OnPoison,
}

/// What becomes of a record that the destination will never take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPoison {
    /// The sink halts and says so; nothing is left out.
    #[default]
    Stop,
    /// It is parked among the dead letters, and the sink goes on.
    DeadLetter,
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
            dormant: false,
            on_poison: OnPoison::Stop,
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
    /// Where records are parked that are never taken, and the clock that says when. Without it, a sink that does not take
    /// a record halts.
    pub letters: Option<(Arc<DeadLetters>, Arc<dyn WallClock>)>,
    /// What ends a wait after a failure that passes by itself, and where to say that the destination was reached.
    pub news: News,
    /// What the sink lacks that the log does not hold; without it, such things are none of its business.
    pub fill: Option<Fill>,
}

impl Pump {
    /// Starts to drive a sink, until the handle or the tasks stop it.
    pub fn spawn(self, tasks: &Tasks, mut sink: Box<dyn Sink>) -> PumpHandle {
        let name = self.name.clone();
        let (mut driver, handle) = self.prepare(tasks);
        tasks.spawn(name, async move { driver.drive(sink.as_mut()).await });
        handle
    }

    /// The pump without a task of its own, and its handle.
    pub(super) fn prepare(self, tasks: &Tasks) -> (Worker, PumpHandle) {
        #[expect(
            clippy::disallowed_methods,
            reason = "whoever follows a pump's status decides nothing by the order of waking"
        )]
        let (status, seen) = watch::channel(PumpStatus::new(self.checkpoint));
        let stop: CancellationToken = tasks.stop_token().child_token();
        let wake = Arc::new(Notify::new());
        let handle =
            PumpHandle { stop: stop.clone(), wake: wake.clone(), status: seen, log: self.log.clone() };
        let backoff = Backoff::new(self.settings.backoff.clone());
        (Worker::new(self, tasks.clone(), backoff, stop, wake, status), handle)
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
