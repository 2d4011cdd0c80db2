//! The systems, each in a file of its own.

pub mod jetstream;
pub mod kafka;
pub mod postgres;
pub mod tidewire;
