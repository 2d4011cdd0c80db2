//! [`Entry`]: what the state keeps of one key.

use bytes::Bytes;

use crate::id::{Lsn, Version};

const LIVE: u8 = 1;
const EXPIRES: u8 = 2;
const GONE: u8 = 4;
const DEADLINE_BYTES: usize = 8;

/// The winning write of one key: one allocation, copied out of its page so that it holds nothing larger alive.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key, the value, and the deadline if there is one: most entries have none, so it costs no field.
    data: Box<[u8]>,
    key_bytes: u32,
    flags: u8,
    pub(super) version: Version,
    /// Where in this log the write lies that set it, or the delete that removed it.
    pub(super) lsn: Lsn,
}

impl Entry {
    /// An entry of a key; a value of None is a tombstone, and a tombstone has no deadline.
    pub(super) fn new(
        key: &[u8],
        value: Option<&[u8]>,
        deadline_ms: Option<u64>,
        version: Version,
        lsn: Lsn,
    ) -> Self {
        let deadline_ms = value.and(deadline_ms);
        let bytes = value.unwrap_or_default();
        let flags = Self::flags(value, deadline_ms);
        let mut data = Vec::with_capacity(key.len() + bytes.len() + Self::deadline_bytes(flags));
        data.extend_from_slice(key);
        data.extend_from_slice(bytes);
        if let Some(deadline) = deadline_ms {
            data.extend_from_slice(&deadline.to_le_bytes());
        }
        Self {
            data: data.into_boxed_slice(),
            key_bytes: u32::try_from(key.len()).expect("keys are at most 4 KiB"),
            flags,
            version,
            lsn,
        }
    }

    /// Becomes the entry of a later write of its key; where that has the same length, in the same place.
    pub(super) fn rewrite(
        &mut self,
        value: Option<&[u8]>,
        deadline_ms: Option<u64>,
        version: Version,
        lsn: Lsn,
    ) {
        let fresh = Self::flags(value, deadline_ms);
        let (key_bytes, bytes) = (self.key_bytes as usize, value.unwrap_or_default());
        if fresh != self.flags || self.data.len() != key_bytes + bytes.len() + Self::deadline_bytes(fresh) {
            *self = Self::new(self.key(), value, deadline_ms, version, lsn);
            return;
        }
        let (kept, deadline) = self.data[key_bytes..].split_at_mut(bytes.len());
        kept.copy_from_slice(bytes);
        if let (Some(ms), false) = (deadline_ms, deadline.is_empty()) {
            deadline.copy_from_slice(&ms.to_le_bytes());
        }
        (self.version, self.lsn) = (version, lsn);
    }

    fn flags(value: Option<&[u8]>, deadline_ms: Option<u64>) -> u8 {
        match (value, deadline_ms) {
            (None, _) => 0,
            (Some(_), None) => LIVE,
            (Some(_), Some(_)) => LIVE | EXPIRES,
        }
    }

    fn deadline_bytes(flags: u8) -> usize {
        if flags & EXPIRES == 0 { 0 } else { DEADLINE_BYTES }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.data[..self.key_bytes as usize]
    }

    /// Whether it holds a value, expired or not.
    pub(super) fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    /// The value, expired or not; None for a tombstone.
    pub(super) fn value(&self) -> Option<&[u8]> {
        let end = self.data.len() - Self::deadline_bytes(self.flags);
        self.is_live().then(|| &self.data[self.key_bytes as usize..end])
    }

    /// The value that a reader sees whose clock says `now`.
    pub(super) fn value_at(&self, now: u64) -> Option<&[u8]> {
        if self.deadline_ms().is_some_and(|deadline| deadline <= now) { None } else { self.value() }
    }

    /// Makes it one that is nowhere shown or found: of what it was, the key stays, which has a place in the order of keys.
    pub(super) fn leave(&mut self) {
        if self.data.len() > self.key_bytes as usize {
            self.data = self.key().into();
        }
        self.flags = GONE;
    }

    /// Makes it nothing: its key has no place in the order any more.
    pub(super) fn vacate(&mut self) {
        (self.data, self.key_bytes, self.flags) = (Box::default(), 0, GONE);
    }

    /// Whether nothing of it is left.
    pub(super) fn is_vacant(&self) -> bool {
        self.is_gone() && self.key_bytes == 0
    }

    /// Whether it was reaped.
    pub(super) fn is_gone(&self) -> bool {
        self.flags & GONE != 0
    }

    /// When it expires, in milliseconds since 1970.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        if self.flags & EXPIRES == 0 {
            return None;
        }
        let (_, deadline) = self.data.split_last_chunk()?;
        Some(u64::from_le_bytes(*deadline))
    }

    /// Bytes of key, value and deadline.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// A live key as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub value: Bytes,
    /// The version of the write that set it.
    pub version: Version,
    /// When it expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
}

/// One row of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The version of the write that set it.
    pub version: Version,
    /// When it expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
}
