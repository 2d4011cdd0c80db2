//! The heart of Tidewire: a write-ahead log, the tree that applies it, and the feed that everything else reads.
//!
//! The rooms stand in the order in which data walks through them, and a room uses only what stands above it:
//! the small words ([`limits`], [`id`], [`error`], [`random`], [`clock`], [`metrics`], [`tasks`]), then [`record`]
//! and [`causal`], then files and positions, the log, the tree, the feed, and the seams to other clusters.

pub mod causal;
pub mod clock;
pub mod disk;
pub mod error;
pub mod feed;
pub mod id;
pub mod latest;
pub mod limits;
pub mod meta;
pub mod metrics;
pub mod random;
pub mod record;
pub mod sink;
pub mod tasks;
pub mod transport;
pub mod tree;
pub mod wal;
