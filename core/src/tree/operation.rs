//! [`Operation`] and [`PutOptions`]: what a caller asks of a tree.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::record::Mutation;

/// How a key is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// How long the value is shown, by the clock of this cluster: a moment is fixed here, and every cluster compares
    /// it with its own clock. At least a millisecond; None: for ever.
    pub ttl: Option<Duration>,
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets a key.
    Set(Bytes, Bytes),
    /// Sets a key with options.
    SetWith(Bytes, Bytes, PutOptions),
    /// Deletes a key.
    Delete(Bytes),
}

impl Operation {
    /// What it asks of a log whose clock says `now`.
    pub(super) fn mutation(self, now: impl FnOnce() -> u64) -> Result<Mutation, Error> {
        match self {
            Self::Set(key, value) => Ok(Mutation::set(key, value)),
            Self::SetWith(key, value, options) => {
                Ok(Mutation { deadline_ms: options.deadline(now)?, ..Mutation::set(key, value) })
            }
            Self::Delete(key) => Ok(Mutation::delete(key)),
        }
    }
}

impl PutOptions {
    /// A value that is shown for a while.
    pub fn ttl(ttl: Duration) -> Self {
        Self { ttl: Some(ttl) }
    }

    fn deadline(self, now: impl FnOnce() -> u64) -> Result<Option<u64>, Error> {
        let Some(ttl) = self.ttl else { return Ok(None) };
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a time to live is at least a millisecond; to remove a key, delete it",
            ));
        }
        let deadline = now().checked_add(millis);
        deadline.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "a time to live that never ends; leave it out to keep the value")
        })
    }
}
