//! [`Batch`]: what has passed the gate and is applied next, and the groups that it is made of. Pure.

use std::collections::BTreeMap;

use tidewire_core::causal::VersionVector;
use tidewire_core::id::{Dot, Hlc, OriginTag};
use tidewire_core::letters::Letter;
use tidewire_core::limits::MAX_GROUP_FRAMES;
use tidewire_core::record::Block;
use tidewire_core::tree::ReadyGroup;
use tokio::time::Instant;

use crate::budget::Permit;
use crate::faults;

/// A group on its way through the gate.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) group: ReadyGroup,
    /// What must be applied before it, besides its predecessors.
    pub(crate) deps: VersionVector,
    pub(crate) bytes: u64,
    pub(crate) since: Instant,
    /// It does not wait for what it depends on any more.
    pub(crate) given_up: bool,
    /// What of it is parked before it is applied.
    pub(crate) letters: Vec<Letter>,
    /// Gives the room back when the group is durable or dropped.
    _permit: Permit,
}

/// How many records of one origin are in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Those that are applied.
    pub(crate) records: u64,
    /// Those that the peer left out because their keys are not held here, and that are covered all the same.
    pub(crate) left_out: u64,
}

/// What can be applied now, in order; owned by whoever applies it until it is done or given back.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Frontiers to raise, before the groups.
    pub(crate) advances: Vec<(OriginTag, Hlc)>,
    pub(crate) groups: Vec<Held>,
    pub(crate) bytes: u64,
    pub(crate) blocks: usize,
}

impl Batch {
    /// The groups, for the tree.
    pub(crate) fn ready(&self) -> Vec<ReadyGroup> {
        self.groups.iter().map(|held| held.group.clone()).collect()
    }

    /// What is to be parked before the groups are applied.
    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.groups.iter().flat_map(|held| &held.letters).cloned().collect()
    }

    /// Has one record parked that the tree refused. Says whether it is in one of the groups.
    pub(crate) fn blame(&mut self, dot: Dot, reason: &str) -> bool {
        for held in &mut self.groups {
            let mut blocks = held.group.blocks.iter().filter(|_| held.group.incarnation == dot.incarnation);
            if let Some(letter) = blocks.find_map(|(block, _)| faults::of_dot(block, dot, reason)) {
                held.letters.push(letter);
                return true;
            }
        }
        false
    }

    /// How many records count, by origin.
    pub(crate) fn counts(&self) -> BTreeMap<OriginTag, Counts> {
        let mut counts: BTreeMap<OriginTag, Counts> = BTreeMap::new();
        for held in &self.groups {
            let of = counts.entry(held.group.origin).or_default();
            of.records += held.records();
            of.left_out += held.group.blocks.iter().map(|(block, _)| left_out_of(block)).sum::<u64>();
        }
        counts
    }

    /// When the first record of each group was written, by its origin.
    pub(crate) fn written(&self) -> impl Iterator<Item = (OriginTag, Hlc)> + '_ {
        let first =
            |held: &Held| held.group.blocks.first().map(|(block, _)| (held.group.origin, block.first_hlc()));
        self.groups.iter().filter_map(first)
    }

    /// Whether a group fits in. The first one always does, so that none is too large to ever go.
    pub(crate) fn fits(&self, held: &Held, limit: u64) -> bool {
        let bytes = self.bytes + held.bytes <= limit;
        let blocks = self.blocks + held.group.blocks.len() <= MAX_GROUP_FRAMES;
        self.groups.is_empty() || bytes && blocks
    }

    /// Whether something of an origin is in it.
    pub(crate) fn holds(&self, origin: OriginTag) -> bool {
        self.groups.iter().any(|held| held.group.origin == origin)
    }
}

impl Held {
    pub(crate) fn new(group: ReadyGroup, causal: bool, permit: Permit, since: Instant) -> Self {
        let mut deps = VersionVector::default();
        if causal {
            for (block, _) in &group.blocks {
                deps.join(&block.deps());
            }
            // Its own origin is complete before it by the order of the queue.
            deps = deps.iter().filter(|(origin, _)| *origin != group.origin).collect();
        }
        let bytes = group.blocks.iter().map(|(block, _)| block.bytes().len() as u64).sum();
        Self { group, deps, bytes, since, given_up: false, letters: Vec::new(), _permit: permit }
    }

    /// How many of its records count.
    pub(crate) fn records(&self) -> u64 {
        let counts = |(block, skip): &(Block, u16)| {
            // The mark of a cover stands for no record.
            let records = if block.is_cover() { 0 } else { block.count() };
            u64::from(records.saturating_sub(u32::from(*skip)))
        };
        self.group.blocks.iter().map(counts).sum()
    }
}

/// How many records a block covers and does not hold, because their keys are not held here.
fn left_out_of(block: &Block) -> u64 {
    if !block.is_filtered() {
        return 0;
    }
    let covered: u64 = block.runs().map(|run| run.end().since(run.first)).sum();
    covered - if block.is_cover() { 0 } else { u64::from(block.count()) }
}
