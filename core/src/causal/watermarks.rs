//! [`Watermarks`]: per origin, incarnation and partition, how many offsets are covered without a gap.

use std::collections::BTreeMap;

use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};

/// Coverage of one partition of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Every offset below this one is covered here.
    pub next: Offset,
    /// The HLC of the last record below `next`; zero if there was none.
    pub hlc: Hlc,
}

/// Coverage of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginMarks {
    incarnation: Incarnation,
    partitions: Vec<Watermark>,
}

impl OriginMarks {
    /// Nothing covered yet of an incarnation.
    pub fn new(incarnation: Incarnation, partitions: u16) -> Self {
        Self { incarnation, partitions: vec![Watermark::default(); usize::from(partitions)] }
    }

    /// The incarnation of the origin's log that the offsets belong to.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The mark of a partition; nothing covered if the partition does not exist.
    pub fn get(&self, partition: PartitionId) -> Watermark {
        self.partitions.get(partition.index()).copied().unwrap_or_default()
    }

    /// The marks in order of partition.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (PartitionId, Watermark)> + '_ {
        self.partitions.iter().enumerate().map(|(index, mark)| {
            (PartitionId::new(u16::try_from(index).expect("partitions are counted in 16 bits")), *mark)
        })
    }

    /// Moves a partition's mark forward; says whether that changed anything. Never moves back, and a partition that
    /// does not exist is not made. An `hlc` of zero leaves the HLC of the last record as it is.
    pub fn advance(&mut self, partition: PartitionId, next: Offset, hlc: Hlc) -> bool {
        let Some(mark) = self.partitions.get_mut(partition.index()) else { return false };
        let moved = next > mark.next;
        mark.next = mark.next.max(next);
        mark.hlc = mark.hlc.max(hlc);
        moved
    }

    /// Says that it is not known which HLC stands below a partition's mark: nothing is compared with it then.
    pub fn forget_hlc(&mut self, partition: PartitionId) {
        if let Some(mark) = self.partitions.get_mut(partition.index()) {
            mark.hlc = Hlc::ZERO;
        }
    }

    /// How many offsets are covered, over all partitions.
    pub fn covered(&self) -> u64 {
        self.partitions.iter().map(|mark| mark.next.get()).sum()
    }
}

/// Coverage of every origin that is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks(BTreeMap<OriginTag, OriginMarks>);

impl Watermarks {
    /// The marks of an origin.
    pub fn origin(&self, origin: OriginTag) -> Option<&OriginMarks> {
        self.0.get(&origin)
    }

    /// The marks of an origin, made empty if it was not known. An origin that is known keeps its incarnation:
    /// check that first.
    pub fn origin_mut(
        &mut self,
        origin: OriginTag,
        incarnation: Incarnation,
        partitions: u16,
    ) -> &mut OriginMarks {
        self.0.entry(origin).or_insert_with(|| OriginMarks::new(incarnation, partitions))
    }

    /// Sets the marks of an origin, whatever they were: for decoding.
    pub fn insert(&mut self, origin: OriginTag, marks: OriginMarks) {
        self.0.insert(origin, marks);
    }

    /// Moves marks of an origin back to where coverage is to end for others; the HLC below such a mark is not known.
    pub fn lower(&mut self, origin: OriginTag, to: &BTreeMap<PartitionId, Offset>) {
        let Some(marks) = self.0.get_mut(&origin) else { return };
        for (partition, next) in to {
            match marks.partitions.get_mut(partition.index()) {
                Some(mark) if mark.next > *next => *mark = Watermark { next: *next, hlc: Hlc::ZERO },
                _ => {}
            }
        }
    }

    /// The origins with their marks, by tag.
    pub fn iter(&self) -> impl Iterator<Item = (OriginTag, &OriginMarks)> + '_ {
        self.0.iter().map(|(origin, marks)| (*origin, marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_never_move_back() {
        let mut marks = OriginMarks::new(Incarnation::new(1), 2);
        let p = PartitionId::new(1);
        assert!(marks.advance(p, Offset::new(5), Hlc::new(50)));
        assert!(!marks.advance(p, Offset::new(3), Hlc::new(30)));
        assert_eq!(marks.get(p), Watermark { next: Offset::new(5), hlc: Hlc::new(50) });
        assert!(marks.advance(p, Offset::new(7), Hlc::ZERO), "coverage without records keeps the HLC");
        assert_eq!(marks.get(p).hlc, Hlc::new(50));
        assert_eq!(marks.covered(), 7);
    }

    #[test]
    fn a_partition_that_does_not_exist_is_not_made() {
        let mut marks = OriginMarks::new(Incarnation::new(1), 2);
        assert!(!marks.advance(PartitionId::new(9), Offset::new(5), Hlc::new(50)));
        assert_eq!(marks.covered(), 0);
    }
}
