//! Whole shippers against a scripted peer, over the network in memory, in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, which clippy does not see as such")]

mod flow;
mod peer;
mod refused;
mod rig;
mod shipping;
