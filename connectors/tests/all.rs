//! Claims about the connectors, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

#[cfg(feature = "grpc")]
#[path = "all/grpc.rs"]
mod grpc;
#[cfg(feature = "grpc")]
#[path = "all/grpc_strangers.rs"]
mod grpc_strangers;
