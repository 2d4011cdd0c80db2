//! Applies groups to a [`State`]: last writer wins, record by record, in the order of the log.

use super::State;
use crate::id::{Hlc, Lsn, OriginTag, Version};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FormatError, FramedBlock, Group, Kind, RecordView};
use crate::tree::entry::Entry;
use crate::tree::key_table::KeyTag;
use crate::tree::ranges::Cut;

/// Records whose entries are looked up together: as many reads of memory as a core has on their way at once, or more.
const SOUGHT: usize = 32;

/// What applying a group did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tree) struct GroupOutcome {
    /// Concurrent writes of one key, of which one lost.
    pub(in crate::tree) conflicts: u64,
    /// Whether a record of it lost.
    pub(in crate::tree) lost: bool,
    /// Records of keys that are not held.
    pub(in crate::tree) unheld: u64,
}

/// A record on its way into the state.
struct Sought<'b> {
    record: RecordView<'b>,
    tag: KeyTag,
    /// Where its entry lies, if that is known.
    found: Option<u32>,
}

impl State {
    /// Applies a group whole. `incarnation_of` knows the incarnation of every origin in the log.
    pub(in crate::tree) fn apply(
        &mut self,
        group: &Group,
        incarnation_of: impl Fn(OriginTag) -> crate::id::Incarnation,
    ) -> GroupOutcome {
        let mut outcome = GroupOutcome::default();
        for framed in group.blocks() {
            let (last, readable) = self.apply_block(framed, &mut outcome);
            let origin = framed.block.origin();
            let marks = self.progress.watermarks.origin_mut(origin, incarnation_of(origin), self.partitions);
            for run in framed.block.runs() {
                let filtered = framed.block.is_filtered();
                // What stands at the end may have been left out.
                let last = if filtered { run.last } else { last[run.partition.index()] };
                let moved = marks.advance(run.partition, run.end(), last);
                if !readable || filtered && moved && last == Hlc::ZERO {
                    marks.forget_hlc(run.partition);
                }
            }
            self.progress.frontier.raise(origin, framed.frame.closed);
        }
        self.next_lsn = group.next_lsn();
        self.unheld.records += outcome.unheld;
        if group.next_lsn() <= self.superseded.settled() {
            // The state was taken later than this group: it may lose against what it was stronger than, and its
            // conflicts have been counted.
            return GroupOutcome::default();
        }
        outcome
    }

    /// Applies the records of a block; returns the HLC of the last one of each partition, and whether all could be read.
    fn apply_block(
        &mut self,
        framed: &FramedBlock,
        outcome: &mut GroupOutcome,
    ) -> ([Hlc; MAX_PARTITIONS as usize], bool) {
        let mut last = [Hlc::ZERO; MAX_PARTITIONS as usize];
        let origin = framed.block.origin();
        let deps = (origin != self.origin).then(|| framed.block.deps());
        let seen = |other: Version| match &deps {
            None => true,
            Some(deps) => other.origin == origin || deps.get(other.origin) >= other.hlc,
        };
        let mut lsn = framed.frame.first_lsn;
        let mut left_out = self.parked.left_out_of(&framed.block);
        let mut skip = framed.frame.skip;
        let (mut records, mut next) = (framed.block.records(), Vec::new());
        loop {
            let readable = self.look_up(&mut records, &mut next);
            for Sought { record, tag, found } in &next {
                let parked = left_out.as_mut().is_some_and(|left_out| left_out.passes(record));
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let version = Version { hlc: record.hlc, origin };
                if parked || !self.apply_sought(record, (*tag, *found), (version, lsn), seen, outcome) {
                    self.superseded.push(lsn);
                    outcome.lost = true;
                }
                if let Some(last) = last.get_mut(record.partition.index()) {
                    *last = record.hlc;
                }
                lsn = lsn.next();
            }
            if !readable && left_out.is_none() {
                // Blocks are checked record by record before they are appended, and by checksum when they are read: what
                // cannot be read is parked.
                tracing::error!(%lsn, "a record of the log cannot be read");
            }
            if !readable || next.len() < SOUGHT {
                return (last, readable);
            }
        }
    }

    /// Takes the next records of a block, and looks where the entries of their keys lie: step by step for all of them,
    /// so that the processor waits for memory once and not once for each. Says whether all could be read.
    fn look_up<'b>(
        &self,
        records: &mut impl Iterator<Item = Result<RecordView<'b>, FormatError>>,
        next: &mut Vec<Sought<'b>>,
    ) -> bool {
        next.clear();
        let mut readable = true;
        for record in records.take(SOUGHT) {
            let Ok(record) = record else {
                readable = false;
                break;
            };
            next.push(Sought { tag: KeyTag::of(record.key), record, found: None });
        }
        for sought in next.iter_mut() {
            sought.found = self.table.find(sought.tag, |_| true);
        }
        for Sought { record, found, .. } in next.iter_mut() {
            *found = found.filter(|slot| self.entries[*slot as usize].key().len() == record.key.len());
        }
        for Sought { record, found, .. } in next.iter_mut() {
            *found = found.filter(|slot| self.entries[*slot as usize].key() == record.key);
        }
        readable
    }

    /// Last writer wins. `seen` says whether the writer may have seen a version that is here. Returns whether it won.
    pub(in crate::tree) fn apply_record(
        &mut self,
        record: &RecordView<'_>,
        version: Version,
        lsn: Lsn,
        seen: impl Fn(Version) -> bool,
        outcome: &mut GroupOutcome,
    ) -> bool {
        self.apply_sought(record, (KeyTag::of(record.key), None), (version, lsn), seen, outcome)
    }

    /// The same, of a record whose entry may have been found already.
    fn apply_sought(
        &mut self,
        record: &RecordView<'_>,
        (tag, found): (KeyTag, Option<u32>),
        (version, lsn): (Version, Lsn),
        seen: impl Fn(Version) -> bool,
        outcome: &mut GroupOutcome,
    ) -> bool {
        if record.kind != Kind::Mark && !self.interest.wants(record) {
            outcome.unheld += 1;
            return false;
        }
        let value = match record.kind {
            Kind::Set => Some(record.value),
            Kind::Delete => None,
            Kind::DeleteRange => return self.apply_range(record, Cut { version, lsn }, seen, outcome),
            Kind::Mark => return true,
        };
        // A record just before it may have made the entry.
        let found = found.or_else(|| self.slot(tag, record.key));
        let mut here = found.map(|slot| self.entries[slot as usize].version);
        if !self.ranges.is_empty() {
            here = here.max(self.ranges.covering(record.key).map(|cut| cut.version));
        }
        if let Some(here) = here {
            outcome.conflicts += u64::from(!seen(here));
            if here >= version {
                return false;
            }
        }
        match found {
            Some(slot) => self.rewrite(slot, value, record.deadline_ms, version, lsn),
            None => self.insert(tag, Entry::new(record.key, value, record.deadline_ms, version, lsn)),
        }
        true
    }

    /// Deletes what a range holds in a lower version, and remembers to do so with what arrives later. A conflict is
    /// counted for each key with a value that the writer had not seen. Returns whether any part of the range was not
    /// deleted by a greater version before.
    fn apply_range(
        &mut self,
        record: &RecordView<'_>,
        cut: Cut,
        seen: impl Fn(Version) -> bool,
        outcome: &mut GroupOutcome,
    ) -> bool {
        let Some(to) = record.end_key else {
            // Refused at the door, and in blocks that come from elsewhere.
            tracing::error!(lsn = %cut.lsn, "a range delete without an end has no effect");
            return true;
        };
        let won = self.ranges.insert(record.key, to, cut);
        for slot in self.slots_within(record.key, to) {
            let entry = &self.entries[slot as usize];
            if !entry.is_live() {
                continue;
            }
            outcome.conflicts += u64::from(!seen(entry.version));
            if entry.version < cut.version {
                self.rewrite(slot, None, None, cut.version, cut.lsn);
            }
        }
        won
    }

    fn rewrite(
        &mut self,
        slot: u32,
        value: Option<&[u8]>,
        deadline_ms: Option<u64>,
        version: Version,
        lsn: Lsn,
    ) {
        let entry = &mut self.entries[slot as usize];
        self.totals.remove(entry);
        let mut digesting = self.digesting.get_mut().as_mut();
        if let Some(digesting) = &mut digesting {
            digesting.leaves(slot, entry);
        }
        entry.rewrite(value, deadline_ms, version, lsn);
        if let Some(digesting) = digesting {
            digesting.comes(slot, entry);
        }
        self.totals.add(entry);
    }
}
