//! The consumer contract: whatever reads the feed and makes something of it is a [`Sink`], the shipper included; and the
//! [`Pump`] that drives each of them.

mod backoff;
mod contract;
mod dead_letter;
mod dead_letters;
mod fault;
mod isolation;
#[cfg(any(test, feature = "test-util"))]
mod mem_feed;
mod pump;
mod pump_handle;
mod taken;
mod worker;

pub use backoff::{Backoff, BackoffSettings};
pub use contract::{Sink, SinkContext};
pub use dead_letter::DeadLetter;
pub use dead_letters::DeadLetters;
#[cfg(any(test, feature = "test-util"))]
pub use mem_feed::MemFeed;
pub use pump::{OnDurable, OnPoison, Pump, PumpLog, PumpSettings};
pub use pump_handle::{PumpHandle, PumpState, PumpStatus};
