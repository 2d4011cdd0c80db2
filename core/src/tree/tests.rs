//! Claims about the tree over a disk in memory: crashes, failures, cancelled callers, reading back.

mod history;
mod images;
mod model;
mod parking;
mod run;
mod site;
mod view;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::disk::{Disk, DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::ErrorKind;
use crate::feed::FeedSource;
use crate::id::{ClusterId, Hlc};
use crate::random::Random;
use crate::record::Block;

pub(super) use self::site::Site;

fn rows(tree: &Tree) -> BTreeMap<Vec<u8>, (Vec<u8>, crate::id::Version)> {
    tree.scan(b"", None, usize::MAX)
        .into_iter()
        .map(|row| (row.key.to_vec(), (row.value.to_vec(), row.version)))
        .collect()
}

pub(super) async fn ready_groups(tree: &Tree) -> Vec<ReadyGroup> {
    let mut reader = tree.feed(tree.cursor_at(crate::id::Lsn::ZERO));
    let mut groups = Vec::new();
    while reader.cursor().lsn < LogView::end(tree).lsn {
        for group in reader.next().await.expect("readable").groups() {
            groups.push(ReadyGroup {
                origin: tree.identity().origin(),
                incarnation: tree.identity().incarnation,
                closed: group.blocks()[0].frame.closed,
                blocks: group.blocks().iter().map(|framed| (framed.block.clone(), 0)).collect(),
            });
        }
    }
    groups
}

#[tokio::test(start_paused = true)]
async fn a_write_is_readable_with_its_version_and_survives_a_restart() {
    let (mut site, disk) = (Site::new("a", 1), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let first = tree.put("k", "v1").await.expect("put");
    let second = tree.put("k", "v2").await.expect("put");
    assert!(second > first);
    tree.put("gone", "x").await.expect("put");
    tree.delete("gone").await.expect("delete");
    for tree in [tree, site.open(Arc::new(disk.crash(7))).await.expect("opens again")] {
        let value = tree.get("k").expect("there");
        assert_eq!((&value.value[..], value.version), (&b"v2"[..], second));
        assert_eq!(tree.get("gone"), None);
        assert_eq!(tree.size().entries, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledged_writes_survive_a_crash_at_any_moment_and_batches_stay_whole() {
    for seed in 0..150 {
        let (mut site, mut disk) = (Site::new("a", seed), MemDisk::new());
        let random = Random::from_seed(seed);
        let mut acknowledged: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 0..4_u32 {
            let tree = site
                .open(Arc::new(disk.clone()))
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for (key, value) in &acknowledged {
                let here =
                    tree.get(key).unwrap_or_else(|| panic!("seed {seed}: an acknowledged key is missing"));
                assert!(here.value[..] >= value[..], "seed {seed}: an acknowledged value went back");
            }
            for pair in 0..8_u32 {
                let halves =
                    [0, 1].map(|half| tree.get(format!("pair-{pair}-{half}")).map(|half| half.value));
                assert_eq!(halves[0], halves[1], "seed {seed}: half of a batch is visible");
            }
            let done = Arc::new(Mutex::new(Vec::<(Vec<u8>, Vec<u8>)>::new()));
            for writer in 0..6_u32 {
                let (tree, done, random) = (tree.clone(), done.clone(), random.fork());
                site.tasks.spawn("writer", async move {
                    for step in 0..20_u32 {
                        let value = format!("{round:04}-{step:04}").into_bytes();
                        if random.chance(0.3) {
                            let pair = random.below(8);
                            let keys = [0, 1].map(|half| format!("pair-{pair}-{half}"));
                            let sets = keys.map(|key| Operation::Set(key.into(), value.clone().into()));
                            if tree.batch(sets.to_vec()).await.is_err() {
                                return;
                            }
                        } else {
                            let key = format!("w{writer}-{}", random.below(4)).into_bytes();
                            if tree.put(key.clone(), value.clone()).await.is_err() {
                                return;
                            }
                            done.lock().push((key, value));
                        }
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(random.below(40))).await;
            site.tasks.abort_and_join().await;
            acknowledged.extend(done.lock().drain(..));
            disk = disk.crash(random.next_u64());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f54_a_dropped_put_leaves_state_and_log_in_agreement() {
    let (mut site, disk) = (Site::new("a", 3), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let random = Random::from_seed(11);
    let mut kept = 0;
    for round in 0..1_000_u32 {
        let put = tree.put(format!("k{}", round % 50), format!("{round}"));
        let patience = Duration::from_micros(random.below(3_000));
        kept += u32::from(tokio::time::timeout(patience, put).await.is_ok());
    }
    assert!((1..1_000).contains(&kept), "{kept} of 1,000 puts were waited for: both must occur");
    tree.drain(Duration::from_secs(5)).await;
    let state = rows(&tree);
    let reopened = site.open(Arc::new(disk.copy())).await.expect("opens again");
    assert_eq!(state, rows(&reopened));
}

#[tokio::test(start_paused = true)]
async fn f24_a_failed_sync_fails_its_writes_and_the_log_goes_on_behind_it() {
    let (mut site, memory) = (Site::new("a", 4), MemDisk::new());
    let faults = DiskFaults::from_seed(1);
    let disk = FaultyDisk::over_memory(memory.clone(), faults.clone());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    tree.put("before", "1").await.expect("put");
    faults.fail_nth(DiskOperation::Sync, 1);
    let error = tree.put("lost", "1").await.expect_err("the sync fails");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(tree.get("lost"), None, "the state is untouched");
    tree.put("after", "1").await.expect("the log works again");
    let tree = site.open(Arc::new(memory.crash(5))).await.expect("opens again");
    assert!(tree.get("before").is_some() && tree.get("after").is_some());
    assert_eq!(tree.get("lost"), None, "what failed stays invisible");
}

#[tokio::test(start_paused = true)]
async fn f30_a_full_disk_refuses_writes_reads_go_on_and_space_brings_writes_back() {
    let (mut site, disk) = (Site::new("a", 5), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    tree.put("k", "v").await.expect("put");
    disk.set_quota(disk.used() + 100);
    let error = tree.put("big", vec![1; 5_000]).await.expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(tree.get("k").expect("readable").value, "v");
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(tree.put("big", vec![1; 5_000]).await.is_err(), "still no room");
    }
    disk.set_quota(u64::MAX);
    let mut works = false;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        works = works || tree.put("big", vec![2; 5_000]).await.is_ok();
    }
    assert!(works, "writes go on once there is room");
    let tree = site.open(Arc::new(disk.crash(1))).await.expect("opens again");
    assert_eq!(tree.get("big").expect("there").value, vec![2; 5_000]);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_tree_refuses_writes_by_name_and_keeps_what_was_pending() {
    let (mut site, disk) = (Site::new("a", 6), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let pending = tokio::join!(tree.put("a", "1"), tree.put("b", "2"), async {
        tokio::task::yield_now().await;
        tree.drain(Duration::from_secs(5)).await;
    });
    assert!(pending.0.is_ok() && pending.1.is_ok());
    assert!(tree.put("c", "3").await.expect_err("stopping").is_shutting_down());
}

#[tokio::test(start_paused = true)]
async fn f27_damage_before_the_last_group_refuses_the_log_with_the_place() {
    let (mut site, disk) = (Site::new("a", 7), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    for round in 0..5 {
        tree.put(format!("k{round}"), "v").await.expect("put");
    }
    tree.kill().await;
    let path = Path::new("/data/trees/t/wal/00000000000000000001.seg");
    let file = disk.open(path, crate::disk::OpenMode::Write).expect("segment");
    file.write_all_at(&mut [std::io::IoSlice::new(b"XXXX")], 200).expect("writes");
    let error = site.open(Arc::new(disk.copy())).await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("damaged at byte 80"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn f27_a_tail_torn_by_a_crash_is_cut_and_everything_acknowledged_is_there() {
    let mut torn = 0;
    for seed in 0..200 {
        let (mut site, memory) = (Site::new("a", seed), MemDisk::new());
        let faults = DiskFaults::from_seed(seed);
        let tree = site
            .open(Arc::new(FaultyDisk::over_memory(memory.clone(), faults.clone())))
            .await
            .expect("opens");
        for round in 0..1 + seed % 7 {
            tree.put(format!("k{round}"), vec![3; 700]).await.expect("put");
        }
        faults.fail_all(DiskOperation::Sync);
        let sets = (0..4).map(|n| Operation::Set(format!("half-{n}").into(), vec![5; 600].into())).collect();
        tree.batch(sets).await.expect_err("nothing is synced any more");
        let tree = site
            .open(Arc::new(memory.crash(seed)))
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let halves = tree.scan(b"half-", None, 9).len();
        assert!(halves == 0 || halves == 4, "seed {seed}: {halves} of 4 records of a batch");
        torn += u32::from(halves == 0);
        assert_eq!(tree.scan(b"k", None, 99).len() as u64, 1 + seed % 7, "seed {seed}");
        tree.put("after", "v").await.expect("the log goes on");
    }
    assert!(torn > 20, "only {torn} tails were torn");
}

#[tokio::test(start_paused = true)]
async fn what_is_pinned_at_creation_is_refused_by_name_when_it_changes() {
    let (mut site, disk) = (Site::new("a", 8), MemDisk::new());
    site.open(Arc::new(disk.clone())).await.expect("opens");
    site.name = "b";
    let error = site.open(Arc::new(disk.copy())).await.expect_err("another cluster's directory");
    assert!(error.to_string().contains("cluster id is pinned at a"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_page_written_back_is_the_same_bytes_and_a_second_cluster_holds_the_same_state() {
    let (mut a, mut b) = (Site::new("a", 9), Site::new("b", 10));
    let (disk_a, disk_b) = (MemDisk::new(), MemDisk::new());
    let left = a.open(Arc::new(disk_a)).await.expect("opens");
    let right = b.open(Arc::new(disk_b.clone())).await.expect("opens");
    for round in 0..200_u32 {
        left.put(format!("k{}", round % 37), format!("{round}")).await.expect("put");
    }
    right.enroll(&left.identity().cluster, left.identity().incarnation).await.expect("enrolled");
    let groups = ready_groups(&left).await;
    let applied = right.apply(groups.clone()).await.expect("applies");
    assert_eq!(applied.records, 200);
    assert_eq!(left.digest().digest, right.digest().digest);
    let marks = right.progress().watermarks;
    assert_eq!(marks.origin(left.identity().origin()), Some(&left.own_marks()));
    let mut sent = groups.iter().flat_map(|group| &group.blocks).map(|(block, _)| block.bytes().clone());
    let reopened = b.open(Arc::new(disk_b.crash(1))).await.expect("opens again");
    assert_eq!(reopened.progress().watermarks, marks, "positions come back from the log");
    assert_eq!(reopened.digest().digest, left.digest().digest);
    let mut reader = reopened.feed(reopened.cursor_at(crate::id::Lsn::ZERO));
    while reader.cursor().lsn < LogView::end(&reopened).lsn {
        for framed in reader.next().await.expect("reads").groups().iter().flat_map(|group| group.blocks()) {
            assert_eq!(Some(framed.block.bytes()), sent.next().as_ref());
        }
    }
    assert!(sent.next().is_none());
}

#[tokio::test(start_paused = true)]
async fn changes_resume_inside_a_batch_and_leave_out_what_lost() {
    let (mut site, disk) = (Site::new("a", 12), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    let sets = (0..10).map(|n| Operation::Set(format!("k{n}").into(), "v".into())).collect();
    tree.batch(sets).await.expect("batch");
    let mut seen = Vec::new();
    let mut cursor = None;
    for _ in 0..10 {
        let mut changes = tree.changes(cursor.map_or(Start::Beginning, Start::At));
        let Event::Change(change) = changes.next().await.expect("event") else {
            panic!("a change comes first")
        };
        cursor = Some(change.cursor);
        seen.push(change.key);
    }
    let expected: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    assert_eq!(seen, expected);
    let mut rest = tree.changes(Start::At(cursor.expect("a cursor")));
    assert!(matches!(rest.next().await.expect("event"), Event::Resolved { .. }), "nothing is sent again");
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_starts_before_the_last_group_is_announced_waits_and_does_not_fail() {
    let (mut site, disk) = (Site::new("a", 15), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    tree.put("k", "1").await.expect("put");
    let end = tree.0.applied.moved.get();
    tree.0.applied.moved.modify(|moved| moved.0 = crate::id::Lsn::ZERO);
    let mut changes = tree.changes(Start::Now);
    let early = tokio::time::timeout(Duration::from_millis(100), changes.next()).await;
    assert!(early.is_err(), "it waits: {early:?}");
    tree.0.applied.moved.modify(|moved| *moved = end);
    tree.put("k", "2").await.expect("put");
    let Event::Change(change) = changes.next().await.expect("event") else { panic!("a change comes first") };
    assert_eq!(change.value, "2");
}

#[tokio::test(start_paused = true)]
async fn locate_finds_where_a_receiver_stands_and_names_a_log_that_went_back() {
    let (mut site, disk) = (Site::new("a", 13), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let mut marks = vec![tree.own_marks()];
    for round in 0..300_u32 {
        tree.put(format!("k{round}"), vec![7; 50]).await.expect("put");
        marks.push(tree.own_marks());
    }
    for (count, held) in marks.iter().enumerate().step_by(23) {
        let Located::At(cursor) = tree.locate(tree.identity().origin(), Some(held)).await.expect("located")
        else {
            panic!("not gone back")
        };
        assert_eq!(cursor.lsn.get(), count as u64, "one record a group here");
    }
    let copy = disk.copy();
    tree.put("k-late", "only in the newer log").await.expect("put");
    let ahead = tree.own_marks();
    let old = site.open(Arc::new(copy)).await.expect("opens the copy");
    assert!(matches!(
        old.locate(old.identity().origin(), Some(&ahead)).await.expect("located"),
        Located::WentBack { .. }
    ));
    old.put("k-late", "another write at the same offset").await.expect("put");
    let gone = old.locate(old.identity().origin(), Some(&ahead)).await.expect("located");
    assert!(matches!(gone, Located::WentBack { .. }), "f55: the same offset with another HLC: {gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_promise_is_never_broken_by_a_later_write() {
    let (mut site, disk) = (Site::new("a", 14), MemDisk::new());
    let tree = site.open(Arc::new(disk)).await.expect("opens");
    let mut reader = tree.feed(tree.cursor_at(crate::id::Lsn::ZERO));
    for round in 0..100_u32 {
        let put = tree.put("k", format!("{round}"));
        let (version, early) = tokio::join!(put, async {
            tokio::task::yield_now().await;
            reader.idle().await.expect("clock")
        });
        assert!(early.is_none(), "a write is on its way");
        while reader.cursor().lsn < LogView::end(&tree).lsn {
            reader.next().await.expect("reads");
        }
        let idle = reader.idle().await.expect("clock").expect("caught up");
        let closed = idle.resolved().expect("a promise").closed;
        assert!(closed > version.expect("put").hlc);
        assert!(tree.put("k", "later").await.expect("put").hlc > closed);
    }
}

#[tokio::test(start_paused = true)]
async fn f58_a_small_live_value_holds_nothing_of_the_buffer_that_it_came_in() {
    let (mut site, disk) = (Site::new("a", 1), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let written = Bytes::from(vec![b'w'; 1024 * 1024]);
    tree.put(written.slice(..8), written.slice(8..16)).await.expect("put");
    assert!(written.is_unique(), "a write keeps its caller's buffer");

    let (mut abroad, far) = (Site::new("b", 9), MemDisk::new());
    let other = abroad.open(Arc::new(far)).await.expect("opens");
    let large = Operation::Set("large".into(), vec![b'l'; 2_000].into());
    other.batch(vec![Operation::Set("small".into(), "s".into()), large]).await.expect("written");
    let groups = ready_groups(&other).await;
    let (of, incarnation) = (other.identity().cluster.clone(), other.identity().incarnation);
    drop(other);
    // As it came out of a socket: one buffer, which the blocks of the page are slices of.
    let page = Bytes::copy_from_slice(groups[0].blocks[0].0.bytes());
    let block = Block::parse(page.clone()).expect("whole");
    let blocks = vec![(block, 0)];
    let group = ReadyGroup { blocks, ..groups[0].clone() };
    drop(groups);
    tree.enroll(&of, incarnation).await.expect("known");
    ApplyTarget::apply(&tree, vec![group]).await.expect("applied");
    assert!(!page.is_unique(), "it is among the recent groups, which have a bound of their own");
    for at in 0..200 {
        tree.put("large", vec![b'x'; 40 + at]).await.expect("put");
    }
    assert!(page.is_unique(), "a small value holds the page that it came in");
    assert_eq!(tree.get("small").map(|found| found.value), Some("s".into()));
}
