//! [`SnapshotFooter`]: where the chunks are, and what was known only once all were written. Byte by byte:
//! `docs/format.md`.

use std::ops::Range;

use super::fields::Fields;
use crate::id::{Incarnation, Lsn};
use crate::record::{FormatError, checksum};

const WHAT: &str = "the footer of a snapshot";
const MAGIC: &[u8; 4] = b"TWQ1";
const TAIL: &[u8; 4] = b"TWQE";
/// Length of the footer, then a magic: the last bytes of the file.
pub(in crate::tree) const TAIL_BYTES: usize = 8;

/// Where one chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) struct ChunkPlace {
    /// Its first byte in the file.
    pub(in crate::tree) at: u64,
    /// Its length, checksum included.
    pub(in crate::tree) length: u32,
    /// How many entries it has.
    pub(in crate::tree) entries: u32,
    /// Its checksum.
    pub(in crate::tree) crc: u32,
}

/// The end of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tree) struct SnapshotFooter {
    /// The end of the applied log after the last chunk: no entry lies at or above it.
    pub(in crate::tree) end: Lsn,
    /// Entries, tombstones included.
    pub(in crate::tree) entries: u64,
    /// Bytes of the entries before they were packed.
    pub(in crate::tree) raw_bytes: u64,
    /// The chunks in order.
    pub(in crate::tree) chunks: Vec<ChunkPlace>,
    /// The records below [`end`](Self::end) that lost on arrival, as ranges of positions.
    pub(in crate::tree) superseded: Vec<Range<Lsn>>,
}

impl ChunkPlace {
    /// The place of the bytes of a chunk.
    pub(in crate::tree) fn of(at: u64, entries: u32, bytes: &[u8]) -> Self {
        let crc = bytes.last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
        let length = u32::try_from(bytes.len()).expect("a chunk has at most 32 MiB");
        Self { at, length, entries, crc }
    }
}

impl SnapshotFooter {
    /// The footer of a snapshot without a chunk that ends where it begins.
    pub(in crate::tree) fn new(covered: Lsn) -> Self {
        Self { end: covered, entries: 0, raw_bytes: 0, chunks: Vec::new(), superseded: Vec::new() }
    }

    /// The footer and the tail behind it.
    pub(in crate::tree) fn encode(&self, incarnation: Incarnation) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let count = |count: usize| u32::try_from(count).expect("counted in 32 bits").to_le_bytes();
        for word in [self.end.get(), self.entries, self.raw_bytes] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&count(self.chunks.len()));
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.at.to_le_bytes());
            for word in [chunk.length, chunk.entries, chunk.crc] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&count(self.superseded.len()));
        for lost in &self.superseded {
            bytes.extend_from_slice(&lost.start.get().to_le_bytes());
            bytes.extend_from_slice(&lost.end.get().to_le_bytes());
        }
        let crc = checksum(incarnation.get(), &[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let length = count(bytes.len());
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(TAIL);
        bytes
    }

    /// The length of the footer before these last bytes of a file.
    pub(in crate::tree) fn length(tail: &[u8]) -> Result<usize, FormatError> {
        let mut fields = Fields::new(WHAT, tail);
        let length = fields.u32()? as usize;
        if fields.bytes(TAIL.len())? != TAIL {
            return Err(FormatError::Magic("footer of a snapshot"));
        }
        fields.finish()?;
        Ok(length)
    }

    /// Reads a footer back, without the tail, checksum included.
    pub(in crate::tree) fn decode(bytes: &[u8], incarnation: Incarnation) -> Result<Self, FormatError> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Short(WHAT))?;
        if !body.starts_with(MAGIC) {
            return Err(FormatError::Magic("footer of a snapshot"));
        }
        if checksum(incarnation.get(), &[body]) != u32::from_le_bytes(*crc) {
            return Err(FormatError::Checksum(WHAT));
        }
        let mut fields = Fields::new(WHAT, &body[MAGIC.len()..]);
        let end = Lsn::new(fields.u64()?);
        let (entries, raw_bytes) = (fields.u64()?, fields.u64()?);
        let count = fields.count(20)?;
        let chunks = (0..count).map(|_| read_place(&mut fields)).collect::<Result<_, _>>()?;
        let count = fields.count(16)?;
        let superseded = (0..count)
            .map(|_| Ok(Lsn::new(fields.u64()?)..Lsn::new(fields.u64()?)))
            .collect::<Result<_, _>>()?;
        fields.finish()?;
        Ok(Self { end, entries, raw_bytes, chunks, superseded })
    }
}

fn read_place(fields: &mut Fields<'_>) -> Result<ChunkPlace, FormatError> {
    Ok(ChunkPlace { at: fields.u64()?, length: fields.u32()?, entries: fields.u32()?, crc: fields.u32()? })
}
