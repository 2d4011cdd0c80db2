//! [`Line`]: where a session stands with one origin. Pure.

use std::collections::BTreeMap;

use tidewire_core::causal::OriginMarks;
use tidewire_core::id::{Incarnation, Offset, PartitionId};

/// Where a session stands with one origin.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) incarnation: Incarnation,
    /// Where coverage by the pages so far ends, sent or open.
    pub(crate) stands: BTreeMap<PartitionId, Offset>,
    /// Where coverage by the pages ends that have left.
    left: BTreeMap<PartitionId, Offset>,
}

impl Line {
    /// Nothing is sent yet to a peer that covers `held`.
    pub(crate) fn new(held: &OriginMarks) -> Self {
        let stands: BTreeMap<_, _> = held.iter().map(|(partition, mark)| (partition, mark.next)).collect();
        Self { incarnation: held.incarnation(), left: stands.clone(), stands }
    }

    /// A page has left that covers up to `through`.
    pub(crate) fn leaves(&mut self, through: &[(PartitionId, Offset)]) {
        for (partition, end) in through {
            let left = self.left.entry(*partition).or_insert(Offset::ZERO);
            *left = (*left).max(*end);
        }
    }

    /// Whether everything before some tails has left, or is covered by the peer, which covers `held` by now.
    pub(crate) fn is_behind(&self, tails: &OriginMarks, held: Option<&OriginMarks>) -> bool {
        tails.iter().all(|(partition, tail)| {
            let left = self.left.get(&partition).copied().unwrap_or_default();
            let held = held.map_or(Offset::ZERO, |held| held.get(partition).next);
            tail.next <= left.max(held)
        })
    }
}
