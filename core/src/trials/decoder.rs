//! [`Decoder`]: something that reads bytes from outside, as those see it who fire at it.

/// A decoder with samples of what it reads. Each room that decodes anything lists its own.
#[derive(Clone, Copy)]
pub struct Decoder {
    /// What is decoded: the folder of its corpus.
    pub name: &'static str,
    /// Real encodings, the same ones every time.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Reads all of the bytes, down to the last field.
    pub decode: fn(&[u8]) -> Result<(), String>,
    /// Makes the checksum of changed bytes right again, so that what is behind it is reached. None where there is none.
    pub seal: Option<fn(&mut [u8])>,
    /// Bytes of memory that decoding may take for each byte of input, besides `fixed_bytes`.
    pub bytes_per_byte: usize,
    /// Bytes of memory that decoding may take whatever the input: texts of errors, small tables, buffers.
    pub fixed_bytes: usize,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Decoder").field(&self.name).finish()
    }
}

impl Decoder {
    /// What went wrong, as text: for the end of a `decode`.
    pub(crate) fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
        result.map(drop).map_err(|error| error.to_string())
    }

    /// Replaces the last four bytes by the checksum of all before them.
    pub(crate) fn seal_end(bytes: &mut [u8], checksum: impl Fn(&[u8]) -> u32) {
        if let Some((body, end)) = bytes.split_last_chunk_mut::<4>() {
            *end = checksum(body).to_le_bytes();
        }
    }
}
