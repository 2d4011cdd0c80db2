//! [`Floors`]: up to where a log does not hold an origin's records though they are covered: they came by a seed.

use std::collections::BTreeMap;

use crate::causal::{OriginMarks, Watermark, Watermarks};
use crate::id::{Offset, OriginTag, PartitionId};

/// For each origin and partition, the mark below which records may be missing in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tree) struct Floors(BTreeMap<(OriginTag, PartitionId), Watermark>);

impl Floors {
    /// What the log lacks of a cluster that covers `mine` and takes over `theirs`.
    pub(in crate::tree) fn between(mine: &Watermarks, theirs: &Watermarks) -> Self {
        let mut floors = Self::default();
        for (origin, marks) in theirs.iter() {
            let here = mine.origin(origin);
            for (partition, mark) in marks.iter() {
                if mark.next > here.map_or(Offset::ZERO, |here| here.get(partition).next) {
                    floors.raise(origin, partition, mark);
                }
            }
        }
        floors
    }

    /// The mark of a partition of an origin; at zero if the log lacks nothing of it.
    pub(in crate::tree) fn get(&self, origin: OriginTag, partition: PartitionId) -> Watermark {
        self.0.get(&(origin, partition)).copied().unwrap_or_default()
    }

    /// Raises a mark; the higher one counts.
    pub(in crate::tree) fn raise(&mut self, origin: OriginTag, partition: PartitionId, mark: Watermark) {
        let known = self.0.entry((origin, partition)).or_default();
        if mark.next >= known.next {
            *known = mark;
        }
    }

    /// Raises the marks of an origin to where it is covered.
    pub(in crate::tree) fn raise_to(&mut self, origin: OriginTag, marks: &OriginMarks) {
        for (partition, mark) in marks.iter().filter(|(_, mark)| mark.next > Offset::ZERO) {
            self.raise(origin, partition, mark);
        }
    }

    /// Raises every mark to where `other` has it.
    pub(in crate::tree) fn join(&mut self, other: &Self) {
        for ((origin, partition), mark) in other.iter() {
            self.raise(origin, partition, mark);
        }
    }

    /// All marks, by origin and partition.
    pub(in crate::tree) fn iter(&self) -> impl Iterator<Item = ((OriginTag, PartitionId), Watermark)> + '_ {
        self.0.iter().map(|(place, mark)| (*place, *mark))
    }

    /// Whether the log lacks nothing that is covered.
    pub(in crate::tree) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
