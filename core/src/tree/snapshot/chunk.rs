//! Chunks: entries in key order, compressed, with a checksum each. Byte by byte: `docs/format.md`.

use std::sync::Arc;

use bytes::Bytes;

use super::fields::Fields;
use crate::id::{Hlc, Incarnation, Lsn, OriginTag, Version};
use crate::limits::{MAX_KEY_BYTES, MAX_RECORD_BYTES_CEILING};
use crate::record::{FormatError, checksum};
use crate::tree::entry::PackedPlace;
use crate::tree::packed::{PackedRows, Part};

const WHAT: &str = "a chunk of a snapshot";
const ENTRY: &str = "an entry of a snapshot";
const MAGIC: &[u8; 4] = b"TWC1";
/// Magic, length of the body, length of the entries, number of entries, encoding, zero.
const HEADER_BYTES: usize = 20;
/// Entries one after the other, as they are or packed. Versions 1 and 2 of a snapshot have no other.
const AS_IT_IS: u16 = 0;
const LZ4: u16 = 1;
/// The heads of all entries, then the values of all, each as they are or packed.
const APART: u16 = 2;
/// Length of the packed heads, length of the heads.
const APART_BYTES: usize = 8;
/// Entries of one chunk never take more: a chunk is closed at its size, with at most one record above it.
const MAX_RAW_BYTES: usize = 2 * MAX_RECORD_BYTES_CEILING;

const LIVE: u8 = 1;
const DEADLINE: u8 = 2;

/// One entry as it stands in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) struct EntryView<'a> {
    pub(in crate::tree) key: &'a [u8],
    /// None for a tombstone.
    pub(in crate::tree) value: Option<&'a [u8]>,
    pub(in crate::tree) version: Version,
    pub(in crate::tree) lsn: Lsn,
    pub(in crate::tree) deadline_ms: Option<u64>,
}

/// Collects the entries of a chunk.
#[derive(Debug, Default)]
pub(in crate::tree) struct ChunkBuilder {
    heads: Vec<u8>,
    values: Vec<u8>,
    count: u32,
}

impl ChunkBuilder {
    /// Bytes of the entries so far.
    pub(in crate::tree) fn bytes(&self) -> usize {
        self.heads.len() + self.values.len()
    }

    /// Number of entries so far.
    pub(in crate::tree) fn count(&self) -> u32 {
        self.count
    }

    pub(in crate::tree) fn push(&mut self, entry: &EntryView<'_>) {
        let flags = if entry.value.is_some() { LIVE } else { 0 }
            | if entry.deadline_ms.is_some() { DEADLINE } else { 0 };
        let Self { heads, values, count } = self;
        heads.push(flags);
        heads.extend_from_slice(&length(entry.key).to_le_bytes());
        heads.extend_from_slice(&length(entry.value.unwrap_or_default()).to_le_bytes());
        let Version { hlc, origin } = entry.version;
        for word in [hlc.get(), origin.get(), entry.lsn.get()] {
            heads.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(deadline) = entry.deadline_ms {
            heads.extend_from_slice(&deadline.to_le_bytes());
        }
        heads.extend_from_slice(entry.key);
        values.extend_from_slice(entry.value.unwrap_or_default());
        *count += 1;
    }

    /// The bytes of the chunk; the builder is empty again.
    pub(in crate::tree) fn seal(&mut self, incarnation: Incarnation, index: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + APART_BYTES];
        let packed = Part::pack(&self.heads, &mut bytes);
        Part::pack(&self.values, &mut bytes);
        let narrow = |length: usize| u32::try_from(length).expect("chunks are at most 32 MiB");
        let body = bytes.len() - HEADER_BYTES;
        let words = [narrow(body), narrow(self.bytes()), self.count, u32::from(APART)];
        let apart = [narrow(packed), narrow(self.heads.len())];
        let fields = words.into_iter().chain(apart).flat_map(u32::to_le_bytes);
        for (place, byte) in bytes.iter_mut().zip(MAGIC.iter().copied().chain(fields)) {
            *place = byte;
        }
        let crc = checksum(seed(incarnation, index), &[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        self.heads.clear();
        self.values.clear();
        self.count = 0;
        bytes
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys and values are at most 32 MiB")
}

/// A chunk of another log, or from another place in the snapshot, never passes for this one.
pub(super) fn seed(incarnation: Incarnation, index: usize) -> u64 {
    incarnation.get().wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A chunk whose checksum was right.
pub(super) struct SealedChunk<'a> {
    count: u32,
    /// Heads alone if there are values apart, else whole entries.
    heads: Part<'a>,
    values: Option<Part<'a>>,
}

impl<'a> SealedChunk<'a> {
    /// Checks the bytes of a chunk, all of them.
    pub(super) fn open(bytes: &'a [u8], incarnation: Incarnation, index: usize) -> Result<Self, FormatError> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Short(WHAT))?;
        if !body.starts_with(MAGIC) {
            return Err(FormatError::Magic(WHAT));
        }
        if checksum(seed(incarnation, index), &[body]) != u32::from_le_bytes(*crc) {
            return Err(FormatError::Checksum(WHAT));
        }
        let mut fields = Fields::new(WHAT, &body[MAGIC.len()..]);
        let (packed, unpacked, count) = (fields.u32()? as usize, fields.u32()? as usize, fields.u32()?);
        let (encoding, zero) = (fields.u16()?, fields.u16()?);
        let packed = fields.bytes(packed)?;
        fields.finish()?;
        if unpacked > MAX_RAW_BYTES || zero != 0 {
            return Err(FormatError::Field("a chunk of a snapshot has a field that cannot be"));
        }
        let (heads, values) = match encoding {
            AS_IT_IS if packed.len() == unpacked => (Part::new(packed, unpacked)?, None),
            LZ4 if packed.len() < unpacked => (Part::new(packed, unpacked)?, None),
            AS_IT_IS | LZ4 => {
                return Err(FormatError::Field(
                    "a chunk of a snapshot unpacks to another length than it says",
                ));
            }
            APART => {
                let mut fields = Fields::new(WHAT, packed);
                let (packed, length) = (fields.u32()? as usize, fields.u32()? as usize);
                let heads = Part::new(fields.bytes(packed)?, length)?;
                let values = unpacked
                    .checked_sub(length)
                    .ok_or(FormatError::Field("heads longer than their chunk"))?;
                (heads, Some(Part::new(fields.rest(), values)?))
            }
            _ => return Err(FormatError::Field("a chunk of a snapshot is packed in a way not known here")),
        };
        Ok(Self { count, heads, values })
    }

    /// How many entries it says it has.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Unpacks all of it, in place of what is in `chunk`. After an error nothing is.
    pub(super) fn unpack(&self, chunk: &mut Chunk) -> Result<(), FormatError> {
        let unpacked = self.unpack_into(chunk);
        if unpacked.is_err() {
            *chunk = Chunk::default();
        }
        unpacked
    }

    fn unpack_into(&self, chunk: &mut Chunk) -> Result<(), FormatError> {
        chunk.count = self.count;
        chunk.apart = self.values.is_some();
        self.heads.unpack(&mut chunk.heads)?;
        chunk.values.clear();
        self.values.map_or(Ok(()), |values| values.unpack(&mut chunk.values))
    }

    /// Unpacks all but the values, and shows each row. None if the values do not lie apart, as in older snapshots. `whole`
    /// is what this was opened with.
    pub(super) fn rows(&self, whole: &Bytes) -> Result<Option<ChunkRows>, FormatError> {
        let Some(values) = self.values else { return Ok(None) };
        let mut heads = Vec::new();
        self.heads.unpack(&mut heads)?;
        let rows = ChunkRows {
            count: self.count,
            values: values.length(),
            rows: Arc::new(PackedRows::new(heads, values, whole)),
        };
        Ok(Some(rows))
    }
}

/// A chunk that is unpacked. Its memory serves one chunk after the other.
#[derive(Debug, Default)]
pub(in crate::tree) struct Chunk {
    heads: Vec<u8>,
    values: Vec<u8>,
    apart: bool,
    count: u32,
}

impl Chunk {
    /// Checks the bytes of a chunk, all of them, and unpacks its entries in place of those that are here. After an
    /// error there are none.
    #[cfg(any(test, feature = "test-util"))]
    pub(in crate::tree) fn parse(
        &mut self,
        bytes: &[u8],
        incarnation: Incarnation,
        index: usize,
    ) -> Result<(), FormatError> {
        let opened = SealedChunk::open(bytes, incarnation, index);
        if opened.is_err() {
            *self = Self::default();
        }
        opened?.unpack(self)
    }

    /// Its entries, in key order.
    pub(in crate::tree) fn entries(&self) -> impl Iterator<Item = Result<EntryView<'_>, FormatError>> {
        let (mut fields, mut values) = (Fields::new(ENTRY, &self.heads), Fields::new(ENTRY, &self.values));
        let apart = self.apart;
        let mut left = self.count;
        std::iter::from_fn(move || {
            if left == 0 {
                let more = !fields.is_empty() || !values.is_empty();
                (fields, values) = (Fields::new(ENTRY, &[]), Fields::new(ENTRY, &[]));
                return more.then_some(Err(more_than_entries()));
            }
            left -= 1;
            let entry = read_head(&mut fields).and_then(|head| {
                let source = if apart { &mut values } else { &mut fields };
                Ok(head.with_value(source.bytes(head.value_bytes)?))
            });
            if entry.is_err() {
                (left, fields, values) = (0, Fields::new(ENTRY, &[]), Fields::new(ENTRY, &[]));
            }
            Some(entry)
        })
    }
}

/// A chunk whose values are still packed.
#[derive(Debug)]
pub(super) struct ChunkRows {
    count: u32,
    values: usize,
    pub(super) rows: Arc<PackedRows>,
}

/// A row whose value is still packed.
pub(super) struct ChunkRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) place: PackedPlace,
    pub(super) version: Version,
    pub(super) lsn: Lsn,
}

impl ChunkRows {
    /// Its rows, in key order.
    pub(super) fn visit(
        &self,
        mut visit: impl FnMut(ChunkRow<'_>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let heads = self.rows.heads();
        let (mut fields, mut value_at) = (Fields::new(ENTRY, heads), 0_usize);
        for _ in 0..self.count {
            let head = read_head(&mut fields)?;
            let place = PackedPlace {
                key_at: heads.len() - fields.rest().len() - head.key.len(),
                key_bytes: head.key.len(),
                value_at,
                value_bytes: head.is_live().then_some(head.value_bytes),
                has_deadline: head.deadline_ms.is_some(),
            };
            value_at += head.value_bytes;
            if value_at > self.values {
                return Err(FormatError::Short(ENTRY));
            }
            visit(ChunkRow { key: head.key, place, version: head.version, lsn: head.lsn })?;
        }
        if fields.is_empty() && value_at == self.values { Ok(()) } else { Err(more_than_entries()) }
    }
}

fn more_than_entries() -> FormatError {
    FormatError::Field("a chunk of a snapshot has more bytes than entries")
}

/// What stands of an entry before its value.
#[derive(Clone, Copy)]
struct Head<'a> {
    flags: u8,
    key: &'a [u8],
    value_bytes: usize,
    version: Version,
    lsn: Lsn,
    deadline_ms: Option<u64>,
}

impl<'a> Head<'a> {
    fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    fn with_value(self, value: &'a [u8]) -> EntryView<'a> {
        let Self { key, version, lsn, deadline_ms, .. } = self;
        EntryView { key, value: self.is_live().then_some(value), version, lsn, deadline_ms }
    }
}

fn read_head<'a>(fields: &mut Fields<'a>) -> Result<Head<'a>, FormatError> {
    let flags = fields.u8()?;
    if flags & !(LIVE | DEADLINE) != 0 {
        return Err(FormatError::Field("an entry of a snapshot has a flag that is not known here"));
    }
    let (key, value_bytes) = (fields.u32()? as usize, fields.u32()? as usize);
    let version = Version { hlc: Hlc::new(fields.u64()?), origin: OriginTag::new(fields.u64()?) };
    let lsn = Lsn::new(fields.u64()?);
    let deadline_ms = if flags & DEADLINE != 0 { Some(fields.u64()?) } else { None };
    if key > MAX_KEY_BYTES {
        return Err(FormatError::Field("an entry of a snapshot has a key longer than any"));
    }
    Ok(Head { flags, key: fields.bytes(key)?, value_bytes, version, lsn, deadline_ms })
}
