//! The tree: takes writes into its log, applies what is durable, answers reads.
//!
//! Nothing else writes its log, and nothing outside changes its state but through [`ApplyTarget::apply`]. A durable
//! group is applied whole, in log order, before its writers are woken: a caller who goes away has committed or has not,
//! and the state agrees with the log either way.

mod change;
mod changes;
mod core;
mod deadlines;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod entry;
mod feeding;
mod filtered;
mod holding;
mod identity;
mod image;
mod index;
mod key_table;
mod log_view;
mod members;
#[cfg(any(test, feature = "test-util"))]
mod memory;
mod observer;
mod open;
mod operation;
mod packed;
mod parking;
mod ranges;
mod reaping;
mod recovery;
mod replay;
mod replica;
mod retention;
mod seed;
mod snapshot;
mod state;
mod superseded;
mod target;
mod token;

#[cfg(test)]
mod holding_tests;
#[cfg(test)]
mod observer_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod relay_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;

pub use change::{Change, ChangeView};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use change::{decode_block, decode_rows};
pub use changes::{Changes, Event, Start};
pub use core::{Digest, Tree, TreeSize};
#[cfg(any(test, feature = "test-util"))]
pub use decoders::DECODERS;
pub use entry::{Row, Value};
pub use filtered::{FilteredFeed, PartitionPage};
pub use identity::{Consistency, TreeIdentity};
pub use log_view::{Located, LogView, Standing};
pub use members::Members;
#[cfg(any(test, feature = "test-util"))]
pub use memory::MemTarget;
pub use observer::{ObservedWrite, Observer, Observing};
pub use open::{TreeConfig, TreeMetrics};
pub use operation::{Operation, PutOptions};
pub use reaping::{Graves, ReapHold, ReapReport, ReapTerms};
pub use seed::{Imported, LateRows, SEED_PIECE_BYTES, SeedLack, SeedReader, SeedWish, Staging};
pub use snapshot::{SnapshotInfo, SnapshotReport};
pub use target::{Applied, ApplyTarget, Parking, Progress};
pub use token::Token;

pub use crate::record::{MergeMode, ReadyGroup};
