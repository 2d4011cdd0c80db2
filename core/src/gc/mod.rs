//! What a log may forget, and who keeps it from forgetting more; and when the dead leave the state.
//!
//! [`Retention`] decides, from stored positions and nothing else; [`collect`] makes one pass: it stores what consumers
//! have reported, has the tree take snapshots if only its own recovery holds the log back, trims, and says what held.
//! [`Keeper`] makes passes by itself, at the pace of a [`Schedule`]; a pass can also be asked for.

mod keeper;
mod pass;
mod pressure;
mod report;
mod retention;
mod schedule;

#[cfg(test)]
mod tests;

pub use keeper::Keeper;
pub use pass::{PassOptions, collect};
pub use pressure::Pressure;
pub use report::{ConsumerReport, GcReport};
pub use retention::{Claim, Holder, Retention, Standing};
pub use schedule::{PassOutcome, Schedule};
