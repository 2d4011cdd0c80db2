//! What random tests share: which seeds, and for how long. For tests and simulation, of this crate and of others.

mod seeds;

pub use seeds::Seeds;
