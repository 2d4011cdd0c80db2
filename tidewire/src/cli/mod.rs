//! The command line: reads it, calls what does the work, turns a failure into one line and an exit code.
//!
//! Commands that talk to a server do so over HTTP and need no runtime; `serve`, `demo` and `bench` live in modules of
//! their own. Nothing but this room and those modules prints.

mod client;
mod collect;
mod command;
mod config;
mod data;
mod failure;
mod letters;
mod load;
mod peers;
mod sinks;
mod status;
mod table;
mod wal;

pub use command::main;
pub(crate) use failure::Failure;
pub(crate) use table::{Table, bytes_for_people};
