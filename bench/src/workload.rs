//! What is written: values that do not compress, keys of 16 bytes, the same for everybody.

use bytes::Bytes;

/// How many different keys a writer has in a closed loop.
const KEYS: u64 = 1_000;

/// A value that no compression makes smaller.
pub fn value(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state >> 56).expect("eight bits are left")
    };
    (0..bytes).map(|_| next()).collect()
}

/// The key of a writer's step: a short round, so that a state does not grow for ever.
pub fn round_key(writer: usize, step: u64) -> [u8; 16] {
    key(writer as u64, step % KEYS)
}

/// A key that is never used twice. One in a hundred begins with `f`: what a filter looks for.
pub fn serial_key(at: u64) -> [u8; 16] {
    let mut key = key(0, at);
    key[0] = if at.is_multiple_of(100) { b'f' } else { b'k' };
    key
}

fn key(writer: u64, step: u64) -> [u8; 16] {
    let mut key = *b"k000000000000000";
    let mut rest = (writer << 40) | step;
    for place in key[1..].iter_mut().rev() {
        *place = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    key
}
