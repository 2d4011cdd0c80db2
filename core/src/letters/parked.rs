//! [`Parked`]: what is left out when blocks are applied, and what may not be claimed meanwhile. Pure.
//!
//! A record that is parked is covered: the stream goes on behind it. It is not applied: no frontier that is told to
//! anybody reaches it, so nothing that others have yet to see is reaped or trimmed for its sake, no snapshot stands for
//! it, and a relay promises nothing beyond it.

use std::collections::BTreeMap;

use super::letter::{Fate, Letter, Stretch};
use crate::causal::{VersionVector, Watermarks};
use crate::id::{Hlc, Lsn, Offset, OriginTag, PartitionId};
use crate::record::{Block, RecordView};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    hlc: Hlc,
    lsn: Lsn,
    stretches: Vec<Stretch>,
}

/// What follows from the letters of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parked {
    left_out: BTreeMap<OriginTag, Vec<Stretch>>,
    held: BTreeMap<OriginTag, Vec<Held>>,
}

impl Parked {
    /// What follows from these letters.
    pub fn of<'a>(letters: impl Iterator<Item = &'a Letter>) -> Self {
        let mut parked = Self::default();
        for letter in letters {
            let Letter { origin, hlc, lsn, .. } = *letter;
            parked.left_out.entry(origin).or_default().extend(&letter.stretches);
            if letter.fate == Fate::Parked {
                let held = Held { hlc, lsn, stretches: letter.stretches.clone() };
                parked.held.entry(origin).or_default().push(held);
            }
        }
        parked
    }

    /// What to leave out of a block; None, as nearly always: nothing.
    pub fn left_out_of(&self, block: &Block) -> Option<LeftOut> {
        let of_origin = self.left_out.get(&block.origin())?;
        let touches = |stretch: &&Stretch| {
            let run = block.run(stretch.partition);
            run.is_some_and(|run| run.first < stretch.end() && stretch.first < run.end())
        };
        let stretches: Vec<Stretch> = of_origin.iter().filter(touches).copied().collect();
        let next = block.runs().map(|run| (run.partition, run.first)).collect();
        (!stretches.is_empty()).then_some(LeftOut { next, stretches })
    }

    /// What may be told of a frontier: for each origin it ends before the first record that is parked.
    pub fn claimed(&self, frontier: &VersionVector) -> VersionVector {
        let claim = |(origin, hlc): (OriginTag, Hlc)| {
            let lowest = self.held.get(&origin).and_then(|held| held.iter().map(|held| held.hlc).min());
            (origin, lowest.map_or(hlc, |lowest| hlc.min(Hlc::new(lowest.get().saturating_sub(1)))))
        };
        frontier.iter().map(claim).collect()
    }

    /// What a snapshot may say of coverage to others: in each partition it ends before the first record that is parked.
    pub fn covered(&self, watermarks: &Watermarks) -> Watermarks {
        let mut covered = watermarks.clone();
        for (origin, held) in &self.held {
            let stretches = held.iter().flat_map(|held| &held.stretches);
            let mut lowest: BTreeMap<PartitionId, Offset> = BTreeMap::new();
            for Stretch { partition, first, .. } in stretches {
                let low = lowest.entry(*partition).or_insert(*first);
                *low = (*low).min(*first);
            }
            covered.lower(*origin, &lowest);
        }
        covered
    }

    /// From here on the log is needed: to pass on what is parked here.
    pub fn lowest_lsn(&self) -> Option<Lsn> {
        self.held.values().flatten().map(|held| held.lsn).min()
    }

    /// No record that is parked is older than this.
    pub fn lowest_hlc(&self) -> Option<Hlc> {
        self.held.values().flatten().map(|held| held.hlc).min()
    }

    /// How many letters wait, by origin.
    pub fn counts(&self) -> impl Iterator<Item = (OriginTag, u64)> + '_ {
        self.held.iter().map(|(origin, held)| (*origin, held.len() as u64))
    }

    /// Whether any letter waits.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

/// What is left out of one block, while its records are walked through from the first.
#[derive(Clone, Debug)]
pub struct LeftOut {
    next: BTreeMap<PartitionId, Offset>,
    stretches: Vec<Stretch>,
}

impl LeftOut {
    /// Whether the next record is left out.
    pub fn passes(&mut self, record: &RecordView<'_>) -> bool {
        let partition = record.partition;
        let Some(next) = self.next.get_mut(&partition) else { return false };
        let offset = record.offset.unwrap_or(*next);
        *next = offset.next();
        self.stretches
            .iter()
            .any(|stretch| stretch.partition == partition && (stretch.first..stretch.end()).contains(&offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;
    use crate::letters::letter::sample;

    #[test]
    fn what_is_parked_is_not_claimed_until_its_fate_is_settled() {
        let (origin, other) = (OriginTag::new(7), OriginTag::new(8));
        let frontier: VersionVector = [(origin, Hlc::new(100)), (other, Hlc::new(100))].into_iter().collect();
        let mut marks = Watermarks::default();
        marks.origin_mut(origin, Incarnation::new(9), 4).advance(
            PartitionId::new(1),
            Offset::new(20),
            Hlc::new(99),
        );
        marks.origin_mut(origin, Incarnation::new(9), 4).advance(
            PartitionId::new(2),
            Offset::new(30),
            Hlc::new(98),
        );
        let mut letters = [sample(1, 12, 60), sample(1, 9, 50)];
        let parked = Parked::of(letters.iter());
        let claimed = parked.claimed(&frontier);
        assert_eq!((claimed.get(origin), claimed.get(other)), (Hlc::new(49), Hlc::new(100)));
        let covered = parked.covered(&marks);
        let covered = covered.origin(origin).unwrap();
        assert_eq!(covered.get(PartitionId::new(1)).next, Offset::new(9));
        assert_eq!(covered.get(PartitionId::new(1)).hlc, Hlc::ZERO, "which HLC stands there is not known");
        assert_eq!(covered.get(PartitionId::new(2)).next, Offset::new(30));
        assert_eq!((parked.lowest_lsn(), parked.lowest_hlc()), (Some(Lsn::new(9)), Some(Hlc::new(50))));
        letters[1].fate = Fate::Dropped(Lsn::new(40));
        assert_eq!(Parked::of(letters.iter()).claimed(&frontier).get(origin), Hlc::new(59));
        letters[0].fate = Fate::Replayed(Lsn::new(40));
        let settled = Parked::of(letters.iter());
        assert_eq!((settled.claimed(&frontier), settled.covered(&marks)), (frontier, marks));
        assert!(!settled.holds() && settled.lowest_lsn().is_none());
    }
}
