//! [`Board`]: what the runner of a sink writes and everybody reads, and the wishes that it is told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::dead_letters::DeadLetters;
use super::fill::Fill;
use super::metrics::SinkSeries;
use super::pump::PumpLog;
use super::pump_handle::{PumpHandle, PumpState};
use super::runner::SinkRunner;
use super::sink_status::{SinkState, SinkStatus};
use crate::clock::WallClock;
use crate::feed::Cursor;
use crate::id::{Lsn, SeedNumber};
use crate::latest::Latest;

/// Where the runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the lease, or for the store of positions.
    Starting,
    /// Its pump is at work.
    Pumping,
    /// Does nothing until it is resumed.
    Paused,
    /// Has ended.
    Stopped,
}

#[derive(Default)]
struct Now {
    reason: Option<String>,
    pump: Option<PumpHandle>,
    durable: Option<Cursor>,
    stored: Option<Cursor>,
    /// It has no position before it has delivered what lies below the first one.
    owes: bool,
    /// The last seed of which it has delivered what came, as the registry knows it, and since it holds its lease.
    has: SeedNumber,
    filled: Option<SeedNumber>,
    delivered: u64,
    behind_since_ms: Option<u64>,
    wants_pause: bool,
    wants_stop: bool,
}

/// Shared by a runner and its handles.
pub(super) struct Board {
    pub(super) kind: &'static str,
    pub(super) log: Arc<dyn PumpLog>,
    pub(super) wall: Arc<dyn WallClock>,
    pub(super) letters: Arc<DeadLetters>,
    pub(super) series: SinkSeries,
    pub(super) stall_after: Duration,
    pub(super) window_bytes: u64,
    pub(super) phase: Latest<Phase>,
    pub(super) wake: Notify,
    now: Mutex<Now>,
}

impl Board {
    pub(super) fn new(runner: &SinkRunner, kind: &'static str, paused: bool) -> Self {
        Self {
            kind,
            log: runner.log.clone(),
            wall: runner.wall.clone(),
            letters: runner.letters.clone(),
            series: runner.metrics.sink(&runner.tree, &runner.name),
            stall_after: runner.settings.stall_after,
            window_bytes: runner.settings.pump.window_bytes,
            phase: Latest::new(Phase::Starting),
            wake: Notify::new(),
            now: Mutex::new(Now { wants_pause: paused, ..Now::default() }),
        }
    }

    /// The runner is somewhere else now, and why.
    pub(super) fn enter(&self, phase: Phase, reason: Option<String>) {
        self.now.lock().reason = reason;
        self.phase.set(phase);
    }

    /// A pump is about to work from a position; false when it must not, because a stop or a pause is wanted.
    pub(super) fn attach(&self, pump: PumpHandle, from: Cursor) -> bool {
        let mut now = self.now.lock();
        if now.wants_pause || now.wants_stop {
            return false;
        }
        (now.pump, now.durable, now.stored) = (Some(pump), Some(from), Some(from));
        drop(now);
        self.enter(Phase::Pumping, None);
        true
    }

    pub(super) fn detach(&self) {
        self.now.lock().pump = None;
    }

    /// The sink has made something durable.
    pub(super) fn advance(&self, cursor: Cursor) {
        let mut now = self.now.lock();
        let before = now.durable.filter(|before| before.incarnation == cursor.incarnation);
        let more = before.map_or(0, |before| cursor.lsn.since(before.lsn));
        now.durable = Some(cursor);
        now.delivered += more;
        drop(now);
        self.series.delivered.inc_by(more);
    }

    /// A position is stored.
    pub(super) fn stored(&self, cursor: Cursor) {
        self.now.lock().stored = Some(cursor);
    }

    /// What it lacks that the log does not hold. If that lies below its first position, it has none before it has that.
    pub(super) fn lacks(&self, fill: &Fill) {
        let mut now = self.now.lock();
        (now.owes, now.has, now.filled) = (fill.below.is_some(), fill.seed, None);
    }

    /// It has delivered what came with a seed, and what lay below its first position.
    pub(super) fn filled(&self, seed: SeedNumber) {
        let mut now = self.now.lock();
        (now.owes, now.has, now.filled) = (false, seed, Some(seed));
    }

    /// The last seed of which it has delivered what came, since it holds its lease.
    pub(super) fn last_filled(&self) -> Option<SeedNumber> {
        self.now.lock().filled
    }

    /// What was durable last, if that is a position to begin from.
    pub(super) fn durable(&self) -> Option<Cursor> {
        let now = self.now.lock();
        now.durable.filter(|_| !now.owes)
    }

    pub(super) fn wants_stop(&self) -> bool {
        self.now.lock().wants_stop
    }

    pub(super) fn wants_pause(&self) -> bool {
        self.now.lock().wants_pause
    }

    /// Wishes for a pause or its end, or for a stop; the pump that works now, if it has to end.
    pub(super) fn wish(&self, pause: bool, stop: bool) -> Option<PumpHandle> {
        let mut now = self.now.lock();
        now.wants_pause = pause;
        now.wants_stop |= stop;
        let pump = now.pump.clone().filter(|_| pause || stop);
        drop(now);
        self.wake.notify_one();
        pump
    }

    /// The pump that works now.
    pub(super) fn pump(&self) -> Option<PumpHandle> {
        self.now.lock().pump.clone()
    }

    /// The status now. Also brings the gauges up to date.
    pub(super) fn status(&self) -> SinkStatus {
        let (pump, phase) = (self.pump().map(|pump| pump.status()), self.phase.get());
        let seeded = self.log.seeded();
        let (durable, stored, delivered, reason, lacks) = {
            let now = self.now.lock();
            let lacks = now.owes || now.has < seeded;
            (now.durable, now.stored, now.delivered, now.reason.clone(), lacks)
        };
        let end = self.log.end();
        let from =
            durable.filter(|durable| durable.incarnation == end.incarnation).map_or(Lsn::ZERO, |c| c.lsn);
        let lag_entries = end.lsn.since(from);
        let lag_bytes = if lag_entries == 0 { 0 } else { self.log.bytes_after(from) };
        let lag_seconds = self.age(lag_entries, pump.as_ref().and_then(|pump| pump.oldest_ms));
        let waited = pump.as_ref().and_then(|pump| pump.waiting_since).map(|since| since.elapsed());
        let stalled = waited.filter(|waited| *waited >= self.stall_after);
        let (state, reason) = match (phase, &pump) {
            (Phase::Stopped, _) => (SinkState::Stopped, reason),
            (Phase::Paused, _) => (SinkState::Paused, reason),
            (Phase::Starting, _) | (Phase::Pumping, None) => (SinkState::Starting, reason),
            (Phase::Pumping, Some(pump)) => match (pump.state, stalled) {
                (PumpState::BackingOff, _) => (SinkState::BackingOff, pump.error.clone()),
                (PumpState::Halted, _) => (SinkState::Halted, pump.error.clone()),
                (PumpState::Stopped, _) => (SinkState::Stopped, None),
                (state, Some(waited)) => {
                    let what = if state == PumpState::Resuming { "connection" } else { "acknowledgement" };
                    let said = format!("no {what} for {} s; check the destination", waited.as_secs());
                    (SinkState::Stalled, Some(said))
                }
                (PumpState::Resuming, None) => (SinkState::Starting, pump.error.clone()),
                (PumpState::Running | PumpState::CaughtUp, None) if lacks => (
                    SinkState::Running,
                    Some("it lacks what came with a seed, or lies below its log".to_owned()),
                ),
                (PumpState::Running | PumpState::CaughtUp, None) if lag_entries == 0 => {
                    (SinkState::CaughtUp, None)
                }
                (PumpState::Running | PumpState::CaughtUp, None) => (SinkState::Running, pump.error.clone()),
            },
        };
        let dead_letters = self.letters.count();
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.series.lag_entries.set(gauge(lag_entries));
        self.series.lag_bytes.set(gauge(lag_bytes));
        self.series.lag_seconds.set(lag_seconds as i64);
        self.series.dead_letters.set(gauge(dead_letters));
        SinkStatus {
            kind: self.kind,
            state,
            reason,
            lag_entries,
            lag_bytes,
            lag_seconds,
            durable,
            checkpoint: stored,
            delivered,
            failures: pump.as_ref().map_or(0, |pump| pump.failures),
            dead_letters,
            buffered: pump.as_ref().map_or(0, |pump| pump.buffered),
            buffer_budget: self.window_bytes,
        }
    }

    fn age(&self, entries: u64, oldest_ms: Option<u64>) -> f64 {
        let wall = self.wall.now_millis();
        let mut now = self.now.lock();
        if entries == 0 {
            now.behind_since_ms = None;
            return 0.0;
        }
        let since = *now.behind_since_ms.get_or_insert(wall);
        let oldest = oldest_ms.map_or(since, |oldest| oldest.min(wall));
        wall.saturating_sub(oldest) as f64 / 1_000.0
    }
}
