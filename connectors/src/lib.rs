//! What connects Tidewire to the world outside: transports between clusters and sinks to other systems, a feature each.
//!
//! Every connector implements a seam of `tidewire-core` and passes its conformance suite. The crate has no default
//! features.

mod invalid;
#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "jsonl")]
pub mod jsonl;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod transports;

pub use invalid::InvalidSettings;
