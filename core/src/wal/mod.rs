//! The write-ahead log of a tree: the only place where data is safe.
//!
//! [`Writer`] gives out positions, fills groups, and has them made durable one after the other; [`WalStorage`] is where
//! they go. One log per tree: all partitions share one writer, one sync, one line of positions. Only the tree writes
//! it, and only the feed and the tree's recovery read it.
//!
//! A provider of your own passes `conformance` (feature `test-util`), which takes three lines.

mod committer;
mod completion;
#[cfg(any(test, feature = "test-util"))]
mod conformance;
mod duty;
mod fate;
#[cfg(any(test, feature = "test-util"))]
mod faults;
#[cfg(any(test, feature = "test-util"))]
mod faulty_storage;
pub mod file;
mod filter;
mod flight;
mod latch;
mod lead;
mod log;
mod log_selector;
#[cfg(any(test, feature = "test-util"))]
mod mem_storage;
mod metrics;
mod pending;
mod recent;
mod runner;
mod selection;
mod state;
mod storage;
mod ticket;
mod watch;
mod writer;

#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod tests;

pub use completion::Completion;
#[cfg(any(test, feature = "test-util"))]
pub use conformance::{WalSubject, conformance};
pub use fate::Fate;
#[cfg(any(test, feature = "test-util"))]
pub use faults::{WalCall, WalFault, WalFaults};
#[cfg(any(test, feature = "test-util"))]
pub use faulty_storage::FaultyStorage;
pub use filter::Filter;
pub use latch::LogState;
pub use log::Log;
pub use log_selector::LogSelector;
#[cfg(any(test, feature = "test-util"))]
pub use mem_storage::MemStorage;
pub use metrics::WalMetrics;
pub use runner::CommitRunner;
pub use selection::{PartitionExtent, PartitionKey, Selected, Selection};
pub use storage::{Bounds, WalStorage};
pub use writer::{DurableGroups, Writer, WriterConfig, WriterStart};
