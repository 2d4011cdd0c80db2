//! [`SegmentHeader`]: the first bytes of a segment file.

use crate::id::{GroupSequence, Incarnation, Lsn};
use crate::record::{FormatError, checksum};

/// Bytes of a segment's header; groups follow.
pub(super) const HEADER_BYTES: usize = 80;

const MAGIC: u32 = u32::from_le_bytes(*b"TWS1");
const VERSION: u16 = 1;

/// The number of a segment in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SegmentNumber(pub(super) u64);

impl SegmentNumber {
    /// The name of its file.
    pub(super) fn file_name(self) -> String {
        format!("{:020}.seg", self.0)
    }

    /// The segment of a file name.
    pub(super) fn from_file_name(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 20)?;
        digits.parse().ok().map(Self)
    }
}

/// What a segment says about itself and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) incarnation: Incarnation,
    pub(super) number: SegmentNumber,
    pub(super) first_lsn: Lsn,
    pub(super) first_group: GroupSequence,
    /// The segment before, and how many bytes of it are valid; what lies behind was given up on.
    pub(super) before: Option<(SegmentNumber, u64)>,
    /// Its file was that of a trimmed segment: behind its groups lie bytes of a former life.
    pub(super) recycled: bool,
}

impl SegmentHeader {
    /// What the frames of this segment are seeded with: bytes of another log or segment never pass for its own.
    pub(super) fn seed(&self) -> u64 {
        self.incarnation.get().wrapping_add(self.number.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn flags(&self) -> u16 {
        u16::from(self.before.is_some()) | (u16::from(self.recycled) << 1)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (before, valid) = self.before.map_or((0, 0), |(number, valid)| (number.0, valid));
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags().to_le_bytes());
        let words = [
            self.incarnation.get(),
            self.number.0,
            self.first_lsn.get(),
            self.first_group.get(),
            before,
            valid,
        ];
        for (place, word) in bytes[8..56].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum(0, &[&bytes[..HEADER_BYTES - 4]]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let head: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(FormatError::Short("a segment header"))?;
        let word = |at: usize| {
            let bytes: [u8; 8] = head[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        if head[0..4] != MAGIC.to_le_bytes() {
            return Err(FormatError::Magic("segment"));
        }
        let found = u16::from_le_bytes([head[4], head[5]]);
        if found != VERSION {
            return Err(FormatError::Version { what: "segment", found, known: VERSION });
        }
        if checksum(0, &[&head[..HEADER_BYTES - 4]]).to_le_bytes() != head[HEADER_BYTES - 4..] {
            return Err(FormatError::Checksum("a segment header"));
        }
        let before = (head[6] & 1 == 1).then(|| (SegmentNumber(word(40)), word(48)));
        Ok(Self {
            incarnation: Incarnation::new(word(8)),
            number: SegmentNumber(word(16)),
            first_lsn: Lsn::new(word(24)),
            first_group: GroupSequence::new(word(32)),
            before,
            recycled: head[6] & 2 == 2,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_is_noticed() {
        for (before, recycled) in [(None, false), (Some((SegmentNumber(8), 4096)), true)] {
            let header = SegmentHeader {
                incarnation: Incarnation::new(1),
                number: SegmentNumber(9),
                first_lsn: Lsn::new(3),
                first_group: GroupSequence::new(4),
                before,
                recycled,
            };
            let bytes = header.encode();
            assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
            for at in 0..HEADER_BYTES {
                let mut damaged = bytes;
                damaged[at] ^= 1;
                assert!(SegmentHeader::decode(&damaged).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_file_name_has_twenty_digits() {
        assert_eq!(SegmentNumber(42).file_name(), "00000000000000000042.seg");
        assert_eq!(SegmentNumber::from_file_name("00000000000000000042.seg"), Some(SegmentNumber(42)));
        assert_eq!(SegmentNumber::from_file_name("42.seg"), None);
    }
}
