//! The consumer contract: whatever reads the feed and makes something of it is a [`Sink`], the shipper included; and the
//! [`Pump`] that drives each of them.

mod backoff;
mod contract;
mod pump;
mod pump_handle;
mod taken;

pub use backoff::{Backoff, BackoffSettings};
pub use contract::{Sink, SinkContext};
pub use pump::{OnDurable, Pump, PumpLog, PumpSettings};
pub use pump_handle::{PumpHandle, PumpState, PumpStatus};
