//! Claims about what leaves a state, what comes back after a crash, and what does not.

use std::sync::Arc;
use std::time::Duration;

use super::{Graves, ReapHold, ReapTerms};
use crate::disk::MemDisk;
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, Offset, PartitionId, Version};
use crate::letters::{Fate, Letter, Parked, Stretch};
use crate::random::Random;
use crate::tree::entry::Entry;
use crate::tree::tests::{Site, ready_groups};
use crate::tree::{ApplyTarget, Members, Operation, PutOptions, Row, Tree};

pub(super) fn alone(tree: &Tree) {
    tree.declare_members(Members::default());
}

/// What does not expire: the wall clock of a site begins anew with every start.
fn lasting(tree: &Tree) -> Vec<Row> {
    let mut rows = tree.scan(b"", None, usize::MAX);
    rows.retain(|row| row.deadline_ms.is_none());
    rows
}

/// A write of another cluster that could not be applied.
fn letter(version: Version) -> Letter {
    Letter {
        origin: ClusterId::new("b").expect("valid").tag(),
        incarnation: Incarnation::new(1),
        stretches: vec![Stretch { partition: PartitionId::new(0), first: Offset::ZERO, count: 1 }],
        hlc: version.hlc,
        bytes: bytes::Bytes::new(),
        reason: "too large".into(),
        first_seen_ms: 0,
        lsn: Lsn::ZERO,
        fate: Fate::Parked,
    }
}

fn set_aside(tree: &Tree, letters: &[Letter]) {
    tree.0.applied.state.write().parked = Parked::of(letters.iter());
}

async fn reap(tree: &Tree) -> Graves {
    tree.reap(&ReapTerms::default()).await.expect("reaped").gone
}

fn site(seed: u64) -> Site {
    let mut site = Site::new("a", seed);
    site.limits.snapshot_log_bytes = u64::MAX;
    site.limits.snapshot_bytes_per_second = 0;
    site
}

#[tokio::test(start_paused = true)]
async fn memory_of_what_was_deleted_comes_back() {
    let (mut site, disk) = (site(1), MemDisk::new());
    site.limits.pending_records = 4_000;
    site.limits.pending_bytes = 1 << 20;
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    alone(&tree);
    const KEYS: usize = 100_000;
    let names: Vec<String> = (0..KEYS).map(|at| format!("key-{at:06}")).collect();
    for part in names.chunks(1_000) {
        let sets = part.iter().map(|key| Operation::Set(key.clone().into(), vec![7; 100].into())).collect();
        tree.batch(sets).await.expect("written");
    }
    tree.put("stays", "here").await.expect("written");
    let full = tree.size();
    for part in names.chunks(1_000) {
        tree.batch(part.iter().map(|key| Operation::Delete(key.clone().into())).collect())
            .await
            .expect("deleted");
    }
    let deleted = tree.size();
    assert_eq!((deleted.graves.tombstones, deleted.entries), (KEYS as u64, 1));
    assert!(deleted.state_bytes > 1_000_000 && full.state_bytes > 11_000_000);
    assert_eq!(reap(&tree).await, Graves { tombstones: KEYS as u64, ..Graves::default() });
    let after = tree.size();
    assert_eq!((after.graves, after.state_bytes, after.entries), (Graves::default(), 9, 1));
    assert_eq!(tree.scan(b"", None, usize::MAX).len(), 1);
    let slots = tree.0.applied.state.read().slots();
    for key in &names[..10] {
        tree.put(key.clone(), "again").await.expect("written");
    }
    assert_eq!(tree.scan(b"key", None, usize::MAX).len(), 10);
    assert_eq!(tree.0.applied.state.read().slots(), slots, "in the room of what was reaped");
}

/// Reaping in the middle of every kind of write shows readers nothing, and neither a replay of the whole log nor a snapshot
/// and the log above it shows anything else.
#[tokio::test(start_paused = true)]
async fn nobody_sees_that_something_was_reaped_neither_before_a_restart_nor_after_it() {
    let (mut went, mut by_snapshot) = (Graves::default(), 0);
    for seed in 0..80 {
        let (mut site, mut disk, random) = (site(seed), MemDisk::new(), Random::from_seed(seed));
        let mut tree = site.open(Arc::new(disk.clone())).await.expect("opens");
        for step in 0..160 {
            alone(&tree);
            let key = format!("k{}", random.below(12));
            let before = lasting(&tree);
            match random.below(12) {
                0..=3 => _ = tree.put(key, format!("v{step}")).await.expect("put"),
                4 | 5 => _ = tree.delete(key).await.expect("deleted"),
                6 => {
                    let ttl = Duration::from_millis(1 + random.below(40));
                    tree.put_with(key, "short", PutOptions::ttl(ttl)).await.expect("put");
                }
                7 => _ = tree.delete_range(key.clone(), format!("{key}~")).await.expect("deleted"),
                8 => tokio::time::sleep(Duration::from_millis(random.below(30))).await,
                9 => by_snapshot += u64::from(tree.snapshot().await.is_ok()),
                10 if random.chance(0.3) => {
                    drop(tree);
                    disk = disk.crash(step);
                    tree = site.open(Arc::new(disk.clone())).await.expect("opens");
                    assert_eq!(lasting(&tree), before, "seed {seed}, step {step}");
                }
                _ => {
                    let now = tree.scan(b"", None, usize::MAX);
                    went += reap(&tree).await;
                    assert_eq!(tree.scan(b"", None, usize::MAX), now, "seed {seed}, step {step}");
                    let size = tree.size();
                    assert_eq!(size.entries, now.len() as u64, "seed {seed}, step {step}");
                    assert_eq!(size.graves.total(), 0, "seed {seed}, step {step}: alone, all of it goes");
                }
            }
        }
    }
    let enough = went.tombstones > 100 && went.expired > 100 && went.ranges > 100 && by_snapshot > 100;
    assert!(enough, "{went:?}, {by_snapshot} snapshots");
}

#[tokio::test(start_paused = true)]
async fn f18_a_tombstone_waits_for_everybody_whose_older_write_may_come() {
    let (mut here, mut there) = (site(3), Site::new("b", 4));
    let tree = here.open(Arc::new(MemDisk::new())).await.expect("opens");
    let other = there.open(Arc::new(MemDisk::new())).await.expect("opens");
    let b = ClusterId::new("b").expect("a name");
    let old = other.put("k", "old").await.expect("written");
    let late = ready_groups(&other).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    tree.put("k", "here").await.expect("written");
    assert!(tree.delete("k").await.expect("deleted") > old);
    tree.delete_range("x", "y").await.expect("deleted");
    assert_eq!(tree.reap(&ReapTerms::default()).await.expect("reaped").held_by, ReapHold::Undeclared);
    tree.declare_members(Members { joined: [b.clone()].into(), ..Members::default() });
    let report = tree.reap(&ReapTerms::default()).await.expect("reaped");
    assert_eq!(
        (report.gone, report.held_by),
        (Graves::default(), ReapHold::Origin(b.clone())),
        "however old"
    );
    tree.enroll(&b, other.identity().incarnation).await.expect("enrolled");
    tree.apply(late).await.expect("applied");
    assert_eq!(tree.get("k"), None, "it came too late");
    assert_eq!(reap(&tree).await, Graves::default(), "there may be more");
    tree.advance(b.tag(), Hlc::from_millis(2_000_000_000));
    let gone = Graves { tombstones: 1, expired: 0, ranges: 1 };
    assert_eq!(reap(&tree).await, gone);
}

#[tokio::test(start_paused = true)]
async fn f22_f62_what_has_expired_waits_like_a_tombstone() {
    let (mut here, mut there) = (site(5), Site::new("b", 6));
    let tree = here.open(Arc::new(MemDisk::new())).await.expect("opens");
    let other = there.open(Arc::new(MemDisk::new())).await.expect("opens");
    let b = ClusterId::new("b").expect("a name");
    other.put("k", "old and for ever").await.expect("written");
    let late = ready_groups(&other).await;
    tree.declare_members(Members { joined: [b.clone()].into(), ..Members::default() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    tree.put_with("k", "short", PutOptions::ttl(Duration::from_millis(10))).await.expect("written");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((tree.get("k"), reap(&tree).await), (None, Graves::default()));
    tree.enroll(&b, other.identity().incarnation).await.expect("enrolled");
    tree.apply(late).await.expect("applied");
    assert_eq!(tree.get("k"), None, "an older write does not bring it back");
    tree.advance(b.tag(), Hlc::from_millis(2_000_000_000));
    assert_eq!(reap(&tree).await, Graves { expired: 1, ..Graves::default() });
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_log_and_what_is_kept_aside_hold_the_dead() {
    let (mut site, disk) = (site(7), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    alone(&tree);
    tree.put("k", "v").await.expect("written");
    let deleted = tree.delete("k").await.expect("deleted");
    let held = async |terms: ReapTerms| tree.reap(&terms).await.expect("reaped").held_by;
    let slow = ReapTerms { acknowledged: Lsn::new(1), slowest: Some("kafka".into()), ..ReapTerms::default() };
    assert_eq!(held(slow).await, ReapHold::Consumer("kafka".into()));
    let unheard = ReapTerms { unheard: Some("peer b".into()), ..ReapTerms::default() };
    assert_eq!(held(unheard).await, ReapHold::Unheard("peer b".into()));
    set_aside(&tree, &[letter(deleted)]);
    assert_eq!(held(ReapTerms::default()).await, ReapHold::Parked);
    set_aside(&tree, &[]);
    let dry = ReapTerms { dry_run: true, ..ReapTerms::default() };
    held(dry).await;
    assert_eq!(tree.size().graves.tombstones, 1);
    let (_, reading) = tree.snapshot_header(1);
    assert_eq!(held(ReapTerms::default()).await, ReapHold::Reading);
    assert_eq!(tree.size().graves.tombstones, 1);
    drop(reading);
    held(ReapTerms::default()).await;
    assert_eq!(tree.size().graves.tombstones, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_takes_nothing_does_not_put_off_the_next_one() {
    let (mut site, disk) = (site(10), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    alone(&tree);
    let acknowledged = |until: Lsn, dry_run| ReapTerms {
        dry_run,
        acknowledged: until,
        slowest: Some("kafka".into()),
        ..ReapTerms::default()
    };
    tree.put("k", "v").await.expect("written");
    tree.delete("k").await.expect("deleted");
    let first = tree.0.applied.state.read().next_lsn;
    let terms = acknowledged(Lsn::ZERO, false);
    assert_eq!(tree.reap(&terms).await.expect("reaped").gone.total(), 0, "the end is remembered");
    tree.put("other", "v").await.expect("written");
    // Who only asks, and who is kept from it by a reader, does not move what is waited for.
    let asked = tree.reap(&acknowledged(first, true)).await.expect("asked");
    assert_eq!((asked.gone.total(), asked.left.tombstones), (0, 1));
    let (_, reading) = tree.snapshot_header(1);
    let read = tree.reap(&acknowledged(first, false)).await.expect("reaped");
    assert_eq!((read.gone.total(), read.held_by), (0, ReapHold::Reading));
    drop(reading);
    let real = tree.reap(&acknowledged(first, false)).await.expect("reaped");
    assert_eq!(real.gone.tombstones, 1, "{real:?}");
}

#[tokio::test(start_paused = true)]
async fn entries_are_looked_at_again_when_more_may_go_or_a_deadline_has_passed_and_only_then() {
    let (mut site, disk) = (site(11), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    alone(&tree);
    let held = ReapTerms { unheard: Some("peer b".into()), ..ReapTerms::default() };
    let old = tree.put("k", "v").await.expect("written");
    let ttl = PutOptions::ttl(Duration::from_millis(10));
    tree.put_with("short", "v", ttl).await.expect("written");
    assert_eq!(reap(&tree).await, Graves::default());
    // What never happens, to see that nobody looks: something dies that is older than what is reaped.
    let grave = Entry::new(b"k", None, None, old, Lsn::ZERO);
    tree.0.applied.state.write().overwrite(grave);
    assert_eq!(tree.reap(&held).await.expect("reaped").gone, Graves::default(), "nothing has changed");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let both = Graves { tombstones: 1, expired: 1, ranges: 0 };
    assert_eq!(tree.reap(&held).await.expect("reaped").gone, both, "a deadline has passed");
    tree.delete("short").await.expect("deleted");
    assert_eq!(reap(&tree).await.tombstones, 1, "more may go");
}

/// The log has the delete before the older write that loses against it. A snapshot that covers the first alone and is read
/// behind the second must still have the tombstone.
#[tokio::test(start_paused = true)]
async fn nothing_is_reaped_over_the_head_of_a_snapshot_that_is_being_read() {
    let (mut here, mut there, disk) = (site(8), Site::new("b", 9), MemDisk::new());
    here.limits.snapshot_chunk_bytes = 64;
    here.limits.snapshot_bytes_per_second = 200;
    let tree = here.open(Arc::new(disk.clone())).await.expect("opens");
    let other = there.open(Arc::new(MemDisk::new())).await.expect("opens");
    let b = ClusterId::new("b").expect("a name");
    other.put("z", "old").await.expect("written");
    let late = ready_groups(&other).await;
    tree.declare_members(Members { joined: [b.clone()].into(), ..Members::default() });
    tree.enroll(&b, other.identity().incarnation).await.expect("enrolled");
    tokio::time::sleep(Duration::from_millis(50)).await;
    for at in 0..30 {
        tree.put(format!("a{at:02}"), vec![1; 50]).await.expect("written");
    }
    tree.delete("z").await.expect("deleted");
    let reaped = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tree.apply(late).await.expect("applied");
        tree.advance(b.tag(), Hlc::from_millis(2_000_000_000));
        let report = tree.reap(&ReapTerms::default()).await.expect("reaped");
        assert_eq!((report.gone.total(), report.held_by), (0, ReapHold::Reading));
    };
    let (taken, ()) = tokio::join!(tree.snapshot(), reaped);
    taken.expect("written");
    assert_eq!(reap(&tree).await.tombstones, 1);
    drop(tree);
    let tree = here.open(Arc::new(disk.crash(1))).await.expect("opens");
    assert!(tree.last_snapshot().is_some());
    assert_eq!(tree.get("z"), None);
}
