//! [`GcReport`]: what a pass found and did.

use super::retention::{Claim, Holder, Retention};
use crate::id::{Lsn, TreeName};
use crate::tree::ReapReport;
use crate::wal::Bounds;

/// A consumer as a pass saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerReport {
    /// Its name.
    pub name: String,
    /// What it may ask of the log.
    pub claim: Claim,
    /// Bytes of the log, as it is after the pass, from what it asks for to the end.
    pub bytes: u64,
}

/// What one pass over the log of a tree did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcReport {
    /// The tree.
    pub tree: TreeName,
    /// Nothing was changed: `after` is what a pass would leave.
    pub dry_run: bool,
    /// What the log held before.
    pub before: Bounds,
    /// What it holds now. Its files may have grown meanwhile.
    pub after: Bounds,
    /// How many records went.
    pub trimmed_records: u64,
    /// How many bytes of groups went.
    pub trimmed_bytes: u64,
    /// Everything from here on was asked for; the segment that it lies in stays whole.
    pub keep: Lsn,
    /// Who asked for that.
    pub holder: Holder,
    /// Bytes from there to the end of the log.
    pub held_bytes: u64,
    /// The tree's own checkpoint.
    pub checkpoint: Lsn,
    /// How many snapshots were taken so that more could go; in a dry run, whether one would be.
    pub snapshots: u32,
    /// Every consumer, by name.
    pub consumers: Vec<ConsumerReport>,
    /// What left the state.
    pub reaping: ReapReport,
}

impl GcReport {
    /// Who keeps the rest, for people.
    pub fn held_by(&self) -> &str {
        match &self.holder {
            Holder::Nobody => "nobody",
            Holder::Checkpoint => "the tree's own checkpoint",
            Holder::Age => "nobody, only its age",
            Holder::DeadLetters => "dead letters",
            Holder::Consumer(name) => name,
        }
    }

    /// Names of the consumers that have fallen off: they are to be seeded anew.
    pub fn fell_off(&self) -> impl Iterator<Item = &str> {
        self.consumers
            .iter()
            .filter(|consumer| consumer.claim == Claim::FellOff)
            .map(|consumer| consumer.name.as_str())
    }

    pub(super) fn consumers_of(
        retention: &Retention,
        bounds: &Bounds,
        bytes_after: impl Fn(Lsn) -> u64,
    ) -> Vec<ConsumerReport> {
        let standings = retention.standings.iter().map(|standing| ConsumerReport {
            name: standing.consumer.clone(),
            claim: standing.claim.after(bounds),
            bytes: standing.claim.after(bounds).lowest(bounds).map_or(0, &bytes_after),
        });
        standings.collect()
    }
}
