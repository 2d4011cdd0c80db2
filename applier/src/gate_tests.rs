//! The gate against a tiny model: three origins that see each other, arrivals in any interleaving, repeats, cuts and
//! failures.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use proptest::prelude::*;
use tidewire_core::id::{ClusterId, Dot, PageId, TreeName};
use tidewire_core::limits::MAX_GROUP_FRAMES;
use tidewire_core::tree::{ApplyTarget, MemTarget, MergeMode, TreeIdentity};

use super::*;
use crate::budget::Budget;
use crate::origin::MemOrigin;

const PARTITIONS: u16 = 4;
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn name(text: &str) -> ClusterId {
    ClusterId::new(text).unwrap()
}

fn tree(consistency: Consistency) -> TreeIdentity {
    TreeIdentity {
        cluster: name("here"),
        tree: TreeName::new("orders").unwrap(),
        incarnation: Incarnation::new(1),
        partitions: PARTITIONS,
        merge: MergeMode::LastWriterWins,
        consistency,
    }
}

/// A gate, the tree behind it, and the origins in front.
struct World {
    gate: Gate,
    target: MemTarget,
    origins: Vec<MemOrigin>,
    /// How many groups of each origin its session has sent.
    sent: Vec<usize>,
    budget: Budget,
}

impl World {
    fn new(consistency: Consistency) -> Self {
        let origins: Vec<_> = ["x", "y", "z"].map(|text| MemOrigin::new(&name(text), PARTITIONS)).into();
        let target = MemTarget::new(tree(consistency));
        for origin in &origins {
            target.enroll(&origin.cluster, origin.incarnation).now_or_never().unwrap().unwrap();
        }
        let gate = Gate::new(PARTITIONS, consistency);
        Self { gate, target, sent: vec![0; origins.len()], origins, budget: Budget::new(1 << 30) }
    }

    fn send(&mut self, who: usize, from: usize, to: usize) -> Result<u64, Refusal> {
        let page = self.origins[who].page(PageId::new(1), from, to);
        let permit = self.budget.try_take(page.origin, page_cost(&page)).unwrap();
        self.gate.admit(page, permit, &self.target.progress(), Instant::now())
    }

    /// A new session: it begins at what is applied.
    fn reconnect(&mut self, who: usize) {
        let marks = self.target.progress().watermarks;
        let origin = &self.origins[who];
        let covered = |partition, end| {
            marks.origin(origin.origin()).is_some_and(|marks| marks.get(partition).next >= end)
        };
        self.sent[who] = origin.groups_below(covered);
    }

    fn send_next(&mut self, who: usize, count: usize) {
        let (from, to) = (self.sent[who], self.origins[who].len().min(self.sent[who] + count));
        if from < to {
            self.send(who, from, to).unwrap();
            self.sent[who] = to;
        }
    }

    fn heartbeat(&mut self, who: usize) -> Result<(), Refusal> {
        let sent = self.origins[who].heartbeat();
        let tails = sent
            .tails
            .iter()
            .map(|mark| (PartitionId::new(u16::try_from(mark.partition).unwrap()), Offset::new(mark.offset)));
        let heartbeat = Heartbeat {
            origin: OriginTag::new(sent.origin),
            incarnation: Incarnation::new(sent.incarnation),
            closed: Hlc::new(sent.closed),
            tails: tails.collect(),
            canary: false,
        };
        self.gate.heartbeat(&heartbeat, &self.target.progress())
    }

    /// One call of the tree; says whether anything moved.
    fn apply(&mut self, limit: u64, fails: bool) -> bool {
        let batch = self.gate.take(&self.target.progress().frontier, limit);
        for (origin, closed) in &batch.advances {
            self.target.advance(*origin, *closed);
        }
        let groups = batch.ready();
        let moved = !groups.is_empty() || !batch.advances.is_empty();
        if fails {
            self.target.fail_next(1);
        }
        if groups.is_empty() {
            return moved;
        }
        let records: u64 = batch.counts().values().map(|counts| counts.records).sum();
        match self.target.apply(groups).now_or_never().unwrap() {
            Ok(applied) => assert_eq!(applied.records, records),
            Err(_) => self.gate.give_back(batch),
        }
        self.target.fail_next(0);
        moved
    }

    fn apply_all(&mut self) {
        while self.apply(1 << 20, false) {}
    }

    fn all_dots(&self) -> Vec<Dot> {
        let mut dots = Vec::new();
        for origin in &self.origins {
            let page = origin.page(PageId::new(1), 0, origin.len());
            for run in page.blocks().flat_map(Block::runs) {
                dots.extend((0..run.count).map(|at| Dot {
                    origin: page.origin,
                    incarnation: page.incarnation,
                    partition: run.partition,
                    offset: run.first.advanced(u64::from(at)),
                }));
            }
        }
        dots.sort_unstable();
        dots
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit { who: usize, blocks: Vec<Vec<usize>> },
    GiveUp { who: usize, key: usize, count: u64 },
    See { who: usize, other: usize },
    Send { who: usize, count: usize },
    Resend { who: usize, back: usize, count: usize },
    Reconnect { who: usize },
    Heartbeat { who: usize },
    Apply { limit: u64, fails: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..3_usize;
    let blocks = prop::collection::vec(prop::collection::vec(0..KEYS.len(), 1..4), 1..3);
    let step = prop_oneof![
        4 => (who(), blocks).prop_map(|(who, blocks)| Step::Commit { who, blocks }),
        1 => (who(), 0..KEYS.len(), 1..4_u64).prop_map(|(who, key, count)| Step::GiveUp { who, key, count }),
        3 => (who(), who()).prop_map(|(who, other)| Step::See { who, other }),
        4 => (who(), 1..4_usize).prop_map(|(who, count)| Step::Send { who, count }),
        2 => (who(), 1..6_usize, 1..6_usize).prop_map(|(who, back, count)| Step::Resend { who, back, count }),
        1 => who().prop_map(|who| Step::Reconnect { who }),
        2 => who().prop_map(|who| Step::Heartbeat { who }),
        3 => (1..2_000_u64, any::<bool>()).prop_map(|(limit, fails)| Step::Apply { limit, fails }),
    ];
    prop::collection::vec(step, 1..120)
}

fn run(world: &mut World, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Commit { who, blocks } => {
                let blocks: Vec<Vec<&str>> =
                    blocks.iter().map(|keys| keys.iter().map(|key| KEYS[*key]).collect()).collect();
                let blocks: Vec<&[&str]> = blocks.iter().map(Vec::as_slice).collect();
                world.origins[who].commit(&blocks);
            }
            Step::GiveUp { who, key, count } => world.origins[who].give_up(KEYS[key], count),
            Step::See { who, other } => {
                let other = world.origins[other].clone();
                world.origins[who].see(&other);
            }
            Step::Send { who, count } => world.send_next(who, count),
            Step::Resend { who, back, count } => {
                let from = world.sent[who].saturating_sub(back);
                let to = world.sent[who].min(from + count);
                if from < to {
                    let records = world.origins[who].page(PageId::new(1), from, to).records();
                    assert_eq!(world.send(who, from, to), Ok(records), "all of it came before");
                }
            }
            Step::Reconnect { who } => world.reconnect(who),
            Step::Heartbeat { who } => {
                let complete = world.sent[who] == world.origins[who].len();
                match world.heartbeat(who) {
                    Ok(()) => {}
                    Err(refusal) => {
                        assert!(!complete, "{refusal}");
                        assert_eq!(refusal.kind, RefusalKind::Gap);
                    }
                }
            }
            Step::Apply { limit, fails } => _ = world.apply(limit, fails),
        }
    }
}

fn finish(world: &mut World) {
    for who in 0..world.origins.len() {
        world.reconnect(who);
        world.send_next(who, usize::MAX / 2);
        world.heartbeat(who).unwrap();
    }
    world.apply_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn f01_f08_f14_f16_every_dot_is_applied_once_in_causal_order_and_nothing_is_left_behind(steps in steps()) {
        let mut world = World::new(Consistency::Causal);
        run(&mut world, steps);
        finish(&mut world);
        prop_assert_eq!(world.target.violations(), Vec::<String>::new());
        let mut applied = world.target.applied();
        applied.sort_unstable();
        prop_assert_eq!(applied, world.all_dots());
        prop_assert!(!world.gate.is_holding());
        for origin in &world.origins {
            prop_assert_eq!(world.target.progress().frontier.get(origin.origin()), origin.hlc);
            prop_assert_eq!(world.budget.used(origin.origin()), 0, "all room was given back");
        }
    }

    #[test]
    fn an_eventual_tree_never_waits(steps in steps()) {
        let mut world = World::new(Consistency::Eventual);
        run(&mut world, steps);
        world.apply_all();
        prop_assert!(!world.gate.is_holding());
        finish(&mut world);
        prop_assert_eq!(world.target.violations(), Vec::<String>::new());
        let dots: BTreeSet<Dot> = world.target.applied().into_iter().collect();
        prop_assert_eq!(dots.len(), world.all_dots().len());
    }

    #[test]
    fn the_same_arrivals_leave_in_the_same_order(steps in steps()) {
        let runs = [steps.clone(), steps].map(|steps| {
            let mut world = World::new(Consistency::Causal);
            run(&mut world, steps);
            finish(&mut world);
            (world.target.applied(), world.target.calls())
        });
        prop_assert_eq!(&runs[0], &runs[1]);
    }
}

#[test]
fn a_group_waits_for_what_its_writer_had_seen_and_says_so() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    let first = world.origins[0].clone();
    world.origins[1].see(&first);
    world.origins[1].commit(&[&["b"]]);
    world.send_next(1, 1);
    world.apply_all();
    let waiting = world.gate.waiting(&world.target.progress().frontier);
    let [waiting] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((waiting.origin, waiting.on), (world.origins[1].origin(), first.origin()));
    assert_eq!(waiting.until, first.observed.get(first.origin()));
    assert!(waiting.bytes > 0);
    assert!(world.target.applied().is_empty());
    world.send_next(0, 1);
    world.apply_all();
    assert_eq!(world.target.calls(), [2], "both leave in one call");
    assert_eq!(world.target.violations(), Vec::<String>::new());
}

#[test]
fn f02_a_heartbeat_never_overtakes_groups_that_wait() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    let first = world.origins[0].clone();
    world.origins[1].see(&first);
    world.origins[1].commit(&[&["b"]]);
    world.send_next(1, 1);
    world.heartbeat(1).unwrap();
    world.apply_all();
    assert_eq!(world.target.progress().frontier.get(world.origins[1].origin()), Hlc::ZERO);
}

#[test]
fn f10_a_repeat_of_what_is_still_being_applied_is_dropped_and_comes_back_if_that_fails() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a", "b"]]);
    world.send_next(0, 1);
    let batch = world.gate.take(&VersionVector::default(), 1 << 20);
    assert_eq!(world.send(0, 0, 1), Ok(2), "a repeat, though nothing is applied yet");
    world.gate.give_back(batch);
    assert!(world.target.progress().watermarks.iter().next().is_none(), "so nothing can be acknowledged");
    world.apply_all();
    assert_eq!(world.target.applied().len(), 2);
}

#[test]
fn f09_a_page_behind_a_missing_one_is_a_gap_and_changes_nothing() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    world.origins[0].commit(&[&["a"]]);
    let refusal = world.send(0, 1, 2).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Gap);
    assert!(!world.gate.is_holding());
    assert_eq!(world.budget.used(world.origins[0].origin()), 0);
}

#[test]
fn f25_offsets_that_were_given_up_on_are_covered_by_the_range_of_their_page() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    world.origins[0].give_up("a", 5);
    world.origins[0].commit(&[&["a"]]);
    world.send_next(0, 1);
    world.send_next(0, 1);
    world.apply_all();
    let marks = world.target.progress().watermarks;
    let marks = marks.origin(world.origins[0].origin()).unwrap();
    assert_eq!((marks.covered(), world.target.applied().len()), (7, 2));
}

#[test]
fn f04_positions_of_another_incarnation_are_refused() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    world.send_next(0, 1);
    world.apply_all();
    let mut again = MemOrigin::new(&name("x"), PARTITIONS);
    again.incarnation = Incarnation::new(99);
    again.commit(&[&["a"]]);
    world.origins[0] = again;
    assert_eq!(world.send(0, 0, 1).unwrap_err().kind, RefusalKind::Incarnation);
}

#[test]
fn f55_new_records_below_what_their_origin_promised_are_refused() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    world.send_next(0, 1);
    world.heartbeat(0).unwrap();
    world.origins[0].hlc = Hlc::from_millis(1_000);
    world.origins[0].commit(&[&["a"]]);
    assert_eq!(world.send(0, 1, 2).unwrap_err().kind, RefusalKind::Malformed);
}

#[test]
fn a_block_that_is_covered_in_part_is_taken_from_there() {
    let mut world = World::new(Consistency::Causal);
    let mut other = world.origins[0].clone();
    other.commit(&[&["a"]]);
    world.origins[0].commit(&[&["a", "a", "b"]]);
    std::mem::swap(&mut other, &mut world.origins[0]);
    world.send_next(0, 1);
    // The one record that is there was complete at its own HLC, not above.
    world.gate.queues.get_mut(&other.origin()).unwrap().closed =
        world.origins[0].observed.get(other.origin());
    std::mem::swap(&mut other, &mut world.origins[0]);
    assert_eq!(world.send(0, 0, 1), Ok(1));
    let batch = world.gate.take(&VersionVector::default(), 1 << 20);
    let skips: Vec<u16> =
        batch.ready().iter().flat_map(|group| &group.blocks).map(|(_, skip)| *skip).collect();
    assert_eq!(skips, [0, 1]);
}

#[test]
fn a_removed_peer_frees_what_waited_and_starts_again_from_what_is_applied() {
    let mut world = World::new(Consistency::Causal);
    world.origins[0].commit(&[&["a"]]);
    let first = world.origins[0].clone();
    world.origins[1].see(&first);
    world.origins[1].commit(&[&["b"]]);
    world.send_next(1, 1);
    world.apply_all();
    let tag = world.origins[1].origin();
    world.gate.forget(tag);
    assert_eq!(world.budget.used(tag), 0);
    world.reconnect(1);
    finish(&mut world);
    assert_eq!(world.target.violations(), Vec::<String>::new());
    assert_eq!(world.target.applied().len(), 2);
}

#[test]
fn no_origin_starves_the_others_of_room_in_a_batch() {
    let mut world = World::new(Consistency::Causal);
    for _ in 0..3 {
        for origin in &mut world.origins {
            origin.commit(&[&["a"]]);
        }
    }
    let mut served = BTreeMap::new();
    for who in 0..3 {
        world.send_next(who, 3);
    }
    for _ in 0..3 {
        let batch = world.gate.take(&world.target.progress().frontier, 1);
        for group in batch.ready() {
            *served.entry(group.origin).or_insert(0) += 1;
        }
    }
    assert_eq!(served.into_values().collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_batch_never_has_more_blocks_than_a_log_can_frame() {
    let mut world = World::new(Consistency::Causal);
    for origin in &mut world.origins[..2] {
        origin.commit(&vec![&["a"][..]; MAX_GROUP_FRAMES / 2 + 1]);
    }
    world.send_next(0, 1);
    world.send_next(1, 1);
    while world.apply(u64::MAX, false) {}
    assert_eq!(world.target.calls(), [1, 1]);
}
