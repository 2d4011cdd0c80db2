//! The HTTP API of one cluster.
//!
//! It owns the socket and what comes in through it until it is checked: sizes, encodings, credentials. It knows the
//! cluster only as a [`Site`]. Nothing that a client does makes it hold more than a bounded number of connections,
//! streams and bytes of bodies; what is over a bound waits in the listen queue or is answered 429, and a client
//! that does not take its answers is given up on. `serve` starts it.

mod admin;
mod api;
mod batch;
mod body;
mod changes;
mod collect;
mod config;
mod data;
mod digest;
mod failure;
mod json;
mod path;
mod patience;
mod query;
mod scan;
mod server;
mod site;
mod snapshot;
mod status;

#[cfg(test)]
mod tests;

pub use admin::{LetterAction, Order, PeerAction, SinkAction};
pub use config::HttpConfig;
pub use server::HttpServer;
pub use site::Site;
