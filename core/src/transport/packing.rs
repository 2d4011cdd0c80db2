//! Packed parts of pages: what is squeezed on a link that is slow, and checked before anything is believed.
//!
//! Packing touches no block: the same bytes come out, with the same checksums. A packed part states its unpacked length,
//! which is compared with a bound before anything is reserved for it.

use bytes::Bytes;
use prost::Message;
use zstd::bulk::{Compressor, decompress};
use zstd::zstd_safe::get_frame_content_size;

use super::marks::violation;
use super::wire::{PackedGroups, Page, PageGroup};
use crate::error::LinkError;

/// The capability of a session that packs.
pub const ZSTD: &str = "zstd";
/// The fastest of zstd's usual levels: half a gigabyte a second and core.
const LEVEL: i32 = 1;
/// What a part is beside its blocks, at most: heads of groups, of which there may be many small ones.
const HEAD_BYTES: usize = 64 * 1024;

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

/// The groups of a packed part. `most` bounds the bytes of a part's blocks.
///
/// # Errors
/// `Protocol` when it is not what [`Packer::pack`] makes, or would be larger than a part may be.
pub(super) fn unpack(packed: &[u8], most: usize) -> Result<Vec<PageGroup>, LinkError> {
    let no_frame = || violation("a packed part is not one zstd frame that states its length");
    let stated = get_frame_content_size(packed).ok().flatten().ok_or_else(no_frame)?;
    let length = usize::try_from(stated).ok().filter(|length| *length <= most.saturating_add(HEAD_BYTES));
    let Some(length) = length else {
        return Err(violation(format!(
            "a packed part states {stated} bytes, at most {most} of blocks may be"
        )));
    };
    let plain = decompress(packed, length).map_err(|error| no_frame().with_source(error))?;
    if plain.len() != length {
        return Err(no_frame());
    }
    let groups = PackedGroups::decode(Bytes::from(plain)).map_err(|error| no_frame().with_source(error))?;
    Ok(groups.groups)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(unpack(&packed.packed, before).unwrap(), plain.groups);
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
        let error = unpack(&bomb, 256 * 1024).unwrap_err();
        assert!(error.to_string().contains("at most 262144"), "{error}");
        unpack(&bomb, 1024 * 1024).unwrap();
        for cut in 0..bomb.len() {
            unpack(&bomb[..cut], 1024 * 1024).unwrap_err();
        }
        unpack(b"no zstd at all", 1024).unwrap_err();
    }

    #[test]
    fn a_packed_part_of_an_older_version_can_be_read() {
        let hex = GOLDEN.trim();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let group = PageGroup { closed: 7, blocks: vec![vec![b'A'; 64].into()], more: false };
        assert_eq!(unpack(&bytes, 1024).unwrap(), [group]);
    }
}
