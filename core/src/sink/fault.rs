//! [`Fault`]: why a run of a pump failed, and whether another one can help.

use crate::error::{Error, ErrorKind, SinkError, SinkErrorKind};
use crate::feed::{Cursor, FeedError};
use crate::id::Lsn;

/// Why a run failed.
pub(super) enum Fault {
    Sink(SinkError),
    Feed(FeedError),
    Panicked(String),
    /// The sink claims what it was never given.
    Claim(Cursor),
    /// The destination does not take this record, alone, and the policy is to stop there.
    Poison {
        lsn: Lsn,
        dot: Option<String>,
        error: SinkError,
    },
    /// The destination does not take a row of the state.
    Row(SinkError),
    /// A record could not be parked.
    Parking(Error),
}

impl Fault {
    /// Whether another run can help, though nobody changes anything.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            // A record's fault that belongs to no record is no reason to leave one out.
            Self::Sink(error) => error.kind() != SinkErrorKind::Config,
            Self::Feed(FeedError::Failed(_) | FeedError::Seeded) | Self::Panicked(_) => true,
            Self::Parking(error) => error.kind() != ErrorKind::TooLarge,
            Self::Feed(FeedError::FellOff { .. } | FeedError::Foreign { .. })
            | Self::Claim(_)
            | Self::Row(_)
            | Self::Poison { .. } => false,
        }
    }

    /// The same fault, of a row: no record of the log is to blame.
    pub(super) fn of_row(self) -> Self {
        match self {
            Self::Sink(error) if error.kind() == SinkErrorKind::Record => Self::Row(error),
            other => other,
        }
    }

    /// The error of a sink that says a record is to blame.
    pub(super) fn record(&self) -> Option<&SinkError> {
        match self {
            Self::Sink(error) if error.kind() == SinkErrorKind::Record => Some(error),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Sink(error) => error.to_string(),
            Self::Feed(error) => error.to_string(),
            Self::Panicked(said) => format!("the sink panicked: {said}; report it"),
            Self::Claim(cursor) => {
                format!("the sink answered {cursor} as durable, which it was never given; report it")
            }
            Self::Poison { lsn, dot, error } => {
                let dot = dot.as_deref().unwrap_or("none, it lost on arrival");
                format!(
                    "the record at {lsn} (dot {dot}) is never taken: {error}; let the destination take it, or set on_poison = \"dead_letter\", then restart the sink"
                )
            }
            Self::Row(error) => format!(
                "a key that came with a seed, or lies below what the log retains, is never taken: {error}; let the destination take it, or write or delete that key anew, then restart the sink"
            ),
            Self::Parking(error) => format!("a record is not taken and cannot be parked: {error}"),
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
