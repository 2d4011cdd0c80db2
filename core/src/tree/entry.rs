//! [`Entry`]: what the state keeps of one key.

use std::sync::Arc;

use bytes::Bytes;

use super::packed::PackedRows;
use crate::id::{Lsn, Version};

const LIVE: u8 = 1;
const EXPIRES: u8 = 2;
const GONE: u8 = 4;
const DEADLINE_BYTES: usize = 8;

/// The winning write of one key.
#[derive(Debug)]
pub(super) struct Entry {
    data: Data,
    pub(super) version: Version,
    /// Where in this log the write lies that set it, or the delete that removed it.
    pub(super) lsn: Lsn,
}

/// Key, value, and the deadline if there is one: most entries have none, so it costs no field.
#[derive(Debug)]
enum Data {
    /// One allocation, copied out of its page so that it holds nothing larger alive: key, value, deadline.
    Own { bytes: Box<[u8]>, key_bytes: u16, flags: u8 },
    /// A row of a snapshot, for as long as it has not been unpacked: the deadline lies before the key.
    Packed { rows: Arc<PackedRows>, key_at: u32, value_at: u32, value_bytes: u32, key_bytes: u16, flags: u8 },
}

// A branch more is nothing beside a cache line more.
const _: () = assert!(size_of::<Entry>() == 48);

/// Where the parts of a packed row lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedPlace {
    /// Where the key begins; a deadline lies before it.
    pub(super) key_at: usize,
    pub(super) key_bytes: usize,
    pub(super) value_at: usize,
    /// None for a tombstone.
    pub(super) value_bytes: Option<usize>,
    pub(super) has_deadline: bool,
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
        let value_bytes = value.unwrap_or_default();
        let flags = flags(value.is_some(), deadline_ms.is_some());
        let mut bytes = Vec::with_capacity(key.len() + value_bytes.len() + deadline_bytes(flags));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value_bytes);
        if let Some(deadline) = deadline_ms {
            bytes.extend_from_slice(&deadline.to_le_bytes());
        }
        let data = Data::Own { bytes: bytes.into_boxed_slice(), key_bytes: length_of_key(key.len()), flags };
        Self { data, version, lsn }
    }

    /// The entry of a row that stays packed. The place was looked up in those rows.
    pub(super) fn packed(rows: Arc<PackedRows>, place: PackedPlace, version: Version, lsn: Lsn) -> Self {
        let narrow = |length: usize| u32::try_from(length).expect("a chunk has at most 32 MiB of entries");
        let data = Data::Packed {
            rows,
            key_at: narrow(place.key_at),
            value_at: narrow(place.value_at),
            value_bytes: narrow(place.value_bytes.unwrap_or_default()),
            key_bytes: length_of_key(place.key_bytes),
            flags: flags(place.value_bytes.is_some(), place.value_bytes.is_some() && place.has_deadline),
        };
        Self { data, version, lsn }
    }

    /// Gives it memory of its own, if it is a row of a snapshot still.
    pub(super) fn unpack(&mut self) {
        if let Data::Packed { .. } = self.data {
            let value = self.value();
            *self = Self::new(self.key(), value, self.deadline_ms(), self.version, self.lsn);
        }
    }

    #[cfg(test)]
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.data, Data::Packed { .. })
    }

    /// Becomes the entry of a later write of its key; where that has the same length, in the same place.
    pub(super) fn rewrite(
        &mut self,
        value: Option<&[u8]>,
        deadline_ms: Option<u64>,
        version: Version,
        lsn: Lsn,
    ) {
        let deadline_ms = value.and(deadline_ms);
        let fresh = flags(value.is_some(), deadline_ms.is_some());
        let wanted = value.unwrap_or_default();
        match &mut self.data {
            Data::Own { bytes, key_bytes, flags }
                if *flags == fresh
                    && bytes.len() == usize::from(*key_bytes) + wanted.len() + deadline_bytes(fresh) =>
            {
                let (kept, deadline) = bytes[usize::from(*key_bytes)..].split_at_mut(wanted.len());
                kept.copy_from_slice(wanted);
                if let Some(ms) = deadline_ms {
                    deadline.copy_from_slice(&ms.to_le_bytes());
                }
                (self.version, self.lsn) = (version, lsn);
            }
            _ => *self = Self::new(self.key(), value, deadline_ms, version, lsn),
        }
    }

    fn flags(&self) -> u8 {
        match self.data {
            Data::Own { flags, .. } | Data::Packed { flags, .. } => flags,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        match &self.data {
            Data::Own { bytes, key_bytes, .. } => &bytes[..usize::from(*key_bytes)],
            Data::Packed { rows, key_at, key_bytes, .. } => {
                &rows.heads()[*key_at as usize..][..usize::from(*key_bytes)]
            }
        }
    }

    /// Whether it holds a value, expired or not.
    pub(super) fn is_live(&self) -> bool {
        self.flags() & LIVE != 0
    }

    /// The value, expired or not; None for a tombstone.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.is_live().then(|| match &self.data {
            Data::Own { bytes, key_bytes, flags } => {
                &bytes[usize::from(*key_bytes)..bytes.len() - deadline_bytes(*flags)]
            }
            Data::Packed { rows, value_at, value_bytes, .. } => {
                &rows.values()[*value_at as usize..][..*value_bytes as usize]
            }
        })
    }

    /// The value that a reader sees whose clock says `now`.
    pub(super) fn value_at(&self, now: u64) -> Option<&[u8]> {
        if self.deadline_ms().is_some_and(|deadline| deadline <= now) { None } else { self.value() }
    }

    /// Makes it one that is nowhere shown or found: of what it was, the key stays, which has a place in the order of keys.
    pub(super) fn leave(&mut self) {
        let bytes = match &mut self.data {
            Data::Own { bytes, key_bytes, .. } if bytes.len() == usize::from(*key_bytes) => {
                std::mem::take(bytes)
            }
            _ => self.key().into(),
        };
        self.data = Data::Own { key_bytes: length_of_key(bytes.len()), bytes, flags: GONE };
    }

    /// Makes it nothing: its key has no place in the order any more.
    pub(super) fn vacate(&mut self) {
        self.data = Data::Own { bytes: Box::default(), key_bytes: 0, flags: GONE };
    }

    /// Whether nothing of it is left.
    pub(super) fn is_vacant(&self) -> bool {
        self.is_gone() && self.key().is_empty()
    }

    /// Whether it was reaped.
    pub(super) fn is_gone(&self) -> bool {
        self.flags() & GONE != 0
    }

    /// When it expires, in milliseconds since 1970.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        if self.flags() & EXPIRES == 0 {
            return None;
        }
        let before = match &self.data {
            Data::Own { bytes, .. } => &bytes[..],
            Data::Packed { rows, key_at, .. } => &rows.heads()[..*key_at as usize],
        };
        let (_, deadline) = before.split_last_chunk()?;
        Some(u64::from_le_bytes(*deadline))
    }

    /// Bytes of key, value and deadline.
    pub(super) fn bytes(&self) -> usize {
        match &self.data {
            Data::Own { bytes, .. } => bytes.len(),
            Data::Packed { value_bytes, key_bytes, flags, .. } => {
                usize::from(*key_bytes) + *value_bytes as usize + deadline_bytes(*flags)
            }
        }
    }
}

fn length_of_key(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("keys are at most 4 KiB")
}

fn flags(live: bool, expires: bool) -> u8 {
    match (live, expires) {
        (false, _) => 0,
        (true, false) => LIVE,
        (true, true) => LIVE | EXPIRES,
    }
}

fn deadline_bytes(flags: u8) -> usize {
    if flags & EXPIRES == 0 { 0 } else { DEADLINE_BYTES }
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
