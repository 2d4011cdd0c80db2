//! Where the consumers of a log stand, durably: what the log may forget is decided from this and nothing else.

#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod registry;

#[cfg(any(test, feature = "test-util"))]
pub use decoders::DECODERS;
pub use registry::{Consumer, Registry, ReportOutcome, SINK, Window, consumer_of};
