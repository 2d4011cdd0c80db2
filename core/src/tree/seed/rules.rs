//! [`Rules`]: what becomes of a key when a seed is joined with what is here. Pure.
//!
//! The higher version wins, as everywhere. Beyond that, whoever covers a write and does not have it has deleted it: what
//! the giver covers and lacks is dead here, and what is covered here and lacking is not taken. A write of this cluster
//! itself counts as covered by the giver up to the giver's watermark for it, whatever its frontier says.

use std::collections::BTreeSet;

use super::record::{SeedRecord, Widening};
use crate::causal::OriginMarks;
use crate::id::{Hlc, Lsn, OriginTag, PartitionId, Version};
use crate::tree::ranges::RangeTombstones;
use crate::tree::target::Progress;

/// How a key stands on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) version: Version,
    /// Whether it holds a value, expired or not.
    pub(super) live: bool,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is not there.
    Nothing,
    /// It stays what it is here.
    Here,
    /// It is what the giver says.
    Row,
    /// It is deleted, by this version.
    Grave(Version, Lsn),
}

/// What is known of both sides.
pub(super) struct Rules {
    pub(super) own: OriginTag,
    pub(super) partitions: u16,
    /// What was applied here before.
    pub(super) mine: Progress,
    /// What the giver had applied at its position.
    pub(super) theirs: Progress,
    /// The partitions in which the giver holds other writes of this cluster than are here: this log went back to an
    /// older copy.
    pub(super) gone_back: BTreeSet<PartitionId>,
    /// What both have deleted.
    pub(super) ranges: RangeTombstones,
    /// More keys are held here than before: of the rest nothing is covered, whatever was left out of it.
    pub(super) widening: Option<Widening>,
}

impl Rules {
    /// What becomes of a key that stands like this here and there.
    pub(super) fn resolve(&self, key: &[u8], here: Option<Stand>, row: Option<Stand>) -> Choice {
        let dead = here.is_some_and(|here| {
            // What was found dead at the giver in the same way has the version of what it was.
            let lacks =
                row.is_none_or(|row| row.version < here.version || row.version == here.version && !row.live);
            here.live && lacks && self.covers(&self.theirs, key, here.version)
        });
        let unknown = |row: &Stand| {
            !SeedRecord::is_whole(self.widening.as_ref(), key) || !self.covers(&self.mine, key, row.version)
        };
        let row = row.filter(|row| here.is_some() || unknown(row));
        let (choice, stand) = match (here, row) {
            (None, None) => return Choice::Nothing,
            (Some(here), None) if dead => return Choice::Grave(here.version, Lsn::ZERO),
            (Some(here), Some(row)) if !dead && here.version >= row.version => (Choice::Here, here),
            (Some(here), None) => (Choice::Here, here),
            (_, Some(row)) => (Choice::Row, row),
        };
        match self.ranges.covering(key) {
            Some(cut) if stand.live && cut.version > stand.version => Choice::Grave(cut.version, cut.lsn),
            _ => choice,
        }
    }

    /// Whether a side covers a version of a key.
    fn covers(&self, side: &Progress, key: &[u8], version: Version) -> bool {
        if version.origin != self.own {
            return side.frontier.get(version.origin) >= version.hlc;
        }
        version.hlc <= self.own_covered(side, PartitionId::of(key, self.partitions))
    }

    /// Up to which HLC a side has, or had, every write of this cluster in a partition.
    pub(super) fn own_covered(&self, side: &Progress, partition: PartitionId) -> Hlc {
        let marks = side.watermarks.origin(self.own);
        let known = marks.map_or(Hlc::ZERO, |marks| marks.get(partition).hlc);
        if !self.gone_back.contains(&partition) {
            return known;
        }
        // The two sides do not mean the same writes by their marks. But up to where a side has reaped it had everything
        // that was written before this log went back, and here nothing is reaped of what was written after. That ends
        // with the last write that the side knows: what is written after, by a clock that is slow, it never had.
        side.reaped.min(known)
    }
}

/// Whether a live row of a seed that is not here comes too late, as a record would: nothing waited for its origin when
/// the dead were reaped here, so it may have been deleted.
pub(super) fn comes_too_late(mine: &Progress, own: OriginTag, version: Version) -> bool {
    version.origin != own && version.hlc <= mine.reaped && version.hlc > mine.frontier.get(version.origin)
}

/// What is applied once both are joined: of each partition the mark that reaches further.
pub(super) fn joined(mine: &Progress, theirs: &Progress, partitions: u16) -> Progress {
    let mut progress = mine.clone();
    progress.frontier.join(&theirs.frontier);
    // What was reaped there is not here either.
    progress.reaped = mine.reaped.max(theirs.reaped);
    for (origin, marks) in theirs.watermarks.iter() {
        let mut both = OriginMarks::new(marks.incarnation(), partitions);
        for (partition, there) in marks.iter() {
            let here = mine.watermarks.origin(origin).map(|here| here.get(partition)).unwrap_or_default();
            let further = there.next > here.next || there.next == here.next && there.hlc != Hlc::ZERO;
            let mark = if further { there } else { here };
            both.advance(partition, mark.next, mark.hlc);
        }
        progress.watermarks.insert(origin, both);
    }
    progress
}
