//! A network in memory, for tests and simulation: seeded, in virtual time, with faults on demand.
//!
//! No tasks and no threads: delivery is decided when an end looks, by `tokio::time`, so that a run under paused time is
//! repeatable. Faults are those of a stream: a link breaks as a whole, a cut makes it silent, and only the adversarial
//! settings (repeat, reorder) do what no stream does.

mod fault;
mod network;
mod pipe;
mod transport;

pub use network::MemNetwork;
pub use transport::MemTransport;

#[cfg(test)]
mod tests;
