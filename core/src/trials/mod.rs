//! What random tests share: which seeds, and for how long; bytes gone wrong, and the decoders that must stand them. For
//! tests and simulation, of this crate and of others.

mod decoder;
mod mutation;
mod seeds;

pub use decoder::Decoder;
pub use mutation::mutate;
pub use seeds::Seeds;
