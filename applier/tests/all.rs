//! Whole appliers over a network in memory, under paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may, its helpers too")]

mod asking;
mod doors;
mod flow;
#[allow(dead_code, reason = "the unit tests of the crate use the rest")]
mod origin;
mod pauses;
mod real;
mod rig;
