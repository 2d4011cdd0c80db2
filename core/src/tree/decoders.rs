//! The decoders of this room, for those who fire at them.

use super::seed;
use super::snapshot;
use super::token::Token;
use crate::id::{Hlc, OriginTag};
use crate::trials::Decoder;

/// Everything that reads what a tree keeps beside its log, and what clients carry from one to another.
pub const DECODERS: &[&[Decoder]] = &[snapshot::DECODERS, seed::DECODERS, TOKENS];

const TOKENS: &[Decoder] = &[Decoder {
    name: "token",
    samples: tokens,
    decode: |bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        text.parse::<Token>().map(drop).map_err(|error| error.to_string())
    },
    seal: None,
    bytes_per_byte: 64,
    fixed_bytes: 16 * 1024,
}];

/// One that asks for nothing, and one that asks for two origins.
fn tokens() -> Vec<Vec<u8>> {
    let of = |frontier: &[(u64, u64)]| {
        let frontier = frontier.iter().map(|(origin, hlc)| (OriginTag::new(*origin), Hlc::new(*hlc)));
        Token::new(frontier.collect()).to_string().into_bytes()
    };
    vec![of(&[]), of(&[(7, 9), (u64::MAX, 1 << 60)])]
}
