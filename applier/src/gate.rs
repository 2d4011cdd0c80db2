//! [`Gate`]: decides which groups are new, in which order they go on, and what they still wait for. Pure.
//!
//! It keeps, per origin, what is *admitted*: covered by pages that were taken, whether applied yet or not. Coverage is
//! judged by that, acknowledgements by what is applied; so a duplicate of something still on its way is dropped without
//! being acknowledged. The groups of an origin leave in the order in which they came, whole, and where the tree is
//! causal only when the frontier covers what they depend on.
//!
//! Several links may bring an origin at once: its own, and those of relays. A session may end at any time; what it brought
//! stays admitted. That is sound because every session sends a run of the origin's history from at or below what was
//! applied when it began, unbroken but for what was applied meanwhile: whatever is taken of such runs, in whatever
//! interleaving, is together a prefix of the history. A session of which something was refused brings nothing any more,
//! so its run is never broken.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidewire_core::causal::{OriginMarks, VersionVector};
use tidewire_core::id::{Dot, Hlc, Incarnation, Offset, OriginTag, PartitionId};
use tidewire_core::letters::Letter;
use tidewire_core::record::Block;
use tidewire_core::transport::pages::{Page, PageGroup};
use tidewire_core::tree::{Consistency, Progress, ReadyGroup};
use tokio::time::Instant;

use crate::batch::{Batch, Held};
use crate::budget::Permit;
use crate::faults;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::Heartbeat;
use crate::settings::BLOCK_OVERHEAD;
use crate::sifting::sift;

/// What a page costs in memory, for its permit.
pub(crate) fn page_cost(page: &Page) -> u64 {
    page.groups.iter().map(|group| cost(group.blocks.iter())).sum()
}

fn cost<'a>(blocks: impl Iterator<Item = &'a Block>) -> u64 {
    blocks.map(|block| block.bytes().len() as u64 + BLOCK_OVERHEAD).sum()
}

#[derive(Debug)]
enum Item {
    Group(Box<Held>),
    /// Once everything before this is applied, the origin is complete up to here.
    Closed(Hlc),
}

#[derive(Debug)]
struct Queue {
    admitted: OriginMarks,
    closed: Hlc,
    items: VecDeque<Item>,
    bytes: u64,
    /// Since when its groups have waited for what they depend on, but for those that were let go without.
    stalled: Option<Instant>,
}

/// What the first group of an origin waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Whose groups wait.
    pub(crate) origin: OriginTag,
    /// For whose writes.
    pub(crate) on: OriginTag,
    /// Up to which HLC.
    pub(crate) until: Hlc,
    /// Since when.
    pub(crate) since: Instant,
    /// Bytes of the groups that wait.
    pub(crate) bytes: u64,
}

/// What was let go of an origin without all that it depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp {
    /// Whose records.
    pub(crate) origin: OriginTag,
    /// For whose writes the first of them waited.
    pub(crate) on: OriginTag,
    /// Up to which HLC.
    pub(crate) until: Hlc,
    /// How many.
    pub(crate) records: u64,
}

/// The order in which groups of all origins go into a tree.
#[derive(Debug)]
pub(crate) struct Gate {
    partitions: u16,
    consistency: Consistency,
    queues: BTreeMap<OriginTag, Queue>,
    /// The origin whose turn it is first: the one that found no room in the last batch.
    turn: OriginTag,
}

impl Gate {
    pub(crate) fn new(partitions: u16, consistency: Consistency) -> Self {
        Self { partitions, consistency, queues: BTreeMap::new(), turn: OriginTag::ZERO }
    }

    /// Takes the groups of a checked page that are not admitted yet. Says how many records were. All or nothing.
    ///
    /// # Errors
    /// When the page begins above what is admitted, or breaks a promise of its origin.
    pub(crate) fn admit(
        &mut self,
        page: Page,
        mut permit: Permit,
        applied: &Progress,
        now: Instant,
    ) -> Result<u64, Refusal> {
        let causal = self.consistency == Consistency::Causal;
        let queue = self.queue(page.origin, page.incarnation, applied)?;
        check_gap(&page.after, &queue.admitted)?;
        let mut items = Vec::with_capacity(page.groups.len());
        let (mut closed, mut duplicates) = (queue.closed, 0);
        for PageGroup { closed: promised, blocks } in page.groups {
            let fresh = sift(blocks, &queue.admitted, closed, applied.reaped, &mut duplicates)?;
            if fresh.is_empty() {
                items.extend((promised > closed).then_some(Item::Closed(promised)));
            } else {
                let (origin, incarnation) = (page.origin, page.incarnation);
                let permit = permit.split(cost(fresh.iter().map(|(block, _)| block)));
                let group = ReadyGroup { origin, incarnation, closed: promised, blocks: fresh };
                items.push(Item::Group(Box::new(Held::new(group, causal, permit, now))));
            }
            closed = closed.max(promised);
        }
        for item in items {
            queue.push(item);
        }
        for (partition, through) in page.through {
            queue.admitted.advance(partition, through, Hlc::ZERO);
        }
        queue.closed = closed;
        Ok(duplicates)
    }

    /// A letter for each record of a page that is not covered, and as old as what is reaped.
    pub(crate) fn late(&self, page: &Page, applied: &Progress) -> Vec<Letter> {
        let marks = self.queues.get(&page.origin).map(|queue| &queue.admitted);
        let marks = marks.or_else(|| applied.watermarks.origin(page.origin));
        let covered = |partition| marks.map_or(Offset::ZERO, |marks| marks.get(partition).next);
        let old = page.blocks().filter(|block| block.first_hlc() <= applied.reaped);
        old.flat_map(|block| faults::late(block, page.incarnation, applied.reaped, covered)).collect()
    }

    /// Notes what of the groups that wait can never be applied.
    pub(crate) fn blame(&mut self, letters: Vec<Letter>) {
        for letter in letters {
            let Some(queue) = self.queues.get_mut(&letter.origin) else { continue };
            let Dot { partition, offset, .. } = letter.dot();
            let holds = |block: &Block| {
                block.run(partition).is_some_and(|run| (run.first..run.end()).contains(&offset))
            };
            let held = queue.items.iter_mut().rev().find_map(|item| match item {
                Item::Group(held) if held.group.blocks.iter().any(|(block, _)| holds(block)) => Some(held),
                _ => None,
            });
            // What is covered already needs nothing.
            if let Some(held) = held {
                held.letters.push(letter);
            }
        }
    }

    /// Takes a promise without records, to be kept once everything before it is applied.
    ///
    /// # Errors
    /// When something before it is missing.
    pub(crate) fn heartbeat(&mut self, heartbeat: &Heartbeat, applied: &Progress) -> Result<(), Refusal> {
        let Heartbeat { origin, incarnation, closed, ref tails, .. } = *heartbeat;
        let queue = self.queue(origin, incarnation, applied)?;
        check_gap(tails, &queue.admitted)?;
        if closed > queue.closed {
            queue.closed = closed;
            queue.push(Item::Closed(closed));
        }
        Ok(())
    }

    /// What can be applied now, up to about `limit` bytes and at least one group: in turn one group of each origin, as
    /// long as one is ready. The caller applies it and then drops it, or gives it back.
    pub(crate) fn take(&mut self, frontier: &VersionVector, limit: u64) -> Batch {
        let mut reached = frontier.clone();
        let mut batch = Batch::default();
        let mut full = None;
        let mut origins: Vec<OriginTag> = self.queues.keys().copied().collect();
        let first = origins.partition_point(|origin| *origin < self.turn);
        origins.rotate_left(first);
        loop {
            let mut moved = false;
            for origin in &origins {
                let queue = self.queues.get_mut(origin).expect("the keys were just read");
                match queue.items.front() {
                    // A promise behind groups of this batch waits until they are applied.
                    Some(Item::Closed(closed)) if !batch.holds(*origin) => {
                        batch.advances.push((*origin, *closed));
                        reached.raise(*origin, *closed);
                    }
                    Some(Item::Group(held)) if reached.covers(&held.deps) => {
                        if !batch.fits(held, limit) {
                            full = full.or(Some(*origin));
                            continue;
                        }
                        batch.bytes += held.bytes;
                        batch.blocks += held.group.blocks.len();
                        reached.raise(*origin, held.group.closed);
                        queue.stalled = queue.stalled.filter(|_| held.given_up);
                    }
                    _ => continue,
                }
                if let Some(Item::Group(held)) = queue.pop() {
                    batch.groups.push(*held);
                }
                moved = true;
            }
            if !moved {
                self.turn = full.unwrap_or_default();
                return batch;
            }
        }
    }

    /// Lets go what waits of an origin of which something has waited for `patience`, though not all that it depends on is
    /// applied: its order within its origin stays, causality is given up for it. What comes behind it and waits for the
    /// same does not wait as long again. Says for each origin how many records, and for what the first of them waited.
    pub(crate) fn give_up(
        &mut self,
        frontier: &VersionVector,
        patience: Duration,
        now: Instant,
    ) -> Vec<GaveUp> {
        let mut given_up = Vec::new();
        for (origin, queue) in &mut self.queues {
            let mut all: Option<GaveUp> = None;
            for item in &mut queue.items {
                let Item::Group(held) = item else { continue };
                let Some((on, until)) = frontier.first_missing(&held.deps) else { continue };
                if *queue.stalled.get_or_insert(held.since) + patience > now {
                    break;
                }
                (held.deps, held.given_up) = (VersionVector::default(), true);
                let first = GaveUp { origin: *origin, on, until, records: 0 };
                all.get_or_insert(first).records += held.records();
            }
            given_up.extend(all);
        }
        given_up
    }

    /// Puts the groups of a batch that was not applied back to where they were.
    pub(crate) fn give_back(&mut self, batch: Batch) {
        for held in batch.groups.into_iter().rev() {
            let queue =
                self.queues.get_mut(&held.group.origin).expect("no origin is forgotten while it is applied");
            queue.bytes += held.bytes;
            queue.items.push_front(Item::Group(Box::new(held)));
        }
    }

    /// Drops what waits of an origin: nobody brings it any more. What comes of it later counts from what is applied.
    pub(crate) fn forget(&mut self, origin: OriginTag) {
        self.queues.remove(&origin);
    }

    /// Whether anything waits.
    pub(crate) fn is_holding(&self) -> bool {
        self.queues.values().any(|queue| !queue.items.is_empty())
    }

    /// What each origin's groups wait for, given what is applied.
    pub(crate) fn waiting(&self, frontier: &VersionVector) -> Vec<Waiting> {
        let waiting = |(origin, queue): (&OriginTag, &Queue)| match queue.items.front() {
            Some(Item::Group(held)) => {
                let (on, until) = frontier.first_missing(&held.deps)?;
                Some(Waiting { origin: *origin, on, until, since: held.since, bytes: queue.bytes })
            }
            _ => None,
        };
        self.queues.iter().filter_map(waiting).collect()
    }

    fn queue(
        &mut self,
        origin: OriginTag,
        incarnation: Incarnation,
        applied: &Progress,
    ) -> Result<&mut Queue, Refusal> {
        let partitions = self.partitions;
        let queue = self.queues.entry(origin).or_insert_with(|| Queue {
            admitted: applied
                .watermarks
                .origin(origin)
                .cloned()
                .unwrap_or_else(|| OriginMarks::new(incarnation, partitions)),
            closed: applied.frontier.get(origin),
            items: VecDeque::new(),
            bytes: 0,
            stalled: None,
        });
        if queue.admitted.incarnation() == incarnation {
            return Ok(queue);
        }
        let known = queue.admitted.incarnation();
        Err(Refusal::new(
            RefusalKind::Incarnation,
            format!("positions of incarnation {incarnation} of a log that is known here as {known}"),
        ))
    }
}

impl Queue {
    fn push(&mut self, item: Item) {
        match (self.items.back_mut(), item) {
            (Some(Item::Closed(last)), Item::Closed(closed)) => *last = closed,
            (_, item) => {
                self.bytes += item.bytes();
                self.items.push_back(item);
            }
        }
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes();
        Some(item)
    }
}

impl Item {
    fn bytes(&self) -> u64 {
        match self {
            Self::Group(held) => held.bytes,
            Self::Closed(_) => 0,
        }
    }
}

fn check_gap(starts: &[(PartitionId, Offset)], admitted: &OriginMarks) -> Result<(), Refusal> {
    let gap = starts.iter().find(|(partition, start)| *start > admitted.get(*partition).next);
    let Some((partition, start)) = gap else { return Ok(()) };
    let covered = admitted.get(*partition).next;
    Err(Refusal::new(
        RefusalKind::Gap,
        format!(
            "begins at offset {start} of partition {partition}, {covered} is covered: send from the watermarks"
        ),
    ))
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
