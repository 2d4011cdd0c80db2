//! Reaping: what is dead leaves the state once nothing older can arrive that it would have to win against.
//!
//! Tombstones, expired entries and deleted ranges go up to one HLC, `reaped`, a part of the tree's progress. It is raised
//! when every member of the tree's replication set is complete here up to it, this cluster included ([`Horizon`]), and
//! everything up to it is acknowledged by whoever reads the log here; never while somebody reads the entries one after
//! another ([`Reading`]): who takes them over replays writes that are late, and would miss the dead.
//!
//! Replay knows nothing of it. A snapshot says up to where its entries are reaped, and its frontier covers that; records
//! replayed above it are newer than all that is missing, or are those that bury it again.

mod horizon;
mod pass;
mod reading;
mod report;

#[cfg(test)]
mod steps_tests;
#[cfg(test)]
mod tests;

pub use pass::ReapTerms;
pub(super) use pass::Reaper;
pub(super) use reading::Reading;
pub use report::{Graves, ReapHold, ReapReport};
