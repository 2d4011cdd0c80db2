//! Tidewire as one library: what a program that embeds it, and the binary, are made of.

#[cfg(all(feature = "server", feature = "grpc"))]
mod bench;
#[cfg(all(feature = "server", feature = "grpc"))]
pub mod cli;
pub mod cluster;
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

pub use cluster::{Cluster, ClusterBuilder};
pub use config::{ClusterConfig, Peer};
pub use tidewire_core::tree::{Change, Changes, Event, Operation, Start, Token, Tree};
