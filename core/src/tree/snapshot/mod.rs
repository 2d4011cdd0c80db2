//! Snapshots: the state in a file, so that opening a tree replays only what the log got since.
//!
//! A snapshot covers one position of the log. It is fuzzy: the position and everything that goes with it are noted
//! first, then the entries are read piece by piece while writes go on. Replaying the log from the position makes the
//! state whole again, whatever of the later writes the entries held already. Two are kept, so that a damaged one costs
//! nothing but time: the log is not trimmed above what the older one covers.
//!
//! [`Tree::snapshot`](super::Tree::snapshot) writes one, [`open`](super::Tree::open) reads the newest that is intact.

mod chunk;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod fields;
mod file;
mod footer;
mod header;
mod loading;
mod name;
mod schedule;
mod store;
mod taking;
mod writer;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;

pub(super) use chunk::{ChunkBuilder, EntryView};
#[cfg(any(test, feature = "test-util"))]
pub(super) use decoders::DECODERS;
pub(super) use fields::Fields;
pub(super) use file::{SnapshotFault, SnapshotFile};
pub(super) use footer::{ChunkPlace, SnapshotFooter};
pub(super) use header::SnapshotHeader;
pub(super) use loading::{PROGRESS_EVERY, load};
pub(super) use name::SnapshotName;
pub(super) use schedule::keep_snapshots;
pub use store::SnapshotInfo;
pub(super) use store::Snapshots;
pub use taking::SnapshotReport;
pub(super) use taking::{cannot_write, read_some};
pub(super) use writer::SnapshotWriter;
