//! The log in files: segments that are written one after the other, and a manifest that says whose they are.
//!
//! `<dir>/MANIFEST` holds incarnation, names, partitions and known origins; `<dir>/TRIM` says where a trimmed log begins;
//! `<dir>/<sequence, 20 digits>.seg` hold the groups; `<dir>/*.spare` are files of trimmed segments, or files that were
//! filled with zeros ahead, to become the next segments; `<dir>/*.filling` is one that is being filled.
//! A new segment names the one before it and how much of that is valid, so a tail that failed is cut durably without
//! touching its file again.

mod ahead;
mod append;
mod buffers;
mod chain;
mod checkup;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod filling;
mod footer;
mod index;
mod log_files;
mod manifest;
mod opening;
mod parse;
mod places;
mod reading;
mod recovery;
mod repair;
mod scan;
mod segment;
mod segments;
mod small_file;
mod spare;
mod storage;
mod tail;
mod trim_point;
mod trimming;
mod writing;
mod zeros;

#[cfg(test)]
mod tests;

pub use ahead::LogReader;
pub use buffers::ReadBuffers;
pub use checkup::{Checkup, Damage, Lost, OriginRange, SegmentReport};
#[cfg(any(test, feature = "test-util"))]
pub use decoders::DECODERS;
pub use log_files::{CheckProgress, LogFiles};
pub use manifest::Manifest;
pub(crate) use opening::Opening;
pub use storage::{FileStorage, OpenedLog};
