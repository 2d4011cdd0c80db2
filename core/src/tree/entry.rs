//! [`Entry`]: what the state keeps of one key.

use bytes::Bytes;

use crate::id::{Lsn, Version};

/// The winning write of one key: one allocation, copied out of its page so that it holds nothing larger alive.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key, then the value.
    data: Box<[u8]>,
    key_bytes: u32,
    live: bool,
    pub(super) version: Version,
    /// Where in this log the write lies that set it.
    pub(super) lsn: Lsn,
}

impl Entry {
    /// An entry of a key; a value of None is a tombstone.
    pub(super) fn new(key: &[u8], value: Option<&[u8]>, version: Version, lsn: Lsn) -> Self {
        let bytes = value.unwrap_or_default();
        let mut data = Vec::with_capacity(key.len() + bytes.len());
        data.extend_from_slice(key);
        data.extend_from_slice(bytes);
        Self {
            data: data.into_boxed_slice(),
            key_bytes: u32::try_from(key.len()).expect("keys are at most 4 KiB"),
            live: value.is_some(),
            version,
            lsn,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.data[..self.key_bytes as usize]
    }

    /// The value; None for a tombstone.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.live.then(|| &self.data[self.key_bytes as usize..])
    }

    /// Bytes of key and value.
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
}
