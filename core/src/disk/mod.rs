//! The one door to files: the [`Disk`] seam, the real disk, and disks for tests.
//!
//! Synchronous, positional, `&self`. What a caller may rely on after a crash is said at each call of the contract and
//! nowhere else: bytes are safe after [`DiskFile::sync_data`], names of files after [`Disk::sync_dir`], directories at
//! once. The log, the snapshots and the data directory's own small files are written through here; only the metadata
//! store keeps a file of its own.

mod atomic;
#[cfg(any(test, feature = "test-util"))]
mod conformance;
mod contract;
#[cfg(any(test, feature = "test-util"))]
mod crash_images;
mod failure;
#[cfg(any(test, feature = "test-util"))]
mod faults;
#[cfg(any(test, feature = "test-util"))]
mod faulty_disk;
#[cfg(any(test, feature = "test-util"))]
mod mem_content;
#[cfg(any(test, feature = "test-util"))]
mod mem_disk;
#[cfg(any(test, feature = "test-util"))]
mod mem_file;
#[cfg(any(test, feature = "test-util"))]
mod mem_names;
mod real_disk;
#[cfg(test)]
mod tests;

pub use atomic::{read_whole, write_atomically};
#[cfg(any(test, feature = "test-util"))]
pub use conformance::conformance;
pub use contract::{DirLock, Disk, DiskFile, OpenMode};
#[cfg(any(test, feature = "test-util"))]
pub use crash_images::CrashImages;
pub use failure::DiskFailure;
#[cfg(any(test, feature = "test-util"))]
pub use faults::{DiskFaults, DiskOperation};
#[cfg(any(test, feature = "test-util"))]
pub use faulty_disk::FaultyDisk;
#[cfg(any(test, feature = "test-util"))]
pub use mem_disk::MemDisk;
pub use real_disk::RealDisk;
