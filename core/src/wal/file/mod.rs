//! The log in files: segments that are written one after the other, and a manifest that says whose they are.
//!
//! `<dir>/MANIFEST` holds incarnation, names, partitions and known origins; `<dir>/<sequence, 20 digits>.seg` hold the
//! groups. A new segment names the one before it and how much of that is valid, so a tail that failed is cut durably
//! without touching its file again.

mod append;
mod index;
mod manifest;
mod parse;
mod recovery;
mod segment;
mod storage;

#[cfg(test)]
mod tests;

pub use manifest::Manifest;
pub use storage::{FileStorage, OpenedLog};
