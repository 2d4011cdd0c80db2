//! Claims about snapshots and opening by them: the same state as by a full replay, whatever happens on the way.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::rig::{
    Acknowledged, Picture, SNAPSHOTS, WAL, count, demand, foreign_pages, own, snapshots_on, without,
    write_both,
};
use crate::disk::{
    CrashImages, Disk, DiskFaults, DiskOperation, FaultyDisk, MemDisk, OpenMode, read_whole, write_atomically,
};
use crate::error::ErrorKind;
use crate::id::Lsn;
use crate::random::Random;
use crate::tree::tests::Site;
use crate::tree::{ApplyTarget, Tree};
use crate::wal::WalStorage;

/// A site that writes snapshots only when asked.
fn site(seed: u64) -> Site {
    let mut site = Site::new("a", seed);
    site.limits.snapshot_log_bytes = u64::MAX;
    // Many steps, slow enough for groups to be applied in between.
    site.limits.snapshot_chunk_bytes = 64;
    site.limits.snapshot_bytes_per_second = 32 * 1024;
    site
}

async fn put_many(tree: &Tree, range: std::ops::Range<u64>) {
    for at in range {
        tree.put(format!("key-{:03}", at % 100), format!("value-{at}").repeat(3)).await.expect("put");
    }
}

fn damage(disk: &MemDisk, name: &str) {
    let path = Path::new(SNAPSHOTS).join(name);
    let mut bytes = read_whole(disk, &path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    write_atomically(disk, &path, &bytes).expect("damaged");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_under_writes_and_the_log_above_it_give_what_the_whole_log_gives() {
    let mut fuzzy = 0;
    for seed in 0..60 {
        let (mut site, disk, random) = (site(seed), MemDisk::new(), Random::from_seed(seed));
        let (other, pages) = foreign_pages(seed, 40).await;
        let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
        let snapshots = async {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(random.below(60))).await;
                let taken = tree.snapshot().await.expect("written").snapshot;
                fuzzy += u64::from(taken.end > taken.covered);
            }
        };
        tokio::join!(snapshots, write_both(&tree, &other, pages, &random));
        let live = Picture::of(&tree);
        let marks = tree.progress().watermarks;
        let crashed = disk.crash(seed);
        let replayed = Picture::of(&site.open(Arc::new(without(&crashed, SNAPSHOTS))).await.expect("opens"));
        let reopened = site.open(Arc::new(crashed.clone())).await.expect("opens by the snapshot");
        let found = Picture::of(&reopened);
        found.must_be(&replayed, &format!("seed {seed}"));
        assert!(live.progress.frontier.covers(&found.progress.frontier), "seed {seed}");
        assert_eq!((&live.entries, &live.superseded), (&found.entries, &found.superseded), "seed {seed}");
        assert_eq!(reopened.last_snapshot().expect("two were written").number, 1);
        reopened.put("after", "it").await.expect("goes on behind everything");
        let next = |marks: &crate::causal::Watermarks| marks.origin(own()).map(|marks| marks.covered());
        assert_eq!(next(&reopened.progress().watermarks), next(&marks).map(|count| count + 1));
    }
    assert!(fuzzy > 60, "only {fuzzy} snapshots were written while something was applied");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_of_a_snapshot_loses_nothing() {
    for seed in 0..4 {
        let (mut site, disk, acknowledged) = (site(seed), MemDisk::new(), Acknowledged::default());
        let noted = acknowledged.clone();
        let images = Arc::new(CrashImages::new(&disk, move || noted.lock().clone()));
        let tree = site.open(images.clone()).await.expect("opens");
        count(&tree, "before", 30, &acknowledged).await;
        images.record(true);
        let three = async {
            for _ in 0..3 {
                tree.snapshot().await.expect("written");
            }
        };
        tokio::join!(three, count(&tree, "during", 25, &acknowledged));
        images.record(false);
        let images = images.take();
        assert!(images.len() > 80, "{} moments", images.len());
        let (mut by_snapshot, mut by_replay) = (0, 0);
        for (at, (image, acknowledged)) in images.into_iter().enumerate() {
            let context = format!("seed {seed}, moment {at}");
            let found = image.crash(seed * 1_000 + at as u64);
            let replayed =
                Picture::of(&site.open(Arc::new(without(&found, SNAPSHOTS))).await.expect("opens"));
            let tree =
                site.open(Arc::new(found.clone())).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            demand(&tree, &acknowledged, &context);
            Picture::of(&tree).must_be(&replayed, &context);
            let left = snapshots_on(&found);
            assert!(
                left.len() <= 2 && left.iter().all(|name| name.ends_with(".snap")),
                "{context}: {left:?}"
            );
            if tree.last_snapshot().is_some() { by_snapshot += 1 } else { by_replay += 1 }
        }
        assert!(
            by_snapshot > 20 && by_replay > 5,
            "{by_snapshot} by a snapshot, {by_replay} by replay alone"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_of_opening_loses_nothing() {
    let (mut site, disk, acknowledged) = (site(9), MemDisk::new(), Acknowledged::default());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    count(&tree, "k", 40, &acknowledged).await;
    tree.snapshot().await.expect("written");
    count(&tree, "l", 20, &acknowledged).await;
    tree.snapshot().await.expect("written");
    let wanted = acknowledged.lock().clone();
    let picture = Picture::of(&tree);
    // A third one whose writer died, and one too many: both are cleaned up while opening.
    let disk = disk.kill();
    let names = snapshots_on(&disk);
    let bytes = read_whole(&disk, &Path::new(SNAPSHOTS).join(&names[1])).expect("there");
    let half = Path::new(SNAPSHOTS).join("00000000000000000002.snap.tmp");
    write_atomically(&disk, &half, &bytes[..bytes.len() / 2]).expect("left behind");
    let images = Arc::new(CrashImages::new(&disk, || ()));
    images.record(true);
    site.open(images.clone()).await.expect("opens");
    let moments = images.take();
    assert!(!moments.is_empty());
    for (at, (image, ())) in moments.into_iter().enumerate() {
        let tree = site.open(Arc::new(image.crash(at as u64))).await.expect("opens");
        demand(&tree, &wanted, &format!("moment {at}"));
        assert_eq!(Picture::of(&tree).entries, picture.entries);
    }
    assert_eq!(snapshots_on(&disk), names);
}

#[tokio::test(start_paused = true)]
async fn two_are_kept_and_the_log_is_needed_from_where_the_older_one_ends() {
    let (mut site, disk) = (site(1), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    let mut covered = Vec::new();
    for round in 0..4_u64 {
        put_many(&tree, round * 10..round * 10 + 10).await;
        covered.push(tree.snapshot().await.expect("written").snapshot.covered);
        let wanted = if round == 0 { Lsn::ZERO } else { covered[covered.len() - 2] };
        assert_eq!(tree.checkpoint(), wanted, "after {} snapshots", round + 1);
    }
    let kept = ["00000000000000000002.snap", "00000000000000000003.snap"];
    assert_eq!(snapshots_on(&disk), kept);
    let reopened = site.open(Arc::new(disk.kill())).await.expect("opens");
    assert_eq!(reopened.checkpoint(), covered[2]);
    assert_eq!(reopened.last_snapshot().map(|last| last.covered), Some(covered[3]));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_snapshot_costs_time_and_nothing_else_and_goes_when_two_newer_ones_are_there() {
    let (mut site, disk) = (site(2), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    for round in 0..2_u64 {
        put_many(&tree, round * 200..round * 200 + 200).await;
        tree.snapshot().await.expect("written");
    }
    put_many(&tree, 400..450).await;
    let live = Picture::of(&tree);
    let disk = disk.kill();
    for (broken, usable) in [(1, Some(0)), (0, None)] {
        damage(&disk, &format!("{broken:020}.snap"));
        let tree = site.open(Arc::new(disk.clone())).await.expect("opens all the same");
        Picture::of(&tree).must_be(&live, &format!("snapshot {broken} is damaged"));
        assert_eq!(tree.last_snapshot().map(|last| last.number), usable);
        assert_eq!(tree.checkpoint(), Lsn::ZERO, "one alone frees nothing");
    }
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    assert_eq!(tree.snapshot().await.expect("written").snapshot.number, 2, "no number is used twice");
    assert_eq!(snapshots_on(&disk).len(), 3);
    tree.snapshot().await.expect("written");
    assert_eq!(snapshots_on(&disk), ["00000000000000000002.snap", "00000000000000000003.snap"]);
}

#[tokio::test(start_paused = true)]
async fn f04_a_snapshot_of_another_log_is_not_used_and_not_removed() {
    let (mut site, disk) = (site(3), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    put_many(&tree, 0..50).await;
    tree.snapshot().await.expect("written");
    let foreign = read_whole(&disk, &Path::new(SNAPSHOTS).join("00000000000000000000.snap")).expect("there");
    let anew = MemDisk::new();
    let tree = site.open(Arc::new(anew.clone())).await.expect("opens anew");
    put_many(&tree, 0..5).await;
    let live = Picture::of(&tree);
    anew.create_dir_all(Path::new(SNAPSHOTS)).expect("created");
    let path = Path::new(SNAPSHOTS).join("00000000000000000000.snap");
    write_atomically(&anew, &path, &foreign).expect("put there");
    let anew = anew.kill();
    let tree = site.open(Arc::new(anew.clone())).await.expect("opens without it");
    Picture::of(&tree).must_be(&live, "the other log's rows are not there");
    assert_eq!(tree.last_snapshot(), None);
    for _ in 0..3 {
        tree.snapshot().await.expect("written");
    }
    assert_eq!(snapshots_on(&anew).len(), 3, "two of its own, and the other one");
    assert_eq!(read_whole(&anew, &path).expect("still there"), foreign);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_ends_below_its_snapshot_is_refused_with_the_way_out() {
    let (mut site, disk) = (site(4), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    put_many(&tree, 0..30).await;
    tree.snapshot().await.expect("written");
    let copy = disk.copy();
    put_many(&tree, 30..60).await;
    tree.snapshot().await.expect("written");
    // The log as it was, the snapshots as they are.
    for name in snapshots_on(&disk) {
        let bytes = read_whole(&disk, &Path::new(SNAPSHOTS).join(&name)).expect("there");
        write_atomically(&copy, &Path::new(SNAPSHOTS).join(&name), &bytes).expect("put there");
    }
    let error = site.open(Arc::new(copy.clone())).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let said = error.to_string();
    assert!(said.contains("ends at 30") && said.contains("up to 60") && said.contains("away"), "{said}");
    copy.remove(&Path::new(SNAPSHOTS).join("00000000000000000001.snap")).expect("moved away");
    let tree = site.open(Arc::new(copy)).await.expect("goes on with what the log holds");
    assert_eq!(tree.size().log.next, Lsn::new(30));
}

#[tokio::test(start_paused = true)]
async fn snapshots_without_a_log_are_refused_and_not_opened_as_an_empty_tree() {
    let (mut site, disk) = (site(5), MemDisk::new());
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    put_many(&tree, 0..30).await;
    tree.snapshot().await.expect("written");
    for dir in [WAL.to_owned(), format!("{WAL}/MANIFEST")] {
        let gone = if dir == WAL { without(&disk, WAL) } else { disk.copy() };
        if dir != WAL {
            for name in
                gone.list(Path::new(WAL)).expect("listed").into_iter().filter(|name| name != "MANIFEST")
            {
                gone.remove(&Path::new(WAL).join(name)).expect("removed");
            }
        }
        let error = site.open(Arc::new(gone)).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("log of this tree is gone"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_leaves_the_one_before_and_no_file_and_stops_no_write() {
    let (mut site, disk, faults) = (site(6), MemDisk::new(), DiskFaults::from_seed(6));
    let faulty = FaultyDisk::over_memory(disk.clone(), faults.clone());
    let tree = site.open(Arc::new(faulty)).await.expect("opens");
    put_many(&tree, 0..100).await;
    let first = tree.snapshot().await.expect("written").snapshot;
    for operation in [DiskOperation::Write, DiskOperation::Sync, DiskOperation::Rename, DiskOperation::Open] {
        for nth in 1..4 {
            faults.fail_nth(operation, nth);
            let failed = tree.snapshot().await;
            faults.heal();
            if failed.is_ok() {
                continue;
            }
            let failed = failed.expect_err("failed");
            assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
            assert!(snapshots_on(&disk).iter().all(|name| name.ends_with(".snap")), "{operation:?} {nth}");
            assert!(tree.last_snapshot().is_some_and(|last| last.number >= first.number));
            put_many(&tree, 100..103).await;
        }
    }
    disk.set_quota(disk.used() + 500);
    let full = tree.snapshot().await.expect_err("no room");
    assert!(full.to_string().contains("make room"), "{full}");
    disk.set_quota(u64::MAX);
    tree.snapshot().await.expect("written when there is room");
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_written_as_the_log_grows_and_none_while_nothing_happens() {
    let (mut site, disk) = (Site::new("a", 7), MemDisk::new());
    site.limits.snapshot_log_bytes = 4 * 1024;
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    put_many(&tree, 0..400).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = tree.last_snapshot().expect("the log has grown");
    assert!(last.number >= 1 && tree.checkpoint() > Lsn::ZERO, "{last:?}");
    let behind = tree.0.storage.bytes_after(last.covered);
    assert!(behind <= (4 * 1024).max(last.bytes), "{behind} bytes of log above the last snapshot");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(tree.last_snapshot(), Some(last), "nothing happened");
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_writes_a_snapshot_only_if_a_replay_would_take_long() {
    let (mut site, disk) = (site(8), MemDisk::new());
    site.limits.snapshot_stop_records = 50;
    site.limits.snapshot_stop_bytes = u64::MAX;
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    put_many(&tree, 0..49).await;
    tree.snapshot_before_stop().await;
    assert_eq!(tree.last_snapshot(), None);
    put_many(&tree, 49..50).await;
    tree.drain(Duration::from_secs(1)).await;
    tree.snapshot_before_stop().await;
    let last = tree.last_snapshot().expect("written");
    assert_eq!((last.covered, last.end), (Lsn::new(50), Lsn::new(50)));
    tree.snapshot_before_stop().await;
    assert_eq!(tree.last_snapshot(), Some(last), "once is enough");
    assert!(disk.open(&tree.0.snapshots.path(last.number), OpenMode::Read).is_ok());
}

async fn trim_for_snapshots(tree: &Tree) {
    let before = tree.checkpoint();
    tree.0.storage.trim(before).await.expect("trimmed");
    let first = tree.size().log.first;
    assert!(first > Lsn::ZERO && first <= before, "{first} of {before}");
}

#[tokio::test(start_paused = true)]
async fn a_log_trimmed_for_its_snapshots_opens_by_either_and_with_neither_says_that_writes_are_lost() {
    let (mut site, disk, random) = (site(10), MemDisk::new(), Random::from_seed(10));
    let (other, pages) = foreign_pages(10, 40).await;
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    write_both(&tree, &other, pages, &random).await;
    for round in 0..2_u64 {
        put_many(&tree, round * 200..round * 200 + 200).await;
        tree.snapshot().await.expect("written");
    }
    put_many(&tree, 400..450).await;
    trim_for_snapshots(&tree).await;
    let live = Picture::of(&tree);
    let disk = disk.crash(3);
    for broken in [None, Some(1)] {
        if let Some(number) = broken {
            damage(&disk, &format!("{number:020}.snap"));
        }
        let opened = site.open(Arc::new(disk.copy())).await.expect("opens");
        let found = Picture::of(&opened);
        assert_eq!((found.digest, &found.entries, &found.ranges), (live.digest, &live.entries, &live.ranges));
        assert_eq!((found.next, &found.progress.watermarks), (live.next, &live.progress.watermarks));
        assert!(
            found.observed.covers(&live.observed) && live.progress.frontier.covers(&found.progress.frontier)
        );
        opened.put("k00", "goes on").await.expect("put");
    }
    damage(&disk, "00000000000000000000.snap");
    let error = site.open(Arc::new(disk)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("writes are lost here") && error.to_string().contains("copy"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_for_once_while_opening_is_no_damage_and_costs_no_snapshot() {
    let (mut site, disk, faults) = (site(11), MemDisk::new(), DiskFaults::from_seed(11));
    let faulty = |disk: &MemDisk| Arc::new(FaultyDisk::over_memory(disk.clone(), faults.clone()));
    let tree = site.open(faulty(&disk)).await.expect("opens");
    for round in 0..3_u64 {
        put_many(&tree, round * 200..round * 200 + 200).await;
        // The oldest cannot be removed when its time has come.
        faults.fail_nth(DiskOperation::Remove, 1);
        tree.snapshot().await.expect("written");
    }
    faults.heal();
    trim_for_snapshots(&tree).await;
    let live = Picture::of(&tree);
    let disk = disk.kill();
    assert_eq!(snapshots_on(&disk).len(), 3, "one too many");
    let mut refused = 0;
    for (operation, nth) in (1..40).flat_map(|nth| [(DiskOperation::Open, nth), (DiskOperation::Read, nth)]) {
        let (context, disk) = (format!("{operation:?} {nth}"), disk.copy());
        faults.fail_nth(operation, nth);
        if let Err(error) = site.open(faulty(&disk)).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{context}: {error}");
            refused += 1;
        }
        faults.heal();
        drop(site.open(Arc::new(disk.clone())).await.expect("opens when it can be read"));
        assert_eq!(
            snapshots_on(&disk),
            ["00000000000000000001.snap", "00000000000000000002.snap"],
            "{context}"
        );
        damage(&disk, "00000000000000000002.snap");
        faults.fail_nth(operation, nth);
        if let Err(error) = site.open(faulty(&disk)).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{context}, one damaged: {error}");
            refused += 1;
        }
        faults.heal();
        let opened = site.open(Arc::new(disk)).await.expect("opens by the one before");
        assert_eq!(Picture::of(&opened).entries, live.entries, "{context}");
    }
    assert!(refused > 10, "only {refused} openings met the fault");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_of_snapshots_and_trims_in_turn_loses_nothing() {
    for seed in 20..23 {
        let (mut site, disk, acknowledged) = (site(seed), MemDisk::new(), Acknowledged::default());
        let noted = acknowledged.clone();
        let images = Arc::new(CrashImages::new(&disk, move || noted.lock().clone()));
        let tree = site.open(images.clone()).await.expect("opens");
        count(&tree, "before", 40, &acknowledged).await;
        tree.snapshot().await.expect("written");
        images.record(true);
        let turns = async {
            for _ in 0..3 {
                tree.snapshot().await.expect("written");
                trim_for_snapshots(&tree).await;
            }
        };
        tokio::join!(turns, count(&tree, "during", 40, &acknowledged));
        images.record(false);
        for (at, (image, acknowledged)) in images.take().into_iter().enumerate() {
            let context = format!("seed {seed}, moment {at}");
            let found = image.crash(seed * 1_000 + at as u64);
            let tree =
                site.open(Arc::new(found.clone())).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            demand(&tree, &acknowledged, &context);
            // A copy that was trimmed cannot be replayed from its beginning, but what opened goes on and opens again.
            tree.put("after", "it").await.expect("put");
            let picture = Picture::of(&tree);
            let again = site
                .open(Arc::new(found.crash(1)))
                .await
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(Picture::of(&again).entries, picture.entries, "{context}");
        }
    }
}
