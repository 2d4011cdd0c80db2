//! Takes out of a [`State`] what is dead for good, a few entries under one lock.
//!
//! A place in the order of keys cannot be given up at once: what was reaped stays there, invisible, until a sweep has
//! passed; then its slot is used again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::State;
use crate::id::Hlc;
use crate::tree::entry::Entry;
use crate::tree::key_table::KeyTag;
use crate::tree::reaping::{Graves, Reading};

/// A sweep is worth its while when one entry of so many is gone.
const SWEPT_SHARE: usize = 16;

/// What is left of entries that were reaped, and who must not be overtaken.
#[derive(Debug, Default)]
pub(super) struct Leavings {
    /// Slots that the order of keys still knows.
    gone: Vec<u32>,
    /// Slots that nothing knows any more.
    vacant: BTreeSet<u32>,
    /// How many of those that are gone, the first ones, a sweep passes over now.
    swept: usize,
    /// Which part of the table gives memory back next, at the end of a sweep.
    shrinking: usize,
    readings: Arc<()>,
}

impl Leavings {
    pub(super) fn len(&self) -> usize {
        self.gone.len() + self.vacant.len()
    }
}

impl State {
    /// Held by whoever reads the entries one after another while groups are applied in between: nothing newer is reaped
    /// until it is dropped. To be taken in one look with the positions that the reading begins with.
    pub(in crate::tree) fn begin_reading(&self) -> Reading {
        Reading::new(&self.leavings.readings)
    }

    /// Whether somebody reads the entries.
    pub(in crate::tree) fn is_read(&self) -> bool {
        Arc::strong_count(&self.leavings.readings) > 1
    }

    /// From now on what is dead may go up to an HLC, unless somebody reads the entries.
    pub(in crate::tree) fn raise_reaped(&mut self, to: Hlc) {
        if !self.is_read() {
            self.progress.reaped = self.progress.reaped.max(to);
        }
    }

    /// What is dead and still there when the clock says `now`.
    pub(in crate::tree) fn graves(&self, now: u64) -> Graves {
        Graves {
            tombstones: self.len() as u64 - self.totals.live(),
            expired: self.totals.expired(now),
            ranges: self.ranges.len() as u64,
        }
    }

    /// Whether an entry expires after one moment, and at another or before it.
    pub(in crate::tree) fn expires_between(&self, after: u64, until: u64) -> bool {
        self.totals.expires_between(after, until)
    }

    /// Takes out what may go of `most` slots, from one on; `expired_by` is when a deadline has passed. Answers the slot
    /// after, None at the end, and what went.
    pub(in crate::tree) fn reap_slots(
        &mut self,
        from: usize,
        most: usize,
        expired_by: u64,
    ) -> (Option<usize>, Graves) {
        let (mut graves, until) = (Graves::default(), self.progress.reaped);
        let end = self.entries.len().min(from + most);
        for slot in from..end {
            let entry = &self.entries[slot];
            if entry.is_gone() || entry.version.hlc > until {
                continue;
            }
            match (entry.is_live(), entry.deadline_ms()) {
                (false, _) => graves.tombstones += 1,
                (true, Some(deadline)) if deadline <= expired_by => graves.expired += 1,
                _ => continue,
            }
            self.take_out(slot);
        }
        ((end < self.entries.len()).then_some(end), graves)
    }

    /// Takes out what is not held of `most` slots, from one on, whoever reads the entries: it counts as not there for him
    /// too. Answers the slot after, None at the end, and how many went.
    pub(in crate::tree) fn drop_unheld(&mut self, from: usize, most: usize) -> (Option<usize>, u64) {
        let end = self.entries.len().min(from + most);
        let mut dropped = 0;
        for slot in from..end {
            let entry = &self.entries[slot];
            if !entry.is_gone() && !self.interest.contains(entry.key()) {
                self.take_out(slot);
                dropped += 1;
            }
        }
        ((end < self.entries.len()).then_some(end), dropped)
    }

    fn take_out(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        let known = u32::try_from(slot).expect("slots are counted in 32 bits");
        self.totals.remove(entry);
        if let Some(digesting) = self.digesting.get_mut() {
            digesting.leaves(known, entry);
        }
        self.table.remove(KeyTag::of(entry.key()), known);
        entry.leave();
        self.leavings.gone.push(known);
    }

    /// Forgets the deleted ranges that may go, of `most` after a key. Answers after which key to go on, None at the end,
    /// and what went.
    pub(in crate::tree) fn reap_ranges(
        &mut self,
        after: Option<&[u8]>,
        most: usize,
    ) -> (Option<Box<[u8]>>, Graves) {
        let (next, ranges) = self.ranges.forget(after, most, self.progress.reaped);
        (next, Graves { ranges: ranges as u64, ..Graves::default() })
    }

    /// Begins to give up the places of what was reaped in the order of keys, if it is worth while. Says whether it is.
    /// One sweep at a time; whoever began it ends it.
    pub(in crate::tree) fn begin_sweep(&mut self) -> bool {
        let worth = self.leavings.swept == 0
            && !self.leavings.gone.is_empty()
            && self.leavings.gone.len() * SWEPT_SHARE >= self.entries.len() - self.leavings.vacant.len();
        if worth {
            self.leavings.swept = self.leavings.gone.len();
            self.index.get_mut().begin_sweep(|slot| self.entries[slot as usize].is_gone());
        }
        worth
    }

    /// Goes on with it. Says whether there may be more to do.
    pub(in crate::tree) fn sweep_some(&self) -> bool {
        self.index.lock().sweep_some(|slot| self.entries[slot as usize].is_gone())
    }

    /// Ends a sweep, about `most` slots at a time: the slots of what was reaped are used again, and memory is given back.
    /// Says whether there is more to do.
    pub(in crate::tree) fn end_sweep(&mut self, most: usize) -> bool {
        let Self { entries, table, leavings, .. } = self;
        let Leavings { gone, vacant, swept, shrinking, .. } = leavings;
        if *swept > 0 {
            let from = swept.saturating_sub(most);
            for at in (from..*swept).rev() {
                // What is gone since the sweep began moves up, and is no more among those that it has passed.
                let slot = gone.swap_remove(at);
                entries[slot as usize].vacate();
                vacant.insert(slot);
            }
            *swept = from;
            return true;
        }
        for _ in 0..most {
            if !entries.last().is_some_and(Entry::is_vacant) {
                let more = table.shrink(*shrinking);
                *shrinking = if more { *shrinking + 1 } else { 0 };
                if !more && entries.len() < entries.capacity() / 4 {
                    entries.shrink_to(entries.len() * 2);
                    gone.shrink_to(gone.len() * 2);
                }
                return more;
            }
            entries.pop();
            vacant.pop_last();
        }
        true
    }

    /// How many slots there are, free ones included.
    #[cfg(test)]
    pub(in crate::tree) fn slots(&self) -> usize {
        self.entries.len()
    }

    /// The most keys that were put in order under one lock of the state.
    #[cfg(test)]
    pub(in crate::tree) fn most_sorted(&self) -> usize {
        self.index.lock().most_sorted
    }

    /// Puts an entry into a slot that is free. Answers which.
    pub(super) fn put_somewhere(&mut self, fresh: Entry) -> u32 {
        if let Some(slot) = self.leavings.vacant.pop_first() {
            self.entries[slot as usize] = fresh;
            return slot;
        }
        let slot = u32::try_from(self.entries.len()).expect("fewer than 2^32 keys fit the memory of a tree");
        self.entries.push(fresh);
        slot
    }
}
