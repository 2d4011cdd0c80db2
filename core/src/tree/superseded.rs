//! [`Superseded`]: which records of this log lost when they arrived.
//!
//! A log order is not a version order: of two concurrent writes the later in the log may be the older. Whoever reads
//! the log for what was effective leaves out what this set holds. Losers are rare and come in log order, so a list of
//! ranges is small and grows at one end only.

use std::collections::VecDeque;
use std::ops::Range;

use crate::id::Lsn;

/// The positions of the retained log whose records lost on arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Superseded {
    /// Disjoint, in order, never touching.
    ranges: VecDeque<Range<Lsn>>,
    /// Below it the set is taken as it was stored: replaying a record there adds nothing.
    settled: Lsn,
}

impl Superseded {
    /// Notes that the record at a position lost. Positions come in rising order.
    pub(super) fn push(&mut self, lsn: Lsn) {
        if lsn < self.settled {
            return;
        }
        match self.ranges.back_mut() {
            Some(last) if lsn < last.end => {}
            Some(last) if last.end == lsn => last.end = lsn.next(),
            _ => self.ranges.push_back(lsn..lsn.next()),
        }
    }

    /// Whether the record at a position lost.
    pub(super) fn contains(&self, lsn: Lsn) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= lsn);
        self.ranges.get(at).is_some_and(|range| range.start <= lsn)
    }

    /// What of it lies between two positions.
    pub(super) fn within(&self, part: Range<Lsn>) -> Self {
        let from = self.ranges.partition_point(|range| range.end <= part.start);
        let inside = self.ranges.range(from..).take_while(|range| range.start < part.end);
        let cut = inside.map(|range| range.start.max(part.start)..range.end.min(part.end));
        Self { ranges: cut.collect(), settled: Lsn::ZERO }
    }

    /// Forgets what lies below a position: the log does not retain it.
    pub(super) fn forget(&mut self, below: Lsn) {
        while self.ranges.front().is_some_and(|first| first.end <= below) {
            self.ranges.pop_front();
        }
        if let Some(first) = self.ranges.front_mut() {
            first.start = first.start.max(below);
        }
    }

    /// Its ranges in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<Lsn>> {
        self.ranges.iter().cloned()
    }

    /// A set as it was stored: complete below `settled`.
    pub(super) fn stored(ranges: impl IntoIterator<Item = Range<Lsn>>, settled: Lsn) -> Self {
        Self { ranges: ranges.into_iter().collect(), settled }
    }

    /// Up to where it was taken as stored.
    pub(super) fn settled(&self) -> Lsn {
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_exactly_what_was_pushed_and_not_forgotten(
            lost in proptest::collection::btree_set(0_u64..200, 0..80), below in 0_u64..200, part in 0_u64..200, long in 0_u64..100,
        ) {
            let mut set = Superseded::default();
            lost.iter().for_each(|lsn| set.push(Lsn::new(*lsn)));
            let held = |set: &Superseded| (0..300).filter(|lsn| set.contains(Lsn::new(*lsn))).collect::<BTreeSet<u64>>();
            prop_assert_eq!(held(&set), lost.clone());
            let inside = set.within(Lsn::new(part)..Lsn::new(part + long));
            prop_assert_eq!(held(&inside), lost.range(part..part + long).copied().collect::<BTreeSet<_>>());
            set.forget(Lsn::new(below));
            prop_assert_eq!(held(&set), lost.range(below..).copied().collect::<BTreeSet<_>>());
            let ranges: Vec<_> = set.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "touching ranges are one");
        }
    }

    #[test]
    fn below_what_was_stored_a_replay_adds_nothing() {
        let mut set = Superseded::stored([Lsn::new(2)..Lsn::new(4)], Lsn::new(6));
        for lsn in 0..8 {
            set.push(Lsn::new(lsn));
        }
        let held: Vec<u64> = (0..8).filter(|lsn| set.contains(Lsn::new(*lsn))).collect();
        assert_eq!(held, [2, 3, 6, 7]);
    }
}
