//! Packed parts of pages: what is squeezed on a link that is slow, and checked before anything is believed.
//!
//! Packing touches no block: the same bytes come out, with the same checksums. A packed part states its unpacked length,
//! which is compared with a bound before anything is reserved for it; and no group and no block is built before all are
//! seen to be as long as a block is, or a few bytes would become millions of empty ones.

use bytes::Bytes;
use prost::Message;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

use super::marks::violation;
use super::wire::{PackedGroups, Page, PageGroup};
use crate::error::LinkError;
use crate::limits::BLOCK_BYTES;
use crate::record::{BLOCK_HEADER_BYTES, FILTERED_RECORD_BYTES, RECORD_HEADER_BYTES};

/// The capability of a session that packs.
pub const ZSTD: &str = "zstd";
/// The fastest of zstd's usual levels: half a gigabyte a second and core.
const LEVEL: i32 = 1;
/// What a part is beside its records, at most: heads of groups, of which there may be many small ones, or of a block. And
/// what a filtered block says of each record beside it, of which a usual block holds so many.
const HEAD_BYTES: usize = 64 * 1024 + FILTERED_RECORD_BYTES * (BLOCK_BYTES / (RECORD_HEADER_BYTES + 1));

/// Packs parts of pages. One for each sender: it keeps its tables.
pub struct Packer(Compressor<'static>);

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Packer")
    }
}

impl Packer {
    /// A packer; None where there is no memory for its tables.
    pub fn new() -> Option<Self> {
        Compressor::new(LEVEL).ok().map(Self)
    }

    /// Packs the groups of a part, if that leaves at most `most` of its bytes, a fraction of 1. Says how many bytes there
    /// were and are.
    pub fn pack(&mut self, part: &mut Page, most: f64) -> (usize, usize) {
        let groups = PackedGroups { groups: std::mem::take(&mut part.groups) };
        let plain = groups.encode_to_vec();
        let packed =
            self.0.compress(&plain).ok().filter(|packed| packed.len() as f64 <= plain.len() as f64 * most);
        match packed {
            Some(packed) => {
                let sizes = (plain.len(), packed.len());
                part.packed = packed.into();
                sizes
            }
            None => {
                part.groups = groups.groups;
                (plain.len(), plain.len())
            }
        }
    }
}

/// Unpacks parts of pages. One for each receiver: it keeps its tables, from the first part on.
pub(super) struct Unpacker {
    most: usize,
    tables: Option<Decompressor<'static>>,
}

impl Unpacker {
    /// `most` bounds the bytes of a part's records.
    pub(super) fn new(most: usize) -> Self {
        Self { most, tables: None }
    }

    /// The groups of a packed part.
    ///
    /// # Errors
    /// `Protocol` when it is not what [`Packer::pack`] makes, or would be larger than a part may be.
    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<Vec<PageGroup>, LinkError> {
        let most = self.most;
        let no_frame = || violation("a packed part is not one zstd frame that states its length");
        let stated = get_frame_content_size(packed).ok().flatten().ok_or_else(no_frame)?;
        let length = usize::try_from(stated).ok().filter(|length| *length <= most.saturating_add(HEAD_BYTES));
        let Some(length) = length else {
            return Err(violation(format!(
                "a packed part states {stated} bytes, at most {most} of records may be: raise max_record_bytes here if \
                 there are larger ones"
            )));
        };
        let no_memory = |error| violation("there is no memory to unpack a part").with_source(error);
        let tables = match &mut self.tables {
            Some(tables) => tables,
            none => none.insert(Decompressor::new().map_err(no_memory)?),
        };
        let plain = tables.decompress(packed, length).map_err(|error| no_frame().with_source(error))?;
        if plain.len() != length {
            return Err(no_frame());
        }
        check_lengths(&plain)?;
        let groups =
            PackedGroups::decode(Bytes::from(plain)).map_err(|error| no_frame().with_source(error))?;
        Ok(groups.groups)
    }
}

/// Walks the groups of a part and their blocks, and builds none: each is as long as the header of a block, at least.
fn check_lengths(mut groups: &[u8]) -> Result<(), LinkError> {
    const GROUPS: usize = 1;
    const BLOCKS: usize = 2;
    let check = |whole: bool, what: &str| {
        if whole { Ok(()) } else { Err(violation(format!("a packed part holds a {what} that is too short"))) }
    };
    while !groups.is_empty() {
        let (field, mut group) = next_field(&mut groups)?;
        check(field != GROUPS || group.len() >= BLOCK_HEADER_BYTES, "group")?;
        while field == GROUPS && !group.is_empty() {
            let (field, block) = next_field(&mut group)?;
            check(field != BLOCKS || block.len() >= BLOCK_HEADER_BYTES, "block")?;
        }
    }
    Ok(())
}

/// Takes the next field of a message off: its number, and its bytes if it is of those that have a length.
fn next_field<'a>(rest: &mut &'a [u8]) -> Result<(usize, &'a [u8]), LinkError> {
    let no_field = || violation("a packed part holds what are no groups");
    let number = |rest: &mut &'a [u8]| {
        prost::decode_length_delimiter(rest).map_err(|error| no_field().with_source(error))
    };
    let key = number(rest)?;
    let length = match key & 7 {
        0 => number(rest).map(|_| 0)?,
        1 => 8,
        2 => number(rest)?,
        5 => 4,
        _ => return Err(no_field()),
    };
    let (bytes, after) = rest.split_at_checked(length).ok_or_else(no_field)?;
    *rest = after;
    Ok((key >> 3, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::VersionVector;
    use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};

    fn part(block: Vec<u8>) -> Page {
        let group = PageGroup { closed: 7, blocks: vec![block.into()], more: false };
        Page { groups: vec![group], ..Page::default() }
    }

    /// A packed part as it was when packing came to the link.
    const GOLDEN: &str = include_str!("../../golden/packed-v1.hex");

    #[test]
    fn what_is_packed_comes_out_as_it_was() {
        let plain = part(b"abcabcabc".repeat(1_000));
        let mut packed = plain.clone();
        let (before, after) = Packer::new().unwrap().pack(&mut packed, 0.8);
        assert!(after * 10 < before && packed.groups.is_empty() && packed.packed.len() == after);
        let mut unpacker = Unpacker::new(before);
        for _ in 0..2 {
            assert_eq!(unpacker.unpack(&packed.packed).unwrap(), plain.groups);
        }
    }

    #[test]
    fn the_largest_filtered_block_of_the_smallest_records_can_be_unpacked_whatever_the_limit_of_a_record() {
        use crate::record::{BlockBuilder, Coverage, Interest, Mutation};
        let mut builder = BlockBuilder::new(OriginTag::new(1), 1, 0, BLOCK_BYTES);
        let mut offset = 0_u64;
        // All but the first are kept: nothing is saved, and each says its own offset.
        while builder.bytes() + RECORD_HEADER_BYTES < BLOCK_BYTES {
            let key = if offset == 0 { "x" } else { "k" };
            let at = (PartitionId::ZERO, Offset::new(offset), Hlc::new(offset + 1));
            builder.push(&Mutation::delete(key), at.0, at.1, at.2, false);
            offset += 1;
        }
        let whole = builder.seal(&VersionVector::default(), Incarnation::new(1));
        let kept = Coverage::default().filter(&whole, &Interest::new(["k"]).unwrap(), Incarnation::new(1));
        assert!(kept.bytes().len() > whole.bytes().len() + 64 * 1024, "{}", kept.bytes().len());
        let mut packed = part(kept.bytes().to_vec());
        Packer::new().unwrap().pack(&mut packed, 0.8);
        let groups = Unpacker::new(BLOCK_BYTES).unpack(&packed.packed).unwrap();
        assert_eq!(groups[0].blocks, [kept.bytes().clone()]);
    }

    #[test]
    fn what_does_not_shrink_enough_is_left_as_it_is() {
        let random = crate::random::Random::from_seed(1);
        let noise: Vec<u8> = (0..4_096).map(|_| random.below(256) as u8).collect();
        let plain = part(noise);
        let mut packed = plain.clone();
        let (before, after) = Packer::new().unwrap().pack(&mut packed, 0.8);
        assert_eq!((packed, after), (plain, before));
    }

    #[test]
    fn f52_a_stated_length_reserves_nothing_and_a_wrong_one_is_refused() {
        let mut zeros = part(vec![0; 1024 * 1024]);
        Packer::new().unwrap().pack(&mut zeros, 0.8);
        let bomb = zeros.packed.to_vec();
        assert!(bomb.len() < 1_000, "a megabyte of zeros is {} bytes", bomb.len());
        let error = Unpacker::new(256 * 1024).unpack(&bomb).unwrap_err();
        assert!(error.to_string().contains("at most 262144"), "{error}");
        let mut unpacker = Unpacker::new(1024 * 1024);
        unpacker.unpack(&bomb).unwrap();
        for cut in 0..bomb.len() {
            unpacker.unpack(&bomb[..cut]).unwrap_err();
        }
        unpacker.unpack(b"no zstd at all").unwrap_err();
        unpacker.unpack(&bomb).unwrap();
    }

    #[test]
    fn f52_empty_groups_and_blocks_are_refused_before_any_is_built() {
        let most = 256 * 1024;
        let empty = PageGroup { blocks: vec![Bytes::new(); most / 2], ..PageGroup::default() };
        let short = vec![vec![b'A'; BLOCK_HEADER_BYTES - 1].into(); 100];
        let short = PageGroup { blocks: short, ..PageGroup::default() };
        for (groups, what) in
            [(vec![PageGroup::default(); most / 2], "group"), (vec![empty], "block"), (vec![short], "block")]
        {
            let mut bomb = Page { groups, ..Page::default() };
            Packer::new().unwrap().pack(&mut bomb, 0.8);
            assert!(!bomb.packed.is_empty() && bomb.packed.len() < 1_000);
            let error = Unpacker::new(most).unpack(&bomb.packed).unwrap_err();
            assert!(error.to_string().contains(&format!("a {what} that is too short")), "{error}");
        }
    }

    #[test]
    fn what_walks_a_part_reads_it_as_the_decoder_does() {
        let random = crate::random::Random::from_seed(2);
        let group = |blocks: u64| PageGroup {
            closed: random.below(u64::MAX),
            blocks: (0..blocks).map(|_| vec![1; 40 + random.below(300) as usize].into()).collect(),
            more: random.below(2) == 0,
        };
        let groups = (1..8).map(group).collect();
        let mut plain = PackedGroups { groups }.encode_to_vec();
        check_lengths(&plain).unwrap();
        // Fields that a later version may add are passed over.
        plain.extend([0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x78, 0x80, 1, 0x7a, 1, 0]);
        check_lengths(&plain).unwrap();
        assert_eq!(PackedGroups::decode(&plain[..]).unwrap().groups.len(), 7);
        for cut in 0..plain.len() {
            let (walked, read) = (check_lengths(&plain[..cut]), PackedGroups::decode(&plain[..cut]));
            assert_eq!(walked.is_ok(), read.is_ok(), "{cut}");
        }
    }

    #[test]
    fn a_packed_part_of_an_older_version_can_be_read() {
        let hex = GOLDEN.trim();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let group = PageGroup { closed: 7, blocks: vec![vec![b'A'; 64].into()], more: false };
        assert_eq!(Unpacker::new(1024).unpack(&bytes).unwrap(), [group]);
    }
}
