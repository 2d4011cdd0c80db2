//! JSON lines: every effective change of a tree as one line of JSON, into a file or to stdout. The reference of what a
//! sink is: `sink.rs` is quoted in `docs/sinks.md`.
//!
//! At least once: after a crash the lines behind the stored checkpoint come again, with the dots that they had.

mod config;
mod encode;
mod output;
mod sink;
#[cfg(test)]
mod tests;

pub use config::JsonlConfig;
pub use sink::JsonlSink;
