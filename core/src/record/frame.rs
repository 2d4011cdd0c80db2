//! [`Frame`]: where a block lies in one log. Local; never shipped.

use super::checksum::checksum;
use super::error::FormatError;
use crate::id::{GroupSequence, Hlc, Lsn};

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 48;

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"TWF1");
const VERSION: u16 = 1;

/// The header in front of each block of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The group that the block belongs to.
    pub sequence: GroupSequence,
    /// The place of the block in its group, from 0.
    pub index: u16,
    /// How many blocks the group has.
    pub frames: u16,
    /// Bytes of the block.
    pub length: u32,
    /// The LSN of the block's first record.
    pub first_lsn: Lsn,
    /// Up to here the block's origin is complete with the group the block came in.
    pub closed: Hlc,
    /// How many leading records of the block were covered already when it was written, and do not count.
    pub skip: u16,
}

impl Frame {
    /// The bytes of the frame in front of a block whose last four bytes are `block_crc`.
    pub fn encode(&self, seed: u64, block_crc: &[u8]) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.get().to_le_bytes());
        bytes[16..18].copy_from_slice(&self.index.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.frames.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_lsn.get().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.closed.get().to_le_bytes());
        bytes[40..42].copy_from_slice(&self.skip.to_le_bytes());
        let crc = checksum(seed, &[&bytes[..44], block_crc]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the frame at the front of `bytes`, and checks it against the checksum at the end of the block that
    /// follows it. The block itself is not checked.
    ///
    /// # Errors
    /// When no whole frame with its block starts here.
    pub fn parse(bytes: &[u8], seed: u64) -> Result<Self, FormatError> {
        let head: &[u8; FRAME_BYTES] = bytes.first_chunk().ok_or(FormatError::Short("a frame"))?;
        let frame = Self::parse_header(head)?;
        let end = FRAME_BYTES + frame.length as usize;
        let block_crc = bytes.get(end - 4..end).ok_or(FormatError::Short("a block"))?;
        if Self::belongs(head, block_crc, seed) { Ok(frame) } else { Err(FormatError::Checksum("a frame")) }
    }

    /// Whether the checksum in the bytes of a frame is that of the frame and of a block that ends with `block_crc`.
    pub fn belongs(head: &[u8; FRAME_BYTES], block_crc: &[u8], seed: u64) -> bool {
        checksum(seed, &[&head[..44], block_crc])
            == u32::from_le_bytes([head[44], head[45], head[46], head[47]])
    }

    /// Reads the fields without checking them: enough to know how many bytes the block needs.
    ///
    /// # Errors
    /// When this is no frame of version 1.
    pub fn parse_header(head: &[u8; FRAME_BYTES]) -> Result<Self, FormatError> {
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | (u64::from(word(at + 4)) << 32);
        if word(0) != MAGIC {
            return Err(FormatError::Magic("frame"));
        }
        if half(4) != VERSION {
            return Err(FormatError::Version { what: "frame", found: half(4), known: VERSION });
        }
        let frame = Self {
            sequence: GroupSequence::new(long(8)),
            index: half(16),
            frames: half(18),
            length: word(20),
            first_lsn: Lsn::new(long(24)),
            closed: Hlc::new(long(32)),
            skip: half(40),
        };
        if frame.index >= frame.frames || frame.length < 4 {
            return Err(FormatError::Field("a frame's fields cannot be"));
        }
        Ok(frame)
    }
}
