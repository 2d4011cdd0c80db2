//! [`SinkStatus`]: what a sink shows of itself.

use crate::feed::Cursor;

/// What a sink does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// Waits for its lease, or asks the destination where it stands.
    Starting,
    /// Delivers.
    Running,
    /// Everything in the log is durable at the destination.
    CaughtUp,
    /// A run has failed; the next one comes after a wait.
    BackingOff,
    /// The destination owes an answer for long.
    Stalled,
    /// Stopped by itself: somebody has to change something.
    Halted,
    /// Stopped by the operator; it keeps its hold on the log.
    Paused,
    /// Ended.
    Stopped,
}

impl SinkState {
    /// The name in status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::CaughtUp => "caught_up",
            Self::BackingOff => "backing_off",
            Self::Stalled => "stalled",
            Self::Halted => "halted",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// A sink at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkStatus {
    /// What it is: the sink's own word for it.
    pub kind: &'static str,
    /// What it does.
    pub state: SinkState,
    /// Why, where the state alone does not say it.
    pub reason: Option<String>,
    /// Records of the log that are not durable at the destination.
    pub lag_entries: u64,
    /// Their bytes in the log.
    pub lag_bytes: u64,
    /// The age of the oldest of them, by this cluster's wall clock: of those that were handed over, or else since they
    /// were first seen.
    pub lag_seconds: f64,
    /// Up to where everything is durable at the destination; none before it is known.
    pub durable: Option<Cursor>,
    /// Up to where that is stored here.
    pub checkpoint: Option<Cursor>,
    /// Records that became durable since this process began.
    pub delivered: u64,
    /// Failed runs in a row.
    pub failures: u32,
    /// Records that are parked.
    pub dead_letters: u64,
    /// Bytes that are handed over and not durable.
    pub buffered: u64,
    /// Bytes that may be.
    pub buffer_budget: u64,
}
