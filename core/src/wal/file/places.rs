//! [`Places`]: which partitions occur between the marks of a segment, and how far their offsets advance there.
//!
//! Two or three bytes for each partition and mark, so that a place in a partition is found without reading: as bytes of
//! the footer, and the same in memory.

use super::index::Extents;
use crate::id::Offset;

/// For each stretch from a mark to the next: a number of pairs, then for each the slot of a partition and by how much
/// its end rose, all as variable-length numbers (seven bits a byte, low ones first). The last stretch is not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    bytes: Vec<u8>,
    /// By slot: where the partition ended at the last mark.
    marked: Vec<Offset>,
}

impl PartialEq for Places {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Places {}

impl Places {
    /// What a footer holds. None if it ends in the middle of a number.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            for _ in 0..number(&mut rest)? {
                number(&mut rest)?;
                number(&mut rest)?;
            }
        }
        Some(Self { bytes: bytes.to_vec(), marked: Vec::new() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Ends a stretch at a mark.
    pub(super) fn close(&mut self, extents: &Extents) {
        self.marked.resize(extents.len(), Offset::ZERO);
        let mut moved: Vec<(u32, u64)> = Vec::with_capacity(extents.len());
        for extent in extents.values() {
            let marked = &mut self.marked[extent.slot as usize];
            let before = extent.first.max(*marked);
            if extent.end > before {
                moved.push((extent.slot, extent.end.since(before)));
                *marked = extent.end;
            }
        }
        put(&mut self.bytes, moved.len() as u64);
        for (slot, advance) in moved {
            put(&mut self.bytes, u64::from(slot));
            put(&mut self.bytes, advance);
        }
    }

    /// Stretch, slot and advance, one after the other.
    pub(super) fn walk(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let (mut rest, mut stretch, mut left) = (&self.bytes[..], 0_usize, 0_u64);
        std::iter::from_fn(move || {
            while left == 0 {
                left = number(&mut rest)?;
                stretch += 1;
            }
            left -= 1;
            Some((stretch - 1, number(&mut rest)?, number(&mut rest)?))
        })
    }
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OriginTag, PartitionId};
    use crate::wal::file::index::Extent;

    #[test]
    fn what_is_closed_at_marks_walks_back_out_and_a_cut_number_is_noticed() {
        let mut extents = Extents::new();
        let mut places = Places::default();
        let mut expected = Vec::new();
        for stretch in 0..5_u64 {
            for slot in 0..=(stretch as u32).min(3) {
                let key = (OriginTag::new(9), PartitionId::new(3 - slot as u16));
                let advance = 1 + stretch * 200;
                let first = Offset::new(1_000_000);
                let new = Extent { first, end: first, records: 0, bytes: 0, slot };
                let extent = extents.entry(key).or_insert(new);
                extent.end = extent.end.advanced(advance);
                expected.push((stretch as usize, u64::from(slot), advance));
            }
            places.close(&extents);
        }
        places.close(&extents);
        let mut walked: Vec<_> = places.walk().collect();
        walked.sort_unstable();
        assert_eq!(walked, expected);
        let bytes = places.bytes().to_vec();
        assert_eq!(Places::decode(&bytes), Some(places));
        assert_eq!(Places::decode(&bytes[..bytes.len() - 2]), None);
    }
}
