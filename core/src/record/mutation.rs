//! [`Mutation`]: what a caller wants to happen to a key, before it has a place in the log.

use bytes::Bytes;

use super::error::FormatError;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Sets a key to a value.
    Set = 1,
    /// Deletes a key.
    Delete = 2,
    /// Deletes the keys of a range that have a lower version, also those that arrive later.
    DeleteRange = 3,
    /// Maintenance of this log; never shipped.
    Mark = 4,
}

impl Kind {
    /// The kind of a byte.
    ///
    /// # Errors
    /// `Kind` for a byte that is none, so that a newer writer is refused and not misread.
    pub fn from_byte(byte: u8) -> Result<Self, FormatError> {
        match byte {
            1 => Ok(Self::Set),
            2 => Ok(Self::Delete),
            3 => Ok(Self::DeleteRange),
            4 => Ok(Self::Mark),
            other => Err(FormatError::Kind(other)),
        }
    }
}

/// A change of one key, or of a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// What happens.
    pub kind: Kind,
    /// The key, or the first key of a range.
    pub key: Bytes,
    /// The key after the last one of a range.
    pub end_key: Option<Bytes>,
    /// The new value; empty for a delete.
    pub value: Bytes,
    /// When the value expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
}

impl Mutation {
    /// Sets a key.
    pub fn set(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Set, key: key.into(), end_key: None, value: value.into(), deadline_ms: None }
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Delete, ..Self::set(key, Bytes::new()) }
    }

    /// Deletes the keys from `from` up to, and without, `to`.
    pub fn delete_range(from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        Self { kind: Kind::DeleteRange, end_key: Some(to.into()), ..Self::set(from, Bytes::new()) }
    }

    /// How many bytes its record takes.
    pub fn record_bytes(&self) -> usize {
        let deadline = if self.deadline_ms.is_some() { 8 } else { 0 };
        let end_key = self.end_key.as_ref().map_or(0, |end_key| 4 + end_key.len());
        super::RECORD_HEADER_BYTES + deadline + self.key.len() + end_key + self.value.len()
    }
}
