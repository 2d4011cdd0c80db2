//! [`Batch`]: what a consumer takes over at once.

use std::sync::Arc;

use super::cursor::Cursor;
use super::rows::StateRow;
use crate::causal::OriginMarks;
use crate::id::{Hlc, Lsn};
use crate::record::Group;

/// A promise about the local origin at the end of the log, taken while nothing was on its way into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Nothing of the local origin at or below this HLC is still to come. Taken before `tails`.
    pub closed: Hlc,
    /// Where the local origin's applied records end, by partition.
    pub tails: OriginMarks,
}

/// Groups in log order, and the stretch of the log that is meant: from `start` to `end`. Owned, cheap to clone; blocks
/// stay encoded until somebody reads them.
///
/// The stretch begins and ends with whole groups, but for two cases: a reading that goes on in the middle of a group, and
/// a [`slice`](Self::slice), which a pump makes to find the record that a destination does not take. What lies outside of
/// the stretch was handed over before, or will be, or is left out; decoding leaves it out.
///
/// Or rows of the state, at one place between two records: changes that are not in the log. Such a batch does not move the
/// cursor.
#[derive(Clone, Debug)]
pub struct Batch {
    groups: Arc<[Arc<Group>]>,
    rows: Arc<[StateRow]>,
    start: Cursor,
    end: Cursor,
    resolved: Option<Resolved>,
}

impl Batch {
    /// Groups from `start`; reading goes on at `end`.
    pub fn new(groups: Vec<Arc<Group>>, start: Cursor, end: Cursor) -> Self {
        Self { groups: groups.into(), rows: Arc::new([]), start, end, resolved: None }
    }

    /// Progress without records: the log ends at `end`, and this is what holds there.
    pub fn idle(end: Cursor, resolved: Resolved) -> Self {
        Self { resolved: Some(resolved), ..Self::progress(end, end) }
    }

    /// Progress without records: everything from `start` to `end` was left out by a filter.
    pub fn progress(start: Cursor, end: Cursor) -> Self {
        Self { groups: Arc::new([]), rows: Arc::new([]), start, end, resolved: None }
    }

    /// Rows of the state, which belong between what lies below `at` and what lies above.
    pub fn of_rows(rows: Vec<StateRow>, at: Cursor) -> Self {
        Self { rows: rows.into(), ..Self::progress(at, at) }
    }

    /// The part from `from` up to `to`, as far as it lies in this batch.
    #[must_use]
    pub fn slice(&self, from: Lsn, to: Lsn) -> Self {
        let from = from.clamp(self.start.lsn, self.end.lsn);
        let to = to.clamp(from, self.end.lsn);
        let touched = self.groups.iter().filter(|group| group.next_lsn() > from && group.first_lsn() < to);
        Self {
            groups: touched.cloned().collect(),
            rows: self.rows.clone(),
            start: Cursor { lsn: from, ..self.start },
            end: Cursor { lsn: to, ..self.end },
            resolved: self.resolved.clone().filter(|_| to == self.end.lsn),
        }
    }

    /// The groups that the batch touches, in log order.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Rows of the state, if it is made of such.
    pub fn rows(&self) -> &[StateRow] {
        &self.rows
    }

    /// Where it starts.
    pub fn start(&self) -> Cursor {
        self.start
    }

    /// Where reading goes on after it.
    pub fn end(&self) -> Cursor {
        self.end
    }

    /// Where reading goes on after its first `count` groups.
    pub fn cursor_after(&self, count: usize) -> Cursor {
        let lsn = match count.checked_sub(1).map(|last| self.groups.get(last)) {
            None => self.start.lsn,
            Some(None) => self.end.lsn,
            Some(Some(group)) => group.next_lsn(),
        };
        Cursor { incarnation: self.start.incarnation, lsn: lsn.min(self.end.lsn) }
    }

    /// What is promised at its end, if it ends where the log ended.
    pub fn resolved(&self) -> Option<&Resolved> {
        self.resolved.as_ref()
    }

    /// Bytes of its groups in the log, or of its rows.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.stored_bytes()).sum::<u64>()
            + self.rows.iter().map(StateRow::bytes).sum::<u64>()
    }

    /// How many records of the log it holds.
    pub fn records(&self) -> u64 {
        let blocks = self.groups.iter().flat_map(|group| group.blocks());
        blocks
            .map(|framed| {
                let first = framed.frame.first_lsn.max(self.start.lsn);
                framed.next_lsn().min(self.end.lsn).since(first)
            })
            .sum()
    }

    /// The place of its record number `count`, counted from 0, or its end.
    pub fn lsn_of(&self, count: u64) -> Lsn {
        let mut left = count;
        for framed in self.groups.iter().flat_map(|group| group.blocks()) {
            let first = framed.frame.first_lsn.max(self.start.lsn);
            let records = framed.next_lsn().min(self.end.lsn).since(first);
            if left < records {
                return first.advanced(left);
            }
            left -= records;
        }
        self.end.lsn
    }

    /// The milliseconds of its first record's clock reading; none without records.
    pub fn first_millis(&self) -> Option<u64> {
        let block = self.groups.first()?.blocks().first()?;
        Some(block.block.first_hlc().millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Mutation;
    use crate::sink::MemFeed;
    use crate::tree::ChangeView;

    #[test]
    fn a_slice_shows_its_own_records_and_no_others_down_to_one() {
        let log = MemFeed::sample();
        for group in 0..4 {
            let write = |n: u32| Mutation::set(format!("k{}", group * 3 + n), "v");
            log.push(&(0..3).map(write).collect::<Vec<_>>());
        }
        let batch = log.whole();
        assert_eq!(batch.records(), 12);
        for from in 0..12_u64 {
            for to in from..=12 {
                let part = batch.slice(Lsn::new(from), Lsn::new(to));
                let keys: Vec<u64> =
                    log.decode(&part, Lsn::ZERO).iter().map(|change| change.lsn.get()).collect();
                assert_eq!(keys, (from..to).collect::<Vec<_>>());
                assert_eq!(
                    (part.records(), part.start().lsn.get(), part.end().lsn.get()),
                    (to - from, from, to)
                );
                assert_eq!(part.lsn_of(1), Lsn::new((from + 1).min(to)));
                assert!(part.cursor_after(99).lsn <= part.end().lsn);
            }
        }
    }
}
