//! Claims about what is done in steps, with writes in between; and about readers for whom the dead are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{ReapTerms, tests::alone};
use crate::disk::MemDisk;
use crate::feed::FeedSource;
use crate::id::{Hlc, Lsn, OriginTag, Version};
use crate::random::Random;
use crate::record::Kind;
use crate::tree::entry::Entry;
use crate::tree::state::State;
use crate::tree::tests::{Site, ready_groups};
use crate::tree::{ApplyTarget, ChangeView, LogView, Operation, Tree};

const OWN: OriginTag = OriginTag::new(1);

/// A state with its model: the version of each key, and whether it is live.
struct Model {
    state: State,
    keys: BTreeMap<Vec<u8>, (u64, bool)>,
    random: Random,
    hlc: u64,
}

impl Model {
    fn write(&mut self) {
        self.hlc += 1;
        let key = format!("k{:03}", self.random.below(400)).into_bytes();
        let live = self.random.chance(0.5);
        let version = Version { hlc: Hlc::new(self.hlc), origin: OWN };
        let value = live.then_some(&b"v"[..]);
        self.state.place(Entry::new(&key, value, None, version, Lsn::new(self.hlc)));
        self.keys.insert(key, (self.hlc, live));
    }

    fn write_some(&mut self) {
        (0..self.random.below(4)).for_each(|_| self.write());
    }

    fn reap(&mut self) {
        let until = self.hlc - self.random.below(100).min(self.hlc);
        self.state.raise_reaped(Hlc::new(until));
        let mut from = Some(0);
        while let Some(at) = from {
            (from, _) = self.state.reap_slots(at, 7, 0);
        }
        let reaped = self.state.progress.reaped.get();
        self.keys.retain(|_, (hlc, live)| *live || *hlc > reaped);
        self.write_some();
        if self.state.begin_sweep() {
            while self.state.sweep_some() {
                self.write_some();
            }
            while self.state.end_sweep(3) {
                self.write_some();
            }
        }
    }

    fn check(&self) {
        let mut held = BTreeMap::new();
        self.state.walk(
            |_| false,
            |entry| {
                held.insert(entry.key().to_vec(), (entry.version.hlc.get(), entry.is_live()));
                true
            },
        );
        assert_eq!(held, self.keys);
        assert_eq!(self.state.len(), self.keys.len());
        for key in self.keys.keys() {
            assert_eq!(self.state.find(key).map(Entry::key), Some(&key[..]));
        }
    }
}

#[test]
fn writes_between_the_steps_of_a_sweep_lose_nothing_and_use_its_slots() {
    for seed in 0..30 {
        let state = State::new(OWN, 4);
        let mut model = Model { state, keys: BTreeMap::new(), random: Random::from_seed(seed), hlc: 0 };
        for _ in 0..20 {
            (0..150).for_each(|_| model.write());
            model.reap();
            model.check();
            assert!(model.state.slots() <= 1_000, "seed {seed}: {} slots for 400 keys", model.state.slots());
        }
    }
}

#[test]
fn a_sweep_ends_in_steps_of_the_size_it_is_told() {
    let mut state = State::new(OWN, 4);
    for hlc in 1..=1_000 {
        let version = Version { hlc: Hlc::new(hlc), origin: OWN };
        state.place(Entry::new(&hlc.to_be_bytes(), None, None, version, Lsn::new(hlc)));
    }
    while state.settle_some() {}
    state.raise_reaped(Hlc::new(1_000));
    assert_eq!(state.reap_slots(0, usize::MAX, 0).1.tombstones, 1_000);
    assert!(state.begin_sweep());
    while state.sweep_some() {}
    let mut steps = 0;
    while state.end_sweep(10) {
        steps += 1;
    }
    assert!(steps >= 200, "a hundred for the slots, as many for the end of the entries: {steps}");
    assert_eq!(state.slots(), 0);
}

#[tokio::test(start_paused = true)]
async fn deleted_ranges_leave_in_steps_and_all_that_may_go_goes() {
    let mut site = Site::new("a", 3);
    site.limits.reap_slots = 3;
    let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
    alone(&tree);
    for at in 0..50 {
        tree.delete_range(format!("k{at:02}"), format!("k{at:02}~")).await.expect("deleted");
    }
    assert_eq!(tree.size().graves.ranges, 50);
    let (next, went) = tree.0.applied.state.write().reap_ranges(None, 3);
    assert!(next.is_some() && went.ranges == 0, "nothing is reaped yet");
    assert_eq!(tree.reap(&ReapTerms::default()).await.expect("reaped").gone.ranges, 50);
    assert_eq!(tree.size().graves.ranges, 0);
}

/// Many keys that nobody has put in order yet.
async fn unsettled(name: &'static str, seed: u64) -> Tree {
    let mut site = Site::new(name, seed);
    (site.limits.pending_records, site.limits.pending_bytes) = (4_000, 1 << 20);
    let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
    let random = Random::from_seed(seed);
    for _ in 0..10 {
        let sets =
            (0..1_000).map(|_| Operation::Set(random.next_u64().to_be_bytes().to_vec().into(), "v".into()));
        tree.batch(sets.collect()).await.expect("written");
    }
    tree
}

fn most_sorted(tree: &Tree) -> usize {
    tree.0.applied.state.read().most_sorted()
}

#[tokio::test(start_paused = true)]
async fn whoever_walks_through_many_new_keys_sorts_few_of_them_under_one_lock() {
    const FEW: usize = 1_024;
    let scanned = unsettled("a", 1).await;
    assert_eq!(scanned.scan(b"", None, usize::MAX).len(), 10_000);
    assert!(most_sorted(&scanned) <= FEW, "{}", most_sorted(&scanned));
    let deleted = unsettled("b", 2).await;
    deleted.delete_range(vec![0], vec![1]).await.expect("deleted");
    assert!(most_sorted(&deleted) <= FEW, "{}", most_sorted(&deleted));
    let other = Site::new("c", 3).open(Arc::new(MemDisk::new())).await.expect("opens");
    other.delete_range(vec![0], vec![1]).await.expect("deleted");
    let (here, identity) = (unsettled("d", 4).await, other.identity());
    here.enroll(&identity.cluster, identity.incarnation).await.expect("known");
    here.apply(ready_groups(&other).await).await.expect("applied");
    assert!(most_sorted(&here) <= FEW, "{}", most_sorted(&here));
}

/// A destination that knows keys alone, as a topic with tombstones does.
async fn follow(tree: &Tree, into: &mut BTreeMap<Bytes, Bytes>, from: Lsn, groups: usize) -> Lsn {
    let mut reader = tree.feed(tree.cursor_at(from));
    for _ in 0..groups {
        if reader.cursor().lsn >= LogView::end(tree).lsn {
            break;
        }
        let batch = reader.next().await.expect("readable");
        for change in tree.decode(&batch, from) {
            match change.kind {
                Kind::Set if tree.is_forgotten(&change) => _ = into.remove(&change.key),
                Kind::Set => _ = into.insert(change.key, change.value),
                Kind::Delete => _ = into.remove(&change.key),
                Kind::DeleteRange => {
                    tree.removed(&change, None, usize::MAX).iter().for_each(|key| _ = into.remove(key));
                }
                Kind::Mark => {}
            }
        }
    }
    reader.cursor().lsn
}

#[tokio::test(start_paused = true)]
async fn f62_who_begins_with_the_log_and_knows_no_ranges_ends_with_what_the_tree_holds_though_the_dead_are_forgotten()
 {
    for seed in 0..60 {
        let (mut site, random) = (Site::new("a", seed), Random::from_seed(seed));
        site.limits.snapshot_log_bytes = u64::MAX;
        let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
        alone(&tree);
        let (mut held, mut at) = (BTreeMap::new(), None);
        for step in 0..80 {
            let key = format!("k{}", random.below(12));
            match random.below(8) {
                0..=3 => _ = tree.put(key, format!("v{step}")).await.expect("put"),
                4 => _ = tree.delete(key).await.expect("deleted"),
                5 => _ = tree.delete_range(key.clone(), format!("{key}~")).await.expect("deleted"),
                6 if step > 40 => {
                    let from = at.unwrap_or(Lsn::ZERO);
                    at = Some(follow(&tree, &mut held, from, 1 + random.below(20) as usize).await);
                }
                // It is waited for from when it begins.
                _ => {
                    let acknowledged = at.unwrap_or(Lsn::new(u64::MAX));
                    let terms = ReapTerms { acknowledged, ..ReapTerms::default() };
                    tree.reap(&terms).await.expect("reaped");
                }
            }
        }
        follow(&tree, &mut held, at.unwrap_or(Lsn::ZERO), usize::MAX).await;
        let rows = tree.scan(b"", None, usize::MAX).into_iter().map(|row| (row.key, row.value));
        assert_eq!(held, rows.collect::<BTreeMap<_, _>>(), "seed {seed}");
    }
}
