//! [`PackedRows`]: rows that came with a snapshot: their keys, and their values as they lie in its file until somebody
//! asks for one.
//!
//! Most of the time that opening by a snapshot takes goes into the memory of values that nobody may ask for soon. So they
//! stay packed, all values of a chunk together, and the tree unpacks them by and by once it is open.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::record::FormatError;

/// What packing gains at most: a byte of length stands for 255 bytes.
const MAX_GAIN: usize = 256;

/// Bytes that are packed, or lie as they are because packing would not make them fewer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    packed: &'a [u8],
    length: usize,
}

impl<'a> Part<'a> {
    /// Bytes that unpack to so many.
    pub(super) fn new(packed: &'a [u8], length: usize) -> Result<Self, FormatError> {
        if packed.len() > length || length > packed.len().saturating_mul(MAX_GAIN) {
            return Err(FormatError::Field("a chunk of a snapshot has a field that cannot be"));
        }
        Ok(Self { packed, length })
    }

    /// Packs bytes if that makes them fewer, behind what is in `out`. What does not unpack to what it was stays as it is.
    pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        out.resize(begin + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let packed = lz4_flex::block::compress_into(raw, &mut out[begin..]).unwrap_or(usize::MAX);
        if packed < raw.len() {
            out.truncate(begin + packed);
            let mut again = Vec::new();
            let part = Part { packed: &out[begin..], length: raw.len() };
            if part.unpack(&mut again).is_ok() && again == raw {
                return packed;
            }
        }
        out.truncate(begin);
        out.extend_from_slice(raw);
        raw.len()
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Unpacks all of it in place of what is in `out`.
    pub(super) fn unpack(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        // What is written over need not be zero.
        out.resize(self.length, 0);
        if self.packed.len() == self.length {
            out.copy_from_slice(self.packed);
            return Ok(());
        }
        let written = lz4_flex::block::decompress_into(self.packed, out)
            .map_err(|_| FormatError::Field("a chunk of a snapshot cannot be unpacked"))?;
        if written == self.length {
            Ok(())
        } else {
            Err(FormatError::Field("a chunk of a snapshot unpacks to another length than it says"))
        }
    }
}

/// The rows of one chunk. Entries hold it together, each for its own row.
#[derive(Debug)]
pub(super) struct PackedRows {
    heads: Box<[u8]>,
    packed: Bytes,
    length: usize,
    values: OnceLock<Vec<u8>>,
}

impl PackedRows {
    /// Of what is known of each row but its value, unpacked, and the values, one after the other, a part of `chunk`.
    pub(super) fn new(heads: Vec<u8>, values: Part<'_>, chunk: &Bytes) -> Self {
        Self {
            heads: heads.into_boxed_slice(),
            packed: chunk.slice_ref(values.packed),
            length: values.length,
            values: OnceLock::new(),
        }
    }

    /// What is known of each row but its value.
    pub(super) fn heads(&self) -> &[u8] {
        &self.heads
    }

    /// The values. The first who asks for one that is packed unpacks all of them.
    ///
    /// # Panics
    /// If they cannot be unpacked. They were when they were written, and their checksum was right when they were read.
    pub(super) fn values(&self) -> &[u8] {
        if self.packed.len() == self.length {
            return &self.packed;
        }
        self.values.get_or_init(|| {
            let mut values = Vec::new();
            Part { packed: &self.packed, length: self.length }
                .unpack(&mut values)
                .expect("what unpacked when it was written, and has kept its checksum, unpacks");
            values
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn values_are_what_was_packed_whether_that_made_them_fewer_or_not() {
        let random = Random::from_seed(5);
        let noise: Vec<u8> = (0..400).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        for raw in [&b""[..], b"a", &[b'v'; 9_000], &noise] {
            let mut chunk = vec![7; 11];
            let packed = Part::pack(raw, &mut chunk);
            assert_eq!(packed, chunk.len() - 11);
            assert!(packed <= raw.len());
            let chunk = Bytes::from(chunk);
            let part = Part::new(&chunk[11..], raw.len()).expect("it can be");
            let rows = PackedRows::new(b"heads".to_vec(), part, &chunk);
            assert_eq!((rows.heads(), rows.values(), rows.values()), (&b"heads"[..], raw, raw));
        }
    }

    #[test]
    fn a_length_that_packing_cannot_have_made_is_refused_before_memory_is_asked_for() {
        for (packed, length) in [(2, 1), (1, 257), (0, 1)] {
            assert!(Part::new(&[0; 2][..packed], length).is_err(), "{packed} for {length}");
        }
    }
}
