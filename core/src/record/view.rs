//! [`RecordView`]: one record, read in place.

use super::block::Block;
use super::error::FormatError;
use super::mutation::{Kind, Mutation};
use crate::id::{Hlc, Offset, PartitionId};
use crate::limits::MAX_KEY_BYTES;

/// Bytes of a record in front of its deadline, keys and value.
pub const RECORD_HEADER_BYTES: usize = 20;

const HAS_TTL: u8 = 1;
const HAS_END_KEY: u8 = 2;
const HAS_BATCH: u8 = 4;
const EXTENDED: u8 = 8;
const KNOWN_FLAGS: u8 = HAS_TTL | HAS_END_KEY | HAS_BATCH | EXTENDED;

/// One record of a block. Slices of the block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// What it does.
    pub kind: Kind,
    /// The partition of its key.
    pub partition: PartitionId,
    /// When it was committed at its origin.
    pub hlc: Hlc,
    /// Whether it belongs to an atomic batch: the records around it with the same HLC.
    pub in_batch: bool,
    /// When its value expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// The key.
    pub key: &'a [u8],
    /// The exclusive end of a range.
    pub end_key: Option<&'a [u8]>,
    /// Rarely used fields, as protobuf.
    pub extended: Option<&'a [u8]>,
    /// The value.
    pub value: &'a [u8],
    /// Its offset, if its block is a filtered one; else it follows from its place in the block.
    pub offset: Option<Offset>,
}

/// Takes bytes from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FormatError::Short("a record"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.take(N)?.try_into().expect("take returns what was asked for"))
    }

    fn length(&mut self) -> Result<usize, FormatError> {
        usize::try_from(u32::from_le_bytes(self.number()?))
            .map_err(|_| FormatError::Field("a length is too large"))
    }

    fn sized(&mut self, present: bool) -> Result<Option<&'a [u8]>, FormatError> {
        if !present {
            return Ok(None);
        }
        let length = self.length()?;
        self.take(length).map(Some)
    }
}

impl<'a> RecordView<'a> {
    /// Reads the record at the front of `bytes`, and says how long it is.
    ///
    /// # Errors
    /// When the bytes are no record of a known kind.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), FormatError> {
        let mut reader = Reader(bytes);
        let head: [u8; RECORD_HEADER_BYTES] = reader.number()?;
        let kind = Kind::from_byte(head[0])?;
        let flags = head[1];
        if flags & !KNOWN_FLAGS != 0 {
            return Err(FormatError::Field("a record has a flag that is not known here"));
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let key_length = usize::try_from(word(4)).map_err(|_| FormatError::Field("a key is too long"))?;
        let value_length = usize::try_from(word(8)).map_err(|_| FormatError::Field("a value is too long"))?;
        let hlc = u64::from(word(12)) | (u64::from(word(16)) << 32);
        let deadline_ms =
            if flags & HAS_TTL == 0 { None } else { Some(u64::from_le_bytes(reader.number()?)) };
        let key = reader.take(key_length)?;
        let end_key = reader.sized(flags & HAS_END_KEY != 0)?;
        let extended = reader.sized(flags & EXTENDED != 0)?;
        let value = reader.take(value_length)?;
        let view = Self {
            kind,
            partition: PartitionId::new(u16::from_le_bytes([head[2], head[3]])),
            hlc: Hlc::new(hlc),
            in_batch: flags & HAS_BATCH != 0,
            deadline_ms,
            key,
            end_key,
            extended,
            value,
            offset: None,
        };
        Ok((view, bytes.len() - reader.0.len()))
    }
}

impl RecordView<'_> {
    /// Bytes of keys, value and what else it carries: what limits count.
    pub fn payload_bytes(&self) -> usize {
        let parts = [Some(self.key), self.end_key, self.extended, Some(self.value)];
        parts.into_iter().flatten().map(<[u8]>::len).sum()
    }

    /// Whether it can be a record of a block of a tree with that many partitions: its fields are those of its kind, and it
    /// is in the partition of its key. The mark of a filtered block has no key.
    ///
    /// # Errors
    /// Says which field cannot be.
    pub fn check_in(&self, block: &Block, partitions: u16) -> Result<(), FormatError> {
        if self.kind == Kind::Mark && block.is_filtered() {
            let bare = self.payload_bytes() == 0 && self.deadline_ms.is_none() && self.end_key.is_none();
            let alone = block.count() == 1 && self.partition.get() < partitions;
            return if bare && alone {
                Ok(())
            } else {
                Err(FormatError::Field("a mark that covers is not alone in its block"))
            };
        }
        self.check()?;
        if self.partition == PartitionId::of(self.key, partitions) {
            return Ok(());
        }
        Err(FormatError::Field("a record is not in the partition of its key"))
    }

    /// Whether its fields are those of its kind: for records that come from elsewhere.
    ///
    /// # Errors
    /// Says which field cannot be.
    pub fn check(&self) -> Result<(), FormatError> {
        if self.key.is_empty() || self.key.len() > MAX_KEY_BYTES {
            return Err(FormatError::Field("a record's key is empty or over the limit"));
        }
        match (self.kind, self.end_key) {
            (Kind::DeleteRange, Some(end)) if end.len() > MAX_KEY_BYTES => {
                return Err(FormatError::Field("the end of a range is over the limit of a key"));
            }
            (Kind::DeleteRange, Some(end)) if self.key < end => {}
            (Kind::DeleteRange, _) => {
                return Err(FormatError::Field("a range has no end behind its beginning"));
            }
            (_, Some(_)) => return Err(FormatError::Field("a record that is no range has an end")),
            (_, None) => {}
        }
        let deletes = matches!(self.kind, Kind::Delete | Kind::DeleteRange);
        if deletes && (self.deadline_ms.is_some() || !self.value.is_empty()) {
            return Err(FormatError::Field("a delete has a value or a deadline"));
        }
        Ok(())
    }
}

/// Appends the record of a mutation.
pub(super) fn encode(
    into: &mut Vec<u8>,
    mutation: &Mutation,
    partition: PartitionId,
    hlc: Hlc,
    in_batch: bool,
) {
    let flag = |present: bool, flag: u8| if present { flag } else { 0 };
    let flags = flag(mutation.deadline_ms.is_some(), HAS_TTL)
        | flag(mutation.end_key.is_some(), HAS_END_KEY)
        | flag(in_batch, HAS_BATCH);
    let key_length = u32::try_from(mutation.key.len()).expect("a key over its limit is refused at the door");
    let value_length =
        u32::try_from(mutation.value.len()).expect("a value over its limit is refused at the door");
    let mut head = [0_u8; RECORD_HEADER_BYTES];
    head[0] = mutation.kind as u8;
    head[1] = flags;
    head[2..4].copy_from_slice(&partition.get().to_le_bytes());
    head[4..8].copy_from_slice(&key_length.to_le_bytes());
    head[8..12].copy_from_slice(&value_length.to_le_bytes());
    head[12..20].copy_from_slice(&hlc.get().to_le_bytes());
    into.extend_from_slice(&head);
    if let Some(deadline) = mutation.deadline_ms {
        into.extend_from_slice(&deadline.to_le_bytes());
    }
    into.extend_from_slice(&mutation.key);
    if let Some(end_key) = &mutation.end_key {
        let length = u32::try_from(end_key.len()).expect("a key over its limit is refused at the door");
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(end_key);
    }
    into.extend_from_slice(&mutation.value);
}
