//! Seeding: a tree takes over the state of another cluster's tree, when the log there does not hold what it lacks.
//!
//! The giver notes its position, then sends the entries in key order, in the bytes of a snapshot ([`SeedReader`]). The
//! taker stages them in a file, and once they are complete joins them with what it holds, first into a snapshot of its
//! own, then in memory ([`Staging`]): after a crash it stands before the import or after it, never in between. What
//! came this way is not in the log here: [`Floors`] say so to whoever wants it from here, and [`SeedBook`] keeps that.

mod book;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod floors;
mod giving;
mod import;
mod join;
mod lacking;
mod late;
mod record;
mod rescue;
mod rules;
mod staging;
mod survey;

#[cfg(test)]
mod tests;

pub(super) use book::SeedBook;
#[cfg(any(test, feature = "test-util"))]
pub(super) use decoders::DECODERS;
pub use giving::{SEED_PIECE_BYTES, SeedReader};
pub use lacking::SeedLack;
pub use late::LateRows;
pub(super) use record::SeedRecord;
pub use record::SeedWish;
pub use staging::{Imported, Staging};
