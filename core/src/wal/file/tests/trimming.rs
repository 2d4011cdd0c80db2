//! Footers, trims and recycled files, one claim each.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::rig::{DIR, Rig};
use crate::disk::{Disk, DiskFaults, FaultyDisk, MemDisk, OpenMode};
use crate::error::StorageErrorKind;
use crate::id::Lsn;
use crate::wal::WalStorage;

fn open(disk: &MemDisk) -> Rig {
    Rig::open_growing(Arc::new(disk.clone())).expect("opens")
}

fn filled(disk: &MemDisk, groups: usize) -> Rig {
    let mut rig = open(disk);
    for _ in 0..groups {
        rig.append(2, 150).expect("appends");
    }
    rig
}

fn files(disk: &dyn Disk, ending: &str) -> Vec<String> {
    let names = disk.list(Path::new(DIR)).expect("listed");
    names.into_iter().filter(|name| name.ends_with(ending)).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn overwrite(disk: &dyn Disk, name: &str, at: u64, bytes: &[u8]) {
    let file = disk.open(&path(name), OpenMode::Write).expect("opens");
    file.write_all_at(&mut [IoSlice::new(bytes)], at).expect("written");
    file.sync_data().expect("synced");
}

#[test]
fn sealed_segments_below_the_position_are_opened_by_their_footers_alone() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 20);
    let first = files(&disk, ".seg").remove(0);
    overwrite(&disk, &first, 200, &[0xEE]);
    let opened = Rig::open_from(Arc::new(disk.copy()), rig.next_lsn).expect("nobody reads its groups");
    assert_eq!((opened.next_lsn, opened.next_group), (rig.next_lsn, rig.next_group));
    assert_eq!(opened.storage.bounds(), rig.storage.bounds());
    let error = Rig::open(Arc::new(disk)).err().expect("read from the beginning, the damage shows");
    assert_eq!(error.kind(), StorageErrorKind::Corrupt);
}

#[test]
fn a_footer_that_is_missing_or_damaged_costs_a_reading_and_refuses_nothing() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 20);
    for name in files(&disk, ".seg") {
        let file = disk.open(&path(&name), OpenMode::Read).expect("opens");
        let mut bytes = vec![0; usize::try_from(file.len().expect("known")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        let Some(footer) = memchr::memmem::find(&bytes, b"TWE1") else { continue };
        for (copy, at) in [(disk.copy(), footer + 30), (disk.copy(), footer)] {
            overwrite(&copy, &name, at as u64, &[0xEE; 8]);
            let opened = Rig::open_from(Arc::new(copy), rig.next_lsn).expect("opens");
            assert_eq!(opened.next_lsn, rig.next_lsn);
            assert_eq!(opened.storage.bounds(), rig.storage.bounds());
        }
        let copy = disk.copy();
        copy.open(&path(&name), OpenMode::Write).expect("opens").set_len(footer as u64).expect("cut");
        Rig::open_from(Arc::new(copy), rig.next_lsn).expect("opens without a footer");
    }
    assert!(files(&disk, ".seg").len() > 3);
}

#[tokio::test]
async fn what_is_trimmed_reads_as_trimmed_and_its_files_are_written_over() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 40);
    let before = rig.storage.bounds();
    rig.storage.trim(Lsn::new(60)).await.expect("trims");
    let after = rig.storage.bounds();
    assert!(after.first > Lsn::ZERO && after.first <= Lsn::new(60), "{after:?}");
    assert!(after.retained_bytes < before.retained_bytes && after.physical_bytes < before.physical_bytes);
    let error = rig.storage.read(Lsn::ZERO, 100).await.expect_err("gone");
    assert_eq!(error.kind(), StorageErrorKind::Trimmed);
    let spares = files(&disk, ".spare");
    assert_eq!(spares.len(), 4, "a bounded number is kept");
    for _ in 0..8 {
        rig.append(2, 150).expect("appends");
    }
    assert!(files(&disk, ".spare").len() < 4, "and used");
    assert!(rig.storage.recycles());
}

#[tokio::test]
async fn f27_what_a_former_segment_left_behind_the_end_is_neither_a_group_nor_damage() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 40);
    rig.storage.trim(rig.next_lsn).await.expect("trims");
    while !rig.storage.recycles() {
        rig.append(1, 20).expect("appends");
    }
    let (first, next) = rig.append(1, 20).expect("appends");
    let active = files(&disk, ".seg").pop().expect("there is one");
    let all = rig.read_all(rig.storage.bounds().first).await.expect("read");
    let copy = disk.copy();
    let opened = open(&copy);
    assert_eq!((opened.next_lsn, opened.next_group), (rig.next_lsn, rig.next_group));
    assert_eq!(opened.read_all(opened.storage.bounds().first).await.expect("read"), all);
    // The last group of the recycled file is torn: cut. The one before is damaged: refused.
    let end = 80 + all.iter().rev().take(2).map(|group| group.stored_bytes()).sum::<u64>();
    let last = all.last().expect("groups").stored_bytes();
    let torn = disk.copy();
    overwrite(&torn, &active, end - last / 2, &[0xEE]);
    assert_eq!(open(&torn).next_lsn, first);
    overwrite(&disk, &active, end - last - 3, &[0xEE]);
    let error = Rig::open(Arc::new(disk)).err().expect("refused");
    assert_eq!(error.kind(), StorageErrorKind::Corrupt, "{error}, with {first} to {next} behind it");
}

#[tokio::test]
async fn f28_a_hole_is_not_taken_for_a_trim_nor_a_trim_for_a_hole() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 40);
    rig.storage.trim(Lsn::new(30)).await.expect("trims");
    assert_eq!(open(&disk.copy()).storage.bounds().first, rig.storage.bounds().first, "a trim is no hole");
    let segments = files(&disk, ".seg");
    for missing in [0, 1, segments.len() - 2] {
        let copy = disk.copy();
        copy.remove(&path(&segments[missing])).expect("removed");
        let error = Rig::open(Arc::new(copy)).err().expect("a hole is no trim");
        assert_eq!(error.kind(), StorageErrorKind::Corrupt, "{error}");
    }
    let copy = disk.copy();
    copy.remove(&path("TRIM")).expect("removed");
    let error = Rig::open(Arc::new(copy)).err().expect("without its trim point it is a hole");
    assert_eq!(error.kind(), StorageErrorKind::Corrupt, "{error}");
    for name in &segments {
        disk.remove(&path(name)).expect("removed");
    }
    let error = Rig::open(Arc::new(disk)).err().expect("everything is missing");
    assert_eq!(error.kind(), StorageErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn f28_positions_and_numbers_go_on_after_everything_was_trimmed() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 20);
    // The tail goes on in an empty segment, so that every record can go.
    rig.reconcile().expect("another segment");
    rig.storage.trim(rig.next_lsn).await.expect("trims");
    assert_eq!((rig.storage.bounds().records, rig.storage.bounds().first), (0, rig.next_lsn));
    for disk in [disk.copy(), disk.crash(5)] {
        let mut opened = Rig::open(Arc::new(disk)).expect("opens");
        assert_eq!((opened.next_lsn, opened.next_group), (rig.next_lsn, rig.next_group));
        assert_eq!(opened.storage.bounds().first, rig.next_lsn);
        assert!(opened.shown.is_empty());
        opened.offsets = rig.offsets;
        let (first, _) = opened.append(1, 10).expect("appends");
        assert_eq!(first, rig.next_lsn);
    }
    rig.append(1, 10).expect_err("the former process has crashed");
}

#[tokio::test]
async fn f28_a_trim_that_a_crash_cut_short_is_finished_when_the_log_is_opened() {
    for seed in 0..200 {
        let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(seed));
        let mut rig =
            Rig::open(Arc::new(FaultyDisk::new(Arc::new(disk.clone()), faults.clone()))).expect("opens");
        for _ in 0..30 {
            rig.append(2, 150).expect("appends");
        }
        // Nothing but the trim point is done.
        faults.fail_all(crate::disk::DiskOperation::Remove);
        let whole = files(&disk, ".seg").len();
        rig.storage.trim(Lsn::new(45)).await.expect("trims");
        let first = rig.storage.bounds().first;
        let disk = disk.crash(seed);
        let opened = open(&disk);
        assert_eq!(opened.storage.bounds().first, first);
        assert!(files(&disk, ".seg").len() < whole - 3, "seed {seed}");
    }
}

#[tokio::test]
async fn f25_a_file_that_a_write_may_still_land_in_is_never_used_again() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 7);
    let active = files(&disk, ".seg").pop().expect("there is one");
    let hanging = disk.open(&path(&active), OpenMode::Write).expect("opens");
    rig.reconcile().expect("goes on in another segment");
    for _ in 0..20 {
        rig.append(2, 150).expect("appends");
    }
    rig.storage.trim(rig.next_lsn).await.expect("trims");
    for _ in 0..20 {
        rig.append(2, 150).expect("appends");
    }
    hanging.write_all_at(&mut [IoSlice::new(&[0xEE; 900])], 100).expect("lands late");
    let all = rig.read_all(rig.storage.bounds().first).await.expect("nothing of the log was hit");
    assert_eq!(all.last().expect("groups").next_lsn(), rig.next_lsn);
    assert_eq!(open(&disk.kill()).next_lsn, rig.next_lsn);
}

#[test]
fn f29_files_that_no_segment_names_are_reclaimed_whatever_is_retained() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 20);
    let next = files(&disk, ".seg").len() as u64 + 1;
    for (name, bytes) in [(format!("{next:020}.seg"), 3_000), ("00000000000000000900.spare".into(), 2_000)] {
        let file = disk.open(&path(&name), OpenMode::CreateNew).expect("created");
        file.set_len(bytes).expect("grown");
    }
    for at in 0..6 {
        let name = format!("{:020}.spare", 901 + at);
        disk.open(&path(&name), OpenMode::CreateNew).expect("created").set_len(2_000).expect("grown");
    }
    let opened = open(&disk);
    assert_eq!(opened.storage.bounds().first, Lsn::ZERO, "nothing is trimmed");
    assert_eq!(files(&disk, ".seg").len() as u64, next - 1, "an unfinished segment is gone");
    assert_eq!(files(&disk, ".spare").len(), 4, "no more spares than are used");
    let beside = 4 * 2_000;
    assert_eq!(opened.storage.bounds().physical_bytes, rig.storage.bounds().physical_bytes + beside);
}

#[tokio::test]
async fn f30_a_full_disk_still_takes_what_fits_into_recycled_segments() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 40);
    rig.storage.trim(rig.next_lsn).await.expect("trims");
    disk.set_quota(disk.used());
    let first = rig.next_lsn;
    for _ in 0..3 {
        while rig.append(1, 100).is_ok() {}
        rig.reconcile().unwrap_or_default();
    }
    assert!(rig.storage.bounds().next > first.advanced(10), "written over, not grown");
    rig.storage.trim(rig.storage.bounds().next).await.unwrap_or_default();
    disk.set_quota(u64::MAX);
    rig.reconcile().expect("room is back");
    rig.append(1, 100).expect("the log works again");
}
