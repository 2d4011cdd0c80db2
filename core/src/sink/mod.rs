//! The consumer contract: whatever reads the feed and makes something of it is a [`Sink`], the shipper included; and the
//! [`Pump`] that drives each of them.

mod backoff;
mod contract;
#[cfg(any(test, feature = "test-util"))]
mod mem_feed;
mod pump;
mod pump_handle;
mod taken;

pub use backoff::{Backoff, BackoffSettings};
pub use contract::{Sink, SinkContext};
#[cfg(any(test, feature = "test-util"))]
pub use mem_feed::MemFeed;
pub use pump::{OnDurable, Pump, PumpLog, PumpSettings};
pub use pump_handle::{PumpHandle, PumpState, PumpStatus};
