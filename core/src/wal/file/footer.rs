//! The footer of a sealed segment: its index, behind the last group.
//!
//! Only a help: it is written without a sync of its own when the next segment has begun, so a crash may lose it, and
//! then the segment is read instead. Where it stands is said by the header of the next segment.

use super::index::{Contents, Extent, Extents, Mark};
use super::places::Places;
use super::small_file::take;
use crate::id::{GroupSequence, Hlc, Lsn, Offset, OriginTag, PartitionId};
use crate::record::{FormatError, checksum};

/// Bytes of a footer before its marks.
pub(super) const FOOTER_FIXED_BYTES: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"TWE1");
const VERSION: u16 = 1;
const MARK_BYTES: usize = 24;
const EXTENT_BYTES: usize = 42;

/// The bytes of a footer, for the end of a segment whose frames have this seed.
pub(super) fn encode_footer(contents: &Contents, seed: u64) -> Vec<u8> {
    let length = FOOTER_FIXED_BYTES
        + contents.marks.len() * MARK_BYTES
        + contents.extents.len() * EXTENT_BYTES
        + contents.places.bytes().len()
        + size_of::<u32>();
    let count = |all: usize| u32::try_from(all).expect("bounded by the size of a segment").to_le_bytes();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0_u16.to_le_bytes());
    bytes.extend_from_slice(&count(length));
    bytes.extend_from_slice(&count(contents.marks.len()));
    bytes.extend_from_slice(&count(contents.extents.len()));
    bytes.extend_from_slice(&count(contents.places.bytes().len()));
    for word in [
        contents.end,
        contents.next_lsn.get(),
        contents.next_group.get(),
        contents.records,
        contents.last_hlc.get(),
    ] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for mark in &contents.marks {
        for word in [mark.lsn.get(), mark.at, mark.hlc.get()] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    let mut extents: Vec<_> = contents.extents.iter().collect();
    extents.sort_unstable_by_key(|(_, extent)| extent.slot);
    for ((origin, partition), extent) in extents {
        bytes.extend_from_slice(&origin.get().to_le_bytes());
        bytes.extend_from_slice(&partition.get().to_le_bytes());
        for word in [extent.first.get(), extent.end.get(), extent.records, extent.bytes] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.extend_from_slice(contents.places.bytes());
    let crc = checksum(seed, &[&bytes]);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The length of the footer that begins with these bytes, as it says itself.
pub(super) fn footer_length(head: &[u8]) -> Result<usize, FormatError> {
    let head: &[u8; FOOTER_FIXED_BYTES] = head.first_chunk().ok_or(FormatError::Short("a footer"))?;
    if head[0..4] != MAGIC.to_le_bytes() {
        return Err(FormatError::Magic("footer"));
    }
    let found = u16::from_le_bytes([head[4], head[5]]);
    if found != VERSION {
        return Err(FormatError::Version { what: "footer", found, known: VERSION });
    }
    Ok(u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize)
}

/// Reads a whole footer that stands at `at`.
pub(super) fn decode_footer(bytes: &[u8], at: u64, seed: u64) -> Result<Contents, FormatError> {
    if footer_length(bytes)? != bytes.len() {
        return Err(FormatError::Short("a footer"));
    }
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Short("a footer"))?;
    if checksum(seed, &[body]) != u32::from_le_bytes(*crc) {
        return Err(FormatError::Checksum("a footer"));
    }
    decode_body(&body[12..])
        .filter(|contents| contents.end == at)
        .ok_or(FormatError::Field("a footer has a field that cannot be"))
}

fn decode_body(mut rest: &[u8]) -> Option<Contents> {
    let marks = u32::from_le_bytes(*take(&mut rest)?);
    let extents = u32::from_le_bytes(*take(&mut rest)?);
    let places = u32::from_le_bytes(*take(&mut rest)?);
    let mut contents = Contents {
        end: word(&mut rest)?,
        next_lsn: Lsn::new(word(&mut rest)?),
        next_group: GroupSequence::new(word(&mut rest)?),
        records: word(&mut rest)?,
        last_hlc: Hlc::new(word(&mut rest)?),
        marks: Vec::new(),
        extents: Extents::new(),
        places: Places::default(),
    };
    for _ in 0..marks {
        let lsn = Lsn::new(word(&mut rest)?);
        contents.marks.push(Mark { lsn, at: word(&mut rest)?, hlc: Hlc::new(word(&mut rest)?) });
    }
    for slot in 0..extents {
        let origin = OriginTag::new(word(&mut rest)?);
        let partition = PartitionId::new(u16::from_le_bytes(*take(&mut rest)?));
        let (first, end) = (Offset::new(word(&mut rest)?), Offset::new(word(&mut rest)?));
        let extent = Extent { first, end, records: word(&mut rest)?, bytes: word(&mut rest)?, slot };
        contents.extents.insert((origin, partition), extent);
    }
    contents.places = Places::decode(rest)?;
    (rest.len() == places as usize && contents.extents.len() == extents as usize).then_some(contents)
}

fn word(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        let mark = |at: u64| Mark { lsn: Lsn::new(at), at: at * 100, hlc: Hlc::new(at * 7) };
        let extent = |first, end, slot| Extent {
            first: Offset::new(first),
            end: Offset::new(end),
            records: end - first - 1,
            bytes: 4_000 + end,
            slot,
        };
        Contents {
            end: 4_096,
            next_lsn: Lsn::new(90),
            next_group: GroupSequence::new(12),
            records: 50,
            last_hlc: Hlc::new(0x1234_5678),
            marks: vec![mark(40), mark(55)],
            extents: [
                ((OriginTag::new(3), PartitionId::new(0)), extent(5, 30, 1)),
                ((OriginTag::new(9), PartitionId::new(1)), extent(0, 25, 0)),
            ]
            .into(),
            places: Places::decode(&[2, 0, 0xac, 2, 1, 7])
                .expect("two partitions moved up to the second mark"),
        }
    }

    #[test]
    fn a_footer_reads_back_where_it_stands_and_every_flipped_bit_is_noticed() {
        let (contents, seed) = (contents(), 77);
        let bytes = encode_footer(&contents, seed);
        assert_eq!(decode_footer(&bytes, 4_096, seed), Ok(contents));
        assert!(decode_footer(&bytes, 4_097, seed).is_err(), "of another place");
        assert!(decode_footer(&bytes, 4_096, 78).is_err(), "of another segment");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 2;
            assert!(decode_footer(&damaged, 4_096, seed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_bytes_of_a_footer_are_those_of_version_1() {
        let hex: String = encode_footer(&contents(), 77).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("../../../golden/footer-v1.hex").trim());
    }
}
