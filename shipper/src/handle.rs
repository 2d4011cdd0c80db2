//! [`spawn`] and [`ShipperHandle`]: a shipper under its pump.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::feed::Cursor;
use tidewire_core::random::Random;
use tidewire_core::sink::{OnDurable, Pump, PumpHandle, PumpLog, PumpState};
use tidewire_core::tasks::Tasks;

use crate::sink::{Shipper, ShipperConfig};
use crate::status::{ShipperState, ShipperStatus, StatusBoard};

/// A running shipper. Dropping the handle stops nothing.
#[derive(Clone)]
pub struct ShipperHandle {
    /// None: it rests.
    pump: Option<PumpHandle>,
    board: Arc<StatusBoard>,
}

impl std::fmt::Debug for ShipperHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShipperHandle").field("status", &self.status()).finish()
    }
}

/// Starts to ship a log to a peer. `checkpoint` is what was durable when it last ran, if that is known: it says how far
/// the peer is behind until the peer itself has said it. `on_durable` learns what the log may forget for this peer.
pub fn spawn(
    tasks: &Tasks,
    config: ShipperConfig,
    log: Arc<dyn PumpLog>,
    random: Random,
    checkpoint: Option<Cursor>,
    on_durable: OnDurable,
) -> ShipperHandle {
    let name = format!("shipper {} to {}", log.identity().tree, config.peer.peer);
    let (settings, news) = (config.settings.pump.clone(), config.news.clone());
    let shipper = Shipper::new(config, log.clone(), checkpoint);
    let board = shipper.board();
    let pump = Pump { name, log, settings, random, checkpoint, on_durable, letters: None, news, fill: None };
    ShipperHandle { pump: Some(pump.spawn(tasks, Box::new(shipper))), board }
}

impl ShipperHandle {
    /// A shipper that rests: it ships nothing, and shows how far the peer is behind `checkpoint`.
    pub fn resting(config: ShipperConfig, log: Arc<dyn PumpLog>, checkpoint: Option<Cursor>) -> Self {
        Self { pump: None, board: Shipper::new(config, log, checkpoint).board() }
    }

    /// What it does now. Also brings its gauges up to date: call it before metrics are rendered.
    pub fn status(&self) -> ShipperStatus {
        let mut status = self.board.read();
        let Some(pump) = &self.pump else {
            (status.state, status.reason) = (ShipperState::Paused, None);
            return status;
        };
        let pump = pump.status();
        match pump.state {
            PumpState::Stopped => (status.state, status.reason) = (ShipperState::Paused, None),
            // What ended a run outside the session, as a log that cannot be read, only the pump knows.
            PumpState::BackingOff | PumpState::Halted if status.reason.is_none() => {
                (status.state, status.reason) = (ShipperState::Connecting, pump.error);
            }
            _ => {}
        }
        status
    }

    /// Dials again at once if the shipper is between two attempts.
    pub fn restart(&self) {
        if let Some(pump) = &self.pump {
            pump.restart();
        }
    }

    /// Stops, and says goodbye to the peer; also the way to pause, where the next [`spawn`] goes on. It shows as paused then.
    pub async fn stop(&self) {
        if let Some(pump) = &self.pump {
            pump.stop().await;
        }
    }

    /// Ships what is in the log now, for `budget` at most, then stops. Says whether the peer has all of it.
    pub async fn drain(&self, budget: Duration) -> bool {
        match &self.pump {
            Some(pump) => pump.drain(budget).await,
            None => false,
        }
    }
}
