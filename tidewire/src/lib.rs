//! Tidewire as one library: what a program that embeds it, and the binary, are made of.
//!
//! A [`Cluster`] is one site with a data directory; a [`Tree`] is a key space of it with a log of its own. A write is
//! answered when it is on disk and visible; from there it goes to the peers of the cluster, and every cluster shows it
//! after what its writer had seen.
//!
//! ```
//! use tidewire::{Cluster, ClusterConfig, Event, Start};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let mut config = ClusterConfig::new("eu-west", dir.path());
//! config.listen.replication = "127.0.0.1:0".parse()?; // a free port for links from peers
//! let cluster = Cluster::open(config).await?;
//!
//! let orders = cluster.tree("orders").await?;
//! let version = orders.put("order-17", "paid").await?;
//! assert_eq!(orders.get("order-17").map(|found| found.version), Some(version));
//!
//! let mut changes = orders.changes(Start::Beginning);
//! let Event::Change(change) = changes.next().await? else { panic!("a change comes first") };
//! assert_eq!((&change.key[..], &change.value[..]), (&b"order-17"[..], &b"paid"[..]));
//!
//! cluster.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Cluster::builder`] takes components of your own: a disk, metadata, a clock, a transport. The features: `grpc` is
//! replication over gRPC, `server` is the HTTP API, the command line and the binary; both are on by default.

#[cfg(all(feature = "server", feature = "grpc"))]
mod bench;
#[cfg(all(feature = "server", feature = "grpc"))]
pub mod cli;
pub mod cluster;
#[cfg(feature = "server")]
mod collected;
pub mod config;
#[cfg(all(feature = "server", feature = "grpc"))]
mod demo;
#[cfg(feature = "server")]
pub mod http;
#[cfg(all(feature = "server", feature = "grpc"))]
mod local;
#[cfg(all(feature = "server", feature = "grpc"))]
mod serve;
pub mod status;

pub use cluster::{Cluster, ClusterBuilder, Reloaded, SinkOptions};
pub use config::{ClusterConfig, Peer};
pub use tidewire_connectors as connectors;
pub use tidewire_core::error::{Error, ErrorKind};
pub use tidewire_core::tree::{
    Change, Changes, Event, ObservedWrite, Observer, Observing, Operation, PutOptions, Start, Token, Tree,
};
