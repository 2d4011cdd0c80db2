//! [`RangeTombstones`]: deleted ranges, which also hold against older writes that arrive later.
//!
//! Kept as fragments that do not overlap, each with the greatest version that deleted it: an older delete of the same
//! keys removes nothing that the newer one leaves.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::id::{Hlc, Lsn, Version};

/// What deleted a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The version of the range delete: every lower one of its keys is dead.
    pub(super) version: Version,
    /// Where in this log it lies.
    pub(super) lsn: Lsn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragment {
    to: Box<[u8]>,
    cut: Cut,
}

/// The deleted ranges of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeTombstones {
    /// By their first key. The end is exclusive.
    fragments: BTreeMap<Box<[u8]>, Fragment>,
}

impl RangeTombstones {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// What deleted a key last, by version.
    pub(super) fn covering(&self, key: &[u8]) -> Option<Cut> {
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, fragment) = self.fragments.range::<[u8], _>(below).next_back()?;
        (key < &fragment.to[..]).then_some(fragment.cut)
    }

    /// Adds a deleted range. Says whether any part of it was not deleted by a greater version before.
    pub(super) fn insert(&mut self, from: &[u8], to: &[u8], cut: Cut) -> bool {
        if from >= to {
            return false;
        }
        let mut pieces = Pieces::default();
        let (mut at, mut changed) = (from, false);
        let overlapping = self.take_overlapping(from, to);
        for (start, fragment) in &overlapping {
            let (begin, end) = ((&start[..]).max(from), (&fragment.to[..]).min(to));
            pieces.push(start, begin, fragment.cut);
            pieces.push(at, begin, cut);
            let newer = cut.version > fragment.cut.version;
            pieces.push(begin, end, if newer { cut } else { fragment.cut });
            pieces.push(end, &fragment.to, fragment.cut);
            changed |= newer || at < begin;
            at = end;
        }
        changed |= at < to;
        pieces.push(at, to, cut);
        for (start, to, cut) in pieces.0 {
            self.fragments.insert(start.into(), Fragment { to: to.into(), cut });
        }
        changed
    }

    fn take_overlapping(&mut self, from: &[u8], to: &[u8]) -> Vec<(Box<[u8]>, Fragment)> {
        let below = (Bound::Unbounded, Bound::Included(from));
        let first = self.fragments.range::<[u8], _>(below).next_back();
        let first = first.filter(|(_, fragment)| &fragment.to[..] > from).map(|(start, _)| start.clone());
        let inside = self.fragments.range::<[u8], _>((Bound::Excluded(from), Bound::Excluded(to)));
        let starts: Vec<Box<[u8]>> =
            first.into_iter().chain(inside.map(|(start, _)| start.clone())).collect();
        starts.into_iter().filter_map(|start| self.fragments.remove_entry(&start)).collect()
    }

    /// Looks at no more than `most` fragments, those that begin after a key, and forgets the ones that were deleted at or
    /// below an HLC: nothing arrives any more that they would hold against. Says where to go on, and how many went.
    pub(super) fn forget(
        &mut self,
        after: Option<&[u8]>,
        most: usize,
        until: Hlc,
    ) -> (Option<Box<[u8]>>, usize) {
        let above = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let part = self.fragments.range::<[u8], _>(above).take(most);
        let looked: Vec<(Box<[u8]>, bool)> =
            part.map(|(start, fragment)| (start.clone(), fragment.cut.version.hlc <= until)).collect();
        let went = looked.iter().filter(|(start, goes)| *goes && self.fragments.remove(start).is_some());
        let went = went.count();
        let next = if looked.len() < most { None } else { looked.into_iter().next_back() };
        (next.map(|(start, _)| start), went)
    }

    /// How many fragments there are.
    pub(super) fn len(&self) -> usize {
        self.fragments.len()
    }

    /// Its fragments in key order: first key, end, what deleted it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Cut)> {
        self.fragments.iter().map(|(start, fragment)| (&start[..], &fragment.to[..], fragment.cut))
    }
}

/// Fragments in the making, in key order; neighbours of one delete are one.
#[derive(Default)]
struct Pieces<'a>(Vec<(&'a [u8], &'a [u8], Cut)>);

impl<'a> Pieces<'a> {
    fn push(&mut self, from: &'a [u8], to: &'a [u8], cut: Cut) {
        if from >= to {
            return;
        }
        match self.0.last_mut() {
            Some((_, end, last)) if *end == from && *last == cut => *end = to,
            _ => self.0.push((from, to, cut)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::OriginTag;

    fn cut(hlc: u64) -> Cut {
        Cut { version: Version { hlc: Hlc::new(hlc), origin: OriginTag::new(1) }, lsn: Lsn::new(hlc) }
    }

    proptest! {
        #[test]
        fn a_key_is_covered_by_the_greatest_version_of_all_ranges_that_hold_it(
            cuts in proptest::collection::vec((0_u8..20, 0_u8..20), 1..24),
            order in any::<u64>(),
        ) {
            let mut numbered: Vec<(u64, u8, u8)> = (1..).zip(&cuts).map(|(n, (from, to))| (n, *from, *to)).collect();
            let random = crate::random::Random::from_seed(order);
            for at in (1..numbered.len()).rev() {
                numbered.swap(at, usize::try_from(random.below(at as u64 + 1)).expect("small"));
            }
            let mut ranges = RangeTombstones::default();
            let mut model = [0_u64; 20];
            for (number, from, to) in numbered {
                let inside = usize::from(from)..usize::from(to).max(usize::from(from));
                let wins = model[inside.clone()].iter().any(|known| *known < number);
                prop_assert_eq!(ranges.insert(&[from], &[to], cut(number)), wins);
                model[inside].iter_mut().for_each(|known| *known = (*known).max(number));
                for (key, known) in (0_u8..).zip(model) {
                    prop_assert_eq!(ranges.covering(&[key]), (known > 0).then(|| cut(known)));
                }
                let parts: Vec<_> = ranges.iter().collect();
                for pair in parts.windows(2) {
                    prop_assert!(pair[0].1 <= pair[1].0, "fragments overlap");
                    prop_assert!(pair[0].1 < pair[1].0 || pair[0].2 != pair[1].2, "neighbours are one");
                }
            }
        }
    }
}
