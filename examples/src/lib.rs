//! Examples of the library, one idea each. Every one is a program that ends by itself, and the tests run it.
//!
//! | run | shows |
//! |---|---|
//! | `cargo run -p tidewire-examples --example embed` | one cluster in a program: write, read, scan, follow changes, stop |
//! | `cargo run -p tidewire-examples --example replicate` | two clusters, and a read that waits for a write made on the other one |
//! | `cargo run -p tidewire-examples --example custom_sink` | a destination of your own, fed from a tree |
//! | `cargo run -p tidewire-examples --example custom_transport` | a transport of your own between clusters |
//! | `cargo run -p tidewire-examples --example resume_after_crash` | a reader that goes on where it was, with no gap and nothing twice |
//! | `cargo run -p tidewire-examples --example kafka [BROKERS]` | a tree that feeds a Kafka topic; without brokers a mock one |
//!
//! This library itself holds nothing but the examples of the README, which have to compile.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
