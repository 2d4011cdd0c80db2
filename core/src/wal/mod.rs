//! The write-ahead log of a tree: the only place where data is safe.
//!
//! [`Writer`] gives out positions, fills groups, and has them made durable one after the other; [`WalStorage`] is where
//! they go. One log per tree: all partitions share one writer, one sync, one line of positions. Only the tree writes
//! it, and only the feed and the tree's recovery read it.

mod committer;
mod completion;
mod duty;
mod fate;
pub mod file;
mod flight;
mod latch;
mod log;
mod metrics;
mod pending;
mod recent;
mod runner;
mod state;
mod storage;
mod ticket;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

pub use completion::Completion;
pub use fate::Fate;
pub use latch::LogState;
pub use log::Log;
pub use metrics::WalMetrics;
pub use runner::CommitRunner;
pub use storage::{Bounds, WalStorage};
pub use writer::{DurableGroups, Writer, WriterConfig, WriterStart};
