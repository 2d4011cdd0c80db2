//! [`PumpHandle`] and [`PumpStatus`]: what the rest of the cluster sees of a pump and can ask of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pump::PumpLog;
use crate::feed::Cursor;

/// What a pump does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PumpState {
    /// Asks the sink where it stands.
    Resuming,
    /// Feeds the sink.
    Running,
    /// Everything in the log has been handed over.
    CaughtUp,
    /// A run has failed; the next one comes after a wait.
    BackingOff,
    /// A run has failed in a way that only a change of settings can cure; waits for a restart.
    Halted,
    /// Ended, for good.
    Stopped,
}

/// A pump at one moment.
#[derive(Clone, Debug)]
pub struct PumpStatus {
    /// What it does.
    pub state: PumpState,
    /// Up to where the sink has answered for durability; none before its first answer.
    pub durable: Option<Cursor>,
    /// Failed runs in a row.
    pub failures: u32,
    /// Why the last run failed; none once something was made durable again.
    pub error: Option<String>,
    /// Since when the sink owes an answer: to `resume`, or for something that it has taken over.
    pub waiting_since: Option<Instant>,
    /// The clock reading of the oldest record that is handed over and not durable, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Bytes that are handed over and not durable.
    pub buffered: u64,
}

impl PumpStatus {
    pub(super) fn new(durable: Option<Cursor>) -> Self {
        Self {
            state: PumpState::Resuming,
            durable,
            failures: 0,
            error: None,
            waiting_since: None,
            oldest_ms: None,
            buffered: 0,
        }
    }
}

/// The handle of a running pump. Dropping it stops nothing: the task belongs to its `Tasks`.
#[derive(Clone)]
pub struct PumpHandle {
    pub(super) stop: CancellationToken,
    pub(super) wake: Arc<Notify>,
    pub(super) status: watch::Receiver<PumpStatus>,
    pub(super) log: Arc<dyn PumpLog>,
}

impl std::fmt::Debug for PumpHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PumpHandle").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl PumpHandle {
    /// What it does now.
    pub fn status(&self) -> PumpStatus {
        self.status.borrow().clone()
    }

    /// Ends a wait at once, also that of a halted pump: try again now.
    pub fn restart(&self) {
        self.wake.notify_one();
    }

    /// Stops: reads no more, makes durable what was taken over as far as the budget of the settings allows, closes the
    /// sink. Ready when that is done. Also the way to pause: a new pump goes on where this one ended.
    pub async fn stop(&self) {
        self.stop.cancel();
        let mut status = self.status.clone();
        // An error says that the task is gone, which is as stopped as can be.
        let _ = status.wait_for(|status| status.state == PumpState::Stopped).await;
    }

    /// Goes on until everything that is in the log now is durable at the sink, for `budget` at most, then stops. Says
    /// whether all of it is.
    pub async fn drain(&self, budget: Duration) -> bool {
        let end = self.delivered(budget).await;
        self.stop().await;
        Self::reached(&self.status.borrow(), end)
    }

    /// Waits until everything that is in the log now is durable at the sink, for `budget` at most, and answers where that
    /// is.
    pub(super) async fn delivered(&self, budget: Duration) -> Cursor {
        let end = self.log.end();
        let mut status = self.status.clone();
        let over = |status: &PumpStatus| Self::reached(status, end) || status.state == PumpState::Stopped;
        let _ = tokio::time::timeout(budget, status.wait_for(over)).await;
        end
    }

    pub(super) fn reached(status: &PumpStatus, end: Cursor) -> bool {
        status.durable.is_some_and(|durable| durable.lsn >= end.lsn)
    }
}
