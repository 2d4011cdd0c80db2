//! The decoders of stored positions, for those who fire at them.

use super::registry::decode;
use crate::feed::Cursor;
use crate::id::{Incarnation, Lsn};
use crate::trials::Decoder;

/// Everything that reads where consumers stand: what is stored, which is also what people are given as text.
pub const DECODERS: &[Decoder] = &[Decoder {
    name: "cursor",
    samples,
    decode: |bytes| decode(bytes).map(drop).ok_or_else(|| "no cursor".to_owned()),
    seal: None,
    bytes_per_byte: 16,
    fixed_bytes: 16 * 1024,
}];

/// Near the beginning of a log, and at the end of what can be.
fn samples() -> Vec<Vec<u8>> {
    let cursor = |log, lsn| Cursor { incarnation: Incarnation::new(log), lsn: Lsn::new(lsn) }.to_string();
    vec![cursor(0xfeed, 12_345).into_bytes(), cursor(u64::MAX, u64::MAX).into_bytes()]
}
