//! What a log may forget, and who keeps it from forgetting more.
//!
//! [`Retention`] decides, from stored positions and nothing else; [`collect`] makes one pass: it stores what consumers
//! have reported, has the tree take snapshots if only its own recovery holds the log back, trims, and says what held.
//! Runs on demand.

mod pass;
mod report;
mod retention;

#[cfg(test)]
mod tests;

pub use pass::collect;
pub use report::{ConsumerReport, GcReport};
pub use retention::{Claim, Holder, Retention, Standing};
