//! Chunks: entries in key order, compressed, with a checksum each. Byte by byte: `docs/format.md`.

use super::fields::Fields;
use crate::id::{Hlc, Incarnation, Lsn, OriginTag, Version};
use crate::limits::MAX_RECORD_BYTES_CEILING;
use crate::record::{FormatError, checksum};

const MAGIC: &[u8; 4] = b"TWC1";
/// Magic, length of the body, length of the entries, number of entries, encoding, zero.
const HEADER_BYTES: usize = 20;
const AS_IT_IS: u16 = 0;
const LZ4: u16 = 1;
/// Entries of one chunk never take more: a chunk is closed at its size, with at most one record above it.
const MAX_RAW_BYTES: usize = 2 * MAX_RECORD_BYTES_CEILING;
/// What LZ4 gains at most: a byte of length stands for 255 bytes.
const MAX_GAIN: usize = 256;

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
    raw: Vec<u8>,
    count: u32,
}

impl ChunkBuilder {
    /// Bytes of the entries so far.
    pub(in crate::tree) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// Number of entries so far.
    pub(in crate::tree) fn count(&self) -> u32 {
        self.count
    }

    pub(in crate::tree) fn push(&mut self, entry: &EntryView<'_>) {
        let flags = if entry.value.is_some() { LIVE } else { 0 }
            | if entry.deadline_ms.is_some() { DEADLINE } else { 0 };
        self.raw.push(flags);
        self.raw.extend_from_slice(&length(entry.key).to_le_bytes());
        self.raw.extend_from_slice(&length(entry.value.unwrap_or_default()).to_le_bytes());
        let Version { hlc, origin } = entry.version;
        for word in [hlc.get(), origin.get(), entry.lsn.get()] {
            self.raw.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(deadline) = entry.deadline_ms {
            self.raw.extend_from_slice(&deadline.to_le_bytes());
        }
        self.raw.extend_from_slice(entry.key);
        self.raw.extend_from_slice(entry.value.unwrap_or_default());
        self.count += 1;
    }

    /// The bytes of the chunk; the builder is empty again.
    pub(in crate::tree) fn seal(&mut self, incarnation: Incarnation, index: usize) -> Vec<u8> {
        let mut body = vec![0; lz4_flex::block::get_maximum_output_size(self.raw.len())];
        let packed = lz4_flex::block::compress_into(&self.raw, &mut body).unwrap_or(usize::MAX);
        let (body, encoding) =
            if packed < self.raw.len() { (&body[..packed], LZ4) } else { (&self.raw[..], AS_IT_IS) };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + 4);
        bytes.extend_from_slice(MAGIC);
        for word in [length(body), length(&self.raw), self.count] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&encoding.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(body);
        let crc = checksum(seed(incarnation, index), &[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        self.raw.clear();
        self.count = 0;
        bytes
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys, values and chunks are at most 32 MiB")
}

/// A chunk of another log, or from another place in the snapshot, never passes for this one.
pub(super) fn seed(incarnation: Incarnation, index: usize) -> u64 {
    incarnation.get().wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A chunk whose checksum was right. Its memory serves one chunk after the other.
#[derive(Debug, Default)]
pub(in crate::tree) struct Chunk {
    raw: Vec<u8>,
    count: u32,
}

impl Chunk {
    /// Checks the bytes of a chunk, all of them, and unpacks its entries in place of those that are here. After an
    /// error there are none.
    pub(in crate::tree) fn parse(
        &mut self,
        bytes: &[u8],
        incarnation: Incarnation,
        index: usize,
    ) -> Result<(), FormatError> {
        let parsed = self.unpack(bytes, incarnation, index);
        if parsed.is_err() {
            *self = Self::default();
        }
        parsed
    }

    fn unpack(&mut self, bytes: &[u8], incarnation: Incarnation, index: usize) -> Result<(), FormatError> {
        const WHAT: &str = "a chunk of a snapshot";
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
        if unpacked > MAX_RAW_BYTES || unpacked > packed.len().saturating_mul(MAX_GAIN) || zero != 0 {
            return Err(FormatError::Field("a chunk of a snapshot has a field that cannot be"));
        }
        // What is written over need not be zero.
        self.raw.resize(unpacked, 0);
        self.count = count;
        let written = match encoding {
            AS_IT_IS if packed.len() == unpacked => {
                self.raw.copy_from_slice(packed);
                unpacked
            }
            AS_IT_IS => packed.len(),
            LZ4 => lz4_flex::block::decompress_into(packed, &mut self.raw)
                .map_err(|_| FormatError::Field("a chunk of a snapshot cannot be unpacked"))?,
            _ => return Err(FormatError::Field("a chunk of a snapshot is packed in a way not known here")),
        };
        if written != unpacked {
            return Err(FormatError::Field("a chunk of a snapshot unpacks to another length than it says"));
        }
        Ok(())
    }

    /// How many entries it says it has.
    pub(in crate::tree) fn count(&self) -> u32 {
        self.count
    }

    /// Its entries, in key order.
    pub(in crate::tree) fn entries(&self) -> impl Iterator<Item = Result<EntryView<'_>, FormatError>> {
        let mut fields = Fields::new("an entry of a snapshot", &self.raw);
        let mut left = self.count;
        std::iter::from_fn(move || match (left, fields.is_empty()) {
            (0, true) => None,
            (0, false) => {
                fields = Fields::new("", &[]);
                Some(Err(FormatError::Field("a chunk of a snapshot has more bytes than entries")))
            }
            _ => {
                left -= 1;
                let entry = read_entry(&mut fields);
                if entry.is_err() {
                    (left, fields) = (0, Fields::new("", &[]));
                }
                Some(entry)
            }
        })
    }
}

fn read_entry<'a>(fields: &mut Fields<'a>) -> Result<EntryView<'a>, FormatError> {
    let flags = fields.u8()?;
    if flags & !(LIVE | DEADLINE) != 0 {
        return Err(FormatError::Field("an entry of a snapshot has a flag that is not known here"));
    }
    let (key, value) = (fields.u32()? as usize, fields.u32()? as usize);
    let version = Version { hlc: Hlc::new(fields.u64()?), origin: OriginTag::new(fields.u64()?) };
    let lsn = Lsn::new(fields.u64()?);
    let deadline_ms = if flags & DEADLINE != 0 { Some(fields.u64()?) } else { None };
    let key = fields.bytes(key)?;
    let value = fields.bytes(value)?;
    Ok(EntryView { key, value: (flags & LIVE != 0).then_some(value), version, lsn, deadline_ms })
}
