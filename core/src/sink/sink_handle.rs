//! [`SinkHandle`]: what the rest of the cluster sees of a sink and can ask of it.

use std::sync::Arc;
use std::time::Duration;

use super::board::{Board, Phase};
use super::dead_letters::DeadLetters;
use super::pump_handle::PumpHandle;
use super::sink_status::{SinkState, SinkStatus};

/// The handle of a sink that is run. Dropping it stops nothing.
#[derive(Clone)]
pub struct SinkHandle {
    board: Arc<Board>,
}

impl std::fmt::Debug for SinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SinkHandle").field("status", &self.status()).finish()
    }
}

impl SinkHandle {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board }
    }

    /// What it does now. Also brings its gauges up to date: call it before metrics are rendered.
    pub fn status(&self) -> SinkStatus {
        self.board.status()
    }

    /// The records that its destination does not take.
    pub fn dead_letters(&self) -> &Arc<DeadLetters> {
        &self.board.letters
    }

    /// Stops after what is in flight, stores the position, gives the lease back, and stays so until
    /// [`resume`](Self::resume). Ready when that is done.
    pub async fn pause(&self) {
        self.end(false).await;
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.board.wish(false, false);
    }

    /// Tries again at once, also when it is halted.
    pub fn restart(&self) {
        match self.board.pump() {
            Some(pump) => pump.restart(),
            None => self.board.wake.notify_one(),
        }
    }

    /// Ends it: stops after what is in flight, stores the position, gives the lease back. Ready when that is done.
    pub async fn stop(&self) {
        self.end(true).await;
    }

    /// Goes on until everything that is in the log now is durable at the destination, for `budget` at most, then stops.
    /// Says whether all of it is. A sink that delivers nothing at present is stopped at once.
    pub async fn drain(&self, budget: Duration) -> bool {
        let delivers =
            matches!(self.status().state, SinkState::Starting | SinkState::Running | SinkState::CaughtUp);
        let mut done = false;
        if let Some(pump) = self.board.pump().filter(|_| delivers) {
            let end = pump.delivered(budget).await;
            self.stop().await;
            done = PumpHandle::reached(&pump.status(), end);
        }
        self.stop().await;
        done
    }

    /// Takes its series out of the metrics: it is removed.
    pub fn forget(&self) {
        self.board.series.remove();
    }

    async fn end(&self, stop: bool) {
        let mut phase = self.board.phase.follow();
        if let Some(pump) = self.board.wish(!stop, stop) {
            pump.stop().await;
        }
        loop {
            match phase.get() {
                Phase::Stopped => return,
                Phase::Paused if !stop => return,
                _ => phase.changed().await,
            }
        }
    }
}
