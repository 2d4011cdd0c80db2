//! Transports: ways to carry frames between clusters, implementations of
//! [`Transport`](tidewire_core::transport::Transport).

#[cfg(feature = "grpc")]
pub mod grpc;
