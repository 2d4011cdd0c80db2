//! The heart of Tidewire: a write-ahead log, the tree that applies it, and the feed that everything else reads.
//!
//! A write is encoded once, into a [`record::Block`], and the block keeps its bytes on every disk and every link. The
//! [`wal`] makes groups of blocks durable; the [`tree`] applies what is durable and answers reads; whoever follows, a
//! shipper to another cluster for one, is a [`sink`] of the [`feed`].
//!
//! The rooms stand in the order in which data walks through them, and a room uses only what stands above it: the small
//! words ([`limits`], [`id`], [`error`], [`random`], [`latest`], [`clock`], [`metrics`], [`tasks`], [`units`]), then [`causal`],
//! [`record`], [`disk`], [`meta`], [`wal`], [`feed`], [`tree`], [`sink`]. [`transport`] uses the words, `record` and
//! `causal` only. Programs that embed Tidewire use the crate `tidewire`; this one is for those who implement a seam: the
//! disk, the metadata, a transport, a sink.
//!
//! ```
//! use tidewire_core::causal::VersionVector;
//! use tidewire_core::id::{ClusterId, Hlc, Incarnation, Offset, PartitionId};
//! use tidewire_core::record::{Block, BlockBuilder, Mutation};
//!
//! // A block of one write of eu-west, as it lies in the log and travels to other clusters.
//! let (origin, incarnation) = (ClusterId::new("eu-west")?.tag(), Incarnation::new(7));
//! let partition = PartitionId::of(b"order-17", 8);
//! let mut builder = BlockBuilder::new(origin, 8, 0, 256);
//! builder.push(&Mutation::set("order-17", "paid"), partition, Offset::ZERO, Hlc::new(1), false);
//! let sealed = builder.seal(&VersionVector::default(), incarnation);
//!
//! // Whoever receives the bytes checks them and reads them in place.
//! let block = Block::parse(sealed.bytes().clone())?;
//! block.verify(incarnation)?;
//! let record = block.records().next().expect("there is one")?;
//! assert_eq!((record.key, record.value), (&b"order-17"[..], &b"paid"[..]));
//! assert!(block.verify(Incarnation::new(8)).is_err(), "of another log");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod causal;
pub mod clock;
pub mod cursors;
pub mod disk;
pub mod error;
pub mod feed;
pub mod gc;
pub mod id;
pub mod latest;
pub mod letters;
pub mod limits;
pub mod meta;
pub mod metrics;
pub mod random;
pub mod record;
pub mod sink;
pub mod tasks;
pub mod transport;
pub mod tree;
#[cfg(any(test, feature = "test-util"))]
pub mod trials;
pub mod units;
pub mod wal;
