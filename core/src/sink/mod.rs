//! The consumer contract: whatever reads the feed and makes something of it is a [`Sink`], the shipper included; the
//! [`Pump`] that drives each of them; and the [`SinkRunner`], which gives a sink of a tree its lease, its checkpoint and
//! its place among the consumers of the log.
//!
//! A sink of your own passes `conformance` (feature `test-util`), which takes three lines.

mod backoff;
mod board;
#[cfg(any(test, feature = "test-util"))]
mod conformance;
#[cfg(test)]
mod conformance_tests;
mod contract;
mod dead_letter;
mod dead_letters;
mod fault;
#[cfg(any(test, feature = "test-util"))]
mod faulty_sink;
mod fill;
mod isolation;
mod lease;
#[cfg(any(test, feature = "test-util"))]
mod mem_feed;
#[cfg(any(test, feature = "test-util"))]
mod mem_sink;
mod metrics;
mod news;
mod pump;
mod pump_handle;
mod runner;
mod sink_handle;
mod sink_status;
mod taken;
mod worker;

pub use backoff::{Backoff, BackoffSettings};
#[cfg(any(test, feature = "test-util"))]
pub use conformance::{Held, SinkRig, conformance};
pub use contract::{Sink, SinkContext};
pub use dead_letter::DeadLetter;
pub use dead_letters::DeadLetters;
#[cfg(any(test, feature = "test-util"))]
pub use faulty_sink::{FaultySink, SinkCall, SinkFault, SinkFaults};
pub use fill::{Fill, OnFilled};
pub use lease::{Lease, Leases, Others};
#[cfg(any(test, feature = "test-util"))]
pub use mem_feed::MemFeed;
#[cfg(any(test, feature = "test-util"))]
pub use mem_sink::{MemDestination, MemSink};
pub use metrics::SinkMetrics;
pub use news::News;
pub use pump::{OnDurable, OnPoison, Pump, PumpLog, PumpSettings};
pub use pump_handle::{PumpHandle, PumpState, PumpStatus};
pub use runner::{SinkRunner, SinkSettings};
pub use sink_handle::SinkHandle;
pub use sink_status::{SinkState, SinkStatus};
