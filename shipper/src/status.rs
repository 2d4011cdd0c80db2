//! [`ShipperStatus`]: what a shipper shows of itself, readable at any moment without waiting.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidewire_core::causal::OriginMarks;
use tidewire_core::clock::WallClock;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{ClusterId, Hlc, Lsn};
use tidewire_core::tree::LogView;
use tokio::time::Instant;

use crate::error::ShipError;
use crate::ledger::Covered;
use crate::metrics::PeerMetrics;

/// What a shipper does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShipperState {
    /// There is no session; the reason says what the last attempt met.
    Connecting,
    /// Records are on their way.
    Streaming,
    /// The peer has acknowledged every record that it is to get.
    CaughtUp,
    /// There is a session, and nothing has been acknowledged for long.
    Waiting,
    /// Stopped on request.
    Paused,
    /// Shipping is not possible until somebody changes something; tried again slowly.
    Refused,
    /// The log no longer holds what the peer needs.
    FellOff,
}

impl ShipperState {
    /// The name in status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Streaming => "streaming",
            Self::CaughtUp => "caught_up",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Refused => "refused",
            Self::FellOff => "fell_off",
        }
    }
}

/// How far a peer is behind, as the sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Offsets of the origins that the link carries and that the peer does not cover, over all partitions. Before the first
    /// session of this process the peer's position is not known: then every record of the log behind the stored checkpoint.
    pub entries: u64,
    /// Bytes of log behind the durable cursor, records of other origins included.
    pub bytes: u64,
    /// Age by this cluster's wall clock of the oldest record that was read and is not acknowledged. If none has been read
    /// yet, the time since records to be acknowledged were first seen. 0 without entries.
    pub seconds: u64,
}

/// A shipper at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShipperStatus {
    /// What it does.
    pub state: ShipperState,
    /// Why, where the state alone does not say it.
    pub reason: Option<String>,
    /// How far the peer is behind.
    pub lag: Lag,
    /// How long ago the peer last acknowledged anything.
    pub last_ack: Option<Duration>,
    /// Sessions opened since the start of the process.
    pub sessions: u64,
}

#[derive(Debug)]
struct Now {
    state: ShipperState,
    reason: Option<String>,
    peer: Option<Covered>,
    /// What the link has to leave out.
    left_out: Option<String>,
    /// The limit that pages wait for.
    limited: Option<String>,
    acked: Option<Cursor>,
    last_ack: Option<Instant>,
    sessions: u64,
    behind_since_ms: Option<u64>,
}

/// What the shipper writes and everybody reads.
pub(crate) struct StatusBoard {
    now: Mutex<Now>,
    log: Arc<dyn LogView>,
    wall: Arc<dyn WallClock>,
    metrics: PeerMetrics,
}

impl StatusBoard {
    pub(crate) fn new(
        log: Arc<dyn LogView>,
        wall: Arc<dyn WallClock>,
        metrics: PeerMetrics,
        checkpoint: Option<Cursor>,
    ) -> Self {
        let now = Now {
            state: ShipperState::Connecting,
            reason: None,
            peer: None,
            left_out: None,
            limited: None,
            acked: checkpoint,
            last_ack: None,
            sessions: 0,
            behind_since_ms: None,
        };
        Self { now: Mutex::new(now), log, wall, metrics }
    }

    /// A session is open, and the peer stands here.
    pub(crate) fn opened(&self, peer: Covered, cursor: Cursor, left_out: &[String]) {
        let mut now = self.now.lock();
        now.left_out = (!left_out.is_empty()).then(|| left_out.join("; "));
        (now.state, now.reason) = (ShipperState::Streaming, None);
        (now.peer, now.acked) = (Some(peer), Some(cursor));
        now.sessions += 1;
    }

    /// How the link flows: whether the peer asks for a pause, and the limit that pages wait for.
    pub(crate) fn flows(&self, paused: bool, limited: Option<String>) {
        self.metrics.paused.set(i64::from(paused));
        self.metrics.limited.set(i64::from(limited.is_some()));
        self.now.lock().limited = limited;
    }

    /// The session has moved.
    pub(crate) fn moved(&self, peer: &Covered, cursor: Cursor, oldest: Option<Hlc>, waits: Option<String>) {
        {
            let mut now = self.now.lock();
            now.state = if waits.is_some() { ShipperState::Waiting } else { ShipperState::Streaming };
            now.reason = waits;
            if now.peer.as_ref() != Some(peer) {
                now.peer = Some(peer.clone());
            }
            now.acked = Some(cursor);
            now.behind_since_ms = oldest.map(Hlc::millis);
        }
        self.read();
    }

    /// The peer is being seeded, and so many bytes have left.
    pub(crate) fn seeding(&self, peer: &ClusterId, bytes: u64) {
        let mut now = self.now.lock();
        now.state = ShipperState::Waiting;
        now.reason = Some(format!("{peer} is being seeded: {bytes} bytes of a snapshot have been sent"));
    }

    /// The peer has acknowledged something.
    pub(crate) fn heard(&self, at: Instant) {
        self.now.lock().last_ack = Some(at);
    }

    /// The session has ended, or there was none.
    pub(crate) fn failed(&self, error: &ShipError) {
        {
            let mut now = self.now.lock();
            (now.state, now.reason) = (error.state(), Some(error.to_string()));
        }
        self.flows(false, None);
        self.read();
    }

    /// There is no session any more, and that is nobody's fault.
    pub(crate) fn closed(&self) {
        self.flows(false, None);
        let mut now = self.now.lock();
        if matches!(now.state, ShipperState::Streaming | ShipperState::Waiting) {
            (now.state, now.reason) = (ShipperState::Connecting, None);
        }
    }

    /// The status now. Also brings the gauges up to date.
    pub(crate) fn read(&self) -> ShipperStatus {
        let (peer, acked) = {
            let now = self.now.lock();
            (now.peer.clone(), now.acked)
        };
        let end = self.log.end();
        let acked = acked.filter(|acked| acked.incarnation == end.incarnation);
        let from = acked.map_or(Lsn::ZERO, |acked| acked.lsn);
        let entries = match &peer {
            Some(peer) => self.behind(peer),
            None => end.lsn.since(from),
        };
        let mut lag = Lag { entries, bytes: self.log.bytes_after(from), seconds: 0 };
        let wall = self.wall.now_millis();
        let mut now = self.now.lock();
        if entries == 0 {
            now.behind_since_ms = None;
        } else {
            lag.seconds = wall.saturating_sub(*now.behind_since_ms.get_or_insert(wall)) / 1_000;
        }
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.lag_entries.set(gauge(lag.entries));
        self.metrics.lag_bytes.set(gauge(lag.bytes));
        self.metrics.lag_seconds.set(gauge(lag.seconds));
        let caught_up = now.state == ShipperState::Streaming && entries == 0;
        ShipperStatus {
            state: if caught_up { ShipperState::CaughtUp } else { now.state },
            reason: now.reason.clone().or_else(|| now.left_out.clone()).or_else(|| now.limited.clone()),
            lag,
            last_ack: now.last_ack.map(|at| at.elapsed()),
            sessions: now.sessions,
        }
    }

    /// Records of the log that a peer does not cover.
    fn behind(&self, peer: &Covered) -> u64 {
        let since = |tails: &OriginMarks, held: &OriginMarks| -> u64 {
            tails.iter().map(|(partition, tail)| tail.next.since(held.get(partition).next)).sum()
        };
        let own = self.log.identity().origin();
        let local = peer.get(&own).map_or(0, |held| since(&self.log.tails(), held));
        if peer.len() < 2 {
            return local;
        }
        let marks = self.log.standing().progress.watermarks;
        let others = peer.iter().filter(|(origin, _)| **origin != own);
        local + others.filter_map(|(origin, held)| Some(since(marks.origin(*origin)?, held))).sum::<u64>()
    }
}
