//! The sending side of replication: ships what a tree commits locally to one peer, and as a relay what other clusters
//! committed too.
//!
//! A shipper is a sink of the feed whose far end is the peer's applier. It keeps no position: after every connect it
//! starts from the watermarks that the peer answers with, and what the peer acknowledges is its durable cursor. What
//! is decided lies in pure state (`handshake`, `route`, `session`, `wave`, `promises`, `ledger`, `window`, `flow`); [`Shipper`] does the I/O, the
//! pump of `tidewire-core` drives it, [`spawn`] puts the two together.
//!
//! Invariants: nothing is sent to a peer that holds what this log does not; pages leave in the order of the log, whole
//! groups each; nothing goes back to its origin; a heartbeat leaves only after every page before it; only a contiguous prefix of pages is ever durable.
//!
//! ```
//! # use std::sync::Arc;
//! # use tidewire_core::sink::MemFeed;
//! # use tidewire_core::id::{BootId, ClusterId, Incarnation, TreeName};
//! # use tidewire_core::tree::{Consistency, MergeMode, TreeIdentity};
//! use tidewire_core::{clock::SystemClock, metrics::Metrics, random::Random};
//! use tidewire_core::sink::News;
//! use tidewire_core::tasks::{Tasks, Threads};
//! use tidewire_core::transport::{DialTarget, MemNetwork};
//! use tidewire_shipper::{Forward, Settings, ShipperConfig, ShipperMetrics, ShipperState, spawn};
//!
//! # let log = MemFeed::new(TreeIdentity {
//! #     cluster: ClusterId::new("here")?,
//! #     tree: TreeName::new("orders")?,
//! #     incarnation: Incarnation::new(1),
//! #     partitions: 8,
//! #     merge: MergeMode::LastWriterWins,
//! #     consistency: Consistency::Causal,
//! # });
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let network = MemNetwork::new(&Random::from_seed(1));
//! let config = ShipperConfig {
//!     peer: DialTarget { peer: ClusterId::new("there")?, url: "mem://there".into() },
//!     forward: Forward::Never,
//!     hold: Arc::new(|cursor| println!("the log is needed from {cursor} on")),
//!     boot: BootId::new(Random::from_os().id()),
//!     known_clusters: Arc::new(Vec::new),
//!     transport: Arc::new(network.endpoint(&ClusterId::new("here")?)),
//!     settings: Settings::default(),
//!     wall: Arc::new(SystemClock),
//!     metrics: ShipperMetrics::new(&Metrics::default()),
//!     news: News::default(),
//! };
//! let tasks = Tasks::new(Threads::Spawn);
//! let on_durable = Arc::new(|cursor| println!("the peer has everything before {cursor}"));
//! let shipper = spawn(&tasks, config, Arc::new(log), Random::from_os(), None, on_durable);
//! assert_eq!(shipper.status().state, ShipperState::Connecting);
//! shipper.stop().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod flow;
mod forward;
mod handle;
mod handshake;
mod ledger;
mod line;
mod lines;
mod metrics;
mod outbox;
mod packing;
mod promises;
mod rate;
mod route;
mod seeding;
mod session;
mod settings;
mod sieve;
mod sink;
mod status;
mod wave;
mod window;

pub use error::ShipError;
pub use forward::Forward;
pub use handle::{ShipperHandle, spawn};
pub use metrics::ShipperMetrics;
pub use packing::Compression;
pub use rate::RateLimit;
pub use settings::Settings;
pub use sink::{Hold, Shipper, ShipperConfig};
pub use status::{Lag, ShipperState, ShipperStatus};
