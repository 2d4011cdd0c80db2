//! The consumer contract: whatever reads the feed and makes something of it is a [`Sink`], the shipper included.

mod contract;

pub use contract::{Sink, SinkContext};
