//! The seam between clusters: frames, links that carry them, and transports that make links.
//!
//! Owns the messages ([`wire`]), the traits ([`Transport`], [`Listener`], [`LinkSender`], [`LinkReceiver`]), a transport in
//! memory for tests and simulation ([`MemNetwork`]), a wrapper that cuts and slows any transport ([`CuttableTransport`])
//! and the conformance suite that every transport passes. The shipper dials, the applier listens; what the frames mean
//! is theirs. Real transports live in the connectors crate.
//!
//! Invariants: a link delivers frames whole, in order, or breaks; what lies between the two ends is bounded in bytes, and
//! at the bound a sender waits.

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod cuttable;
mod cuttable_link;
#[cfg(test)]
mod cuttable_tests;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod link;
pub mod marks;
mod memory;
mod packing;
pub mod pages;
mod seam;
pub mod wire;

pub use cuttable::CuttableTransport;
#[cfg(any(test, feature = "test-util"))]
pub use decoders::DECODERS;
pub use link::{Link, LinkReceiver, LinkSender};
pub use memory::{MemNetwork, MemTransport};
pub use packing::{Packer, ZSTD};
pub use seam::{DialTarget, Listener, Transport};
