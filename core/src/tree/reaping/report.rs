//! [`ReapReport`]: what a pass took out, what is left, and what keeps it.

use std::ops::AddAssign;

use crate::id::{ClusterId, Hlc};

/// Things that are dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Graves {
    /// Keys that were deleted.
    pub tombstones: u64,
    /// Keys whose deadline has passed.
    pub expired: u64,
    /// Deleted ranges, in pieces that do not overlap.
    pub ranges: u64,
}

impl Graves {
    /// How many.
    pub fn total(&self) -> u64 {
        self.tombstones + self.expired + self.ranges
    }
}

impl AddAssign for Graves {
    fn add_assign(&mut self, more: Self) {
        self.tombstones += more.tombstones;
        self.expired += more.expired;
        self.ranges += more.ranges;
    }
}

/// What keeps the dead that are newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReapHold {
    /// Who takes part in the tree is not known yet: the cluster is starting.
    Undeclared,
    /// Writes of this cluster may still come: it is complete here up to [`ReapReport::complete`] and no further.
    Origin(ClusterId),
    /// A reader of the log has not acknowledged what buried them.
    Consumer(String),
    /// A peer has not been heard since this cluster started: it may know more of this log than is here.
    Unheard(String),
    /// A sink has not been told what the last seed brought, or deleted.
    Unfilled(String),
    /// The tree waits for a seed itself.
    Seed,
    /// Somebody reads the state: a snapshot is written, or a peer is seeded.
    Reading,
    /// A write that could not be applied is kept aside and may be replayed.
    Parked,
    /// They are younger than the time for which the dead are kept.
    Age,
}

/// What one pass took out of a tree, and what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReapReport {
    /// The dead may go up to here.
    pub reaped: Hlc,
    /// What went in this pass: nothing in a dry run.
    pub gone: Graves,
    /// What is still there.
    pub left: Graves,
    /// What keeps the dead above `reaped`.
    pub held_by: ReapHold,
    /// Up to where whatever keeps them would let them go: for an origin, up to where it is complete here.
    pub complete: Hlc,
}
