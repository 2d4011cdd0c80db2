//! [`StateRow`]: one key as the state has it, for consumers that the log does not tell of it.

use bytes::Bytes;

use crate::id::Version;

/// One key as the state has it: what came with a seed, or lies below what the log retains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// The key.
    pub key: Bytes,
    /// Its value; None: it was deleted.
    pub value: Option<Bytes>,
    /// When the value expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// What set or deleted it last.
    pub version: Version,
}

impl StateRow {
    /// Bytes of its key and value.
    pub fn bytes(&self) -> u64 {
        (self.key.len() + self.value.as_ref().map_or(0, Bytes::len)) as u64
    }
}

/// A stretch of rows in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateRows {
    /// The rows: none, maybe, though more are to come.
    pub rows: Vec<StateRow>,
    /// After which key to go on; None at the end.
    pub after: Option<Bytes>,
}
