//! Filling ahead, one claim each.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::rig::{DIR, Rig, limits};
use crate::disk::{DirLock, Disk, DiskFaults, DiskFile, DiskOperation, FaultyDisk, MemDisk, OpenMode};
use crate::error::StorageErrorKind;
use crate::id::Lsn;
use crate::wal::WalStorage;
use crate::wal::file::{FileStorage, LogFiles};

fn files(disk: &dyn Disk, ending: &str) -> Vec<String> {
    let names = disk.list(Path::new(DIR)).expect("listed");
    names.into_iter().filter(|name| name.ends_with(ending)).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn length(disk: &dyn Disk, name: &str) -> u64 {
    disk.open(&path(name), OpenMode::Read).and_then(|file| file.len()).expect("there")
}

fn active(disk: &dyn Disk) -> String {
    files(disk, ".seg").pop().expect("a segment")
}

/// A log whose last segment was filled ahead, with a few groups in it and room behind them.
fn in_a_filled_segment(disk: &MemDisk) -> Rig {
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    let large = limits().segment_bytes_max;
    while length(disk, &active(disk)) < large || files(disk, ".seg").len() < 5 {
        rig.append(1, 100).expect("appends");
    }
    for _ in 0..3 {
        rig.append(1, 100).expect("appends");
    }
    assert_eq!(length(disk, &active(disk)), large, "it is written over, not grown");
    rig
}

#[test]
fn a_log_that_grows_steadily_finds_its_segments_filled_already() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    let (mut filled, mut grown, mut last) = (0, 0, active(&disk));
    for _ in 0..400 {
        rig.append(1, 60).expect("appends");
        let now = active(&disk);
        if now != last {
            let room = length(&disk, &now) >= limits().segment_bytes_max;
            if room {
                filled += 1
            } else {
                grown += 1
            }
            last = now;
        }
        assert!(files(&disk, ".filling").len() + files(&disk, ".spare").len() <= 1, "one file ahead");
    }
    assert!(filled > 20 && grown <= 1, "{filled} filled, {grown} grown");
}

#[test]
fn an_idle_log_and_one_with_files_to_use_again_fill_nothing() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    rig.append(1, 10).expect("appends");
    let used = disk.used();
    drop(Rig::open(Arc::new(disk.clone())).expect("opens"));
    assert_eq!(disk.used(), used, "nothing was written ahead");
    let spare = disk.open(&path("00000000000000000900.spare"), OpenMode::CreateNew).expect("created");
    spare.set_len(2_048).expect("grown");
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    while active(&disk) == "00000000000000000001.seg" {
        assert!(files(&disk, ".filling").is_empty());
        rig.append(1, 60).expect("appends");
    }
    assert!(rig.storage.recycles());
}

#[test]
fn f27_room_that_was_filled_is_neither_a_torn_tail_nor_damage_and_stays() {
    let disk = MemDisk::new();
    let rig = in_a_filled_segment(&disk);
    let (name, before) = (active(&disk), length(&disk, &active(&disk)));
    let log = LogFiles::open(Arc::new(disk.clone()), Path::new(DIR)).expect("a log");
    let checkup = log.check(&mut |_, _| {}).expect("reads");
    assert_eq!((checkup.damage, checkup.tail_bytes), (None, 0));
    for disk in [disk.copy(), disk.crash(3)] {
        let opened = Rig::open(Arc::new(disk.clone())).expect("opens");
        assert_eq!((opened.next_lsn, opened.next_group), (rig.next_lsn, rig.next_group));
        assert_eq!(length(&disk, &name), before, "the room is there for the next group");
    }
}

/// Tears the last group of a filled segment at every byte, and damages the one before it.
#[test]
fn f27_in_a_filled_segment_a_torn_group_is_cut_and_damage_before_a_later_group_is_refused() {
    let disk = MemDisk::new();
    let mut rig = in_a_filled_segment(&disk);
    let name = active(&disk);
    let ends: Vec<u64> = (0..2)
        .map(|_| {
            rig.append(1, 30).expect("appends");
            rig.storage.active_end()
        })
        .collect();
    let (first, before) = (rig.next_lsn, ends[0]);
    for at in before..ends[1] {
        let torn = disk.copy();
        let file = torn.open(&path(&name), OpenMode::Write).expect("opens");
        let rest = vec![0; usize::try_from(ends[1] - at).expect("small")];
        file.write_all_at(&mut [IoSlice::new(&rest)], at).expect("written");
        let mut opened = Rig::open(Arc::new(torn.clone())).expect("a torn tail is cut");
        assert_eq!(opened.next_lsn.next(), first, "torn at {at}");
        assert_eq!(length(&torn, &name), length(&disk, &name), "the room stays");
        opened.offsets = rig.offsets;
        opened.append(1, 10).expect("appends");
        let again = Rig::open(Arc::new(torn)).expect("opens");
        assert_eq!(again.next_lsn, opened.next_lsn);
    }
    for at in [before - 20, before - 60] {
        let damaged = disk.copy();
        let file = damaged.open(&path(&name), OpenMode::Write).expect("opens");
        file.write_all_at(&mut [IoSlice::new(&[0; 8])], at).expect("written");
        let error = Rig::open(Arc::new(damaged)).err().expect("a later group stands behind it");
        assert_eq!(error.kind(), StorageErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn f30_a_disk_that_is_full_for_the_filler_is_not_full_for_a_commit() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    rig.append(1, 10).expect("appends");
    // Room for what is written, and not for as much again.
    disk.set_quota(disk.used() + 6_000);
    let mut written = 0;
    while rig.append(1, 60).is_ok() {
        written += rig.storage.bounds().retained_bytes - written;
    }
    assert!(written > 4_500, "nothing that was filled stood in the way of {written} bytes");
    disk.set_quota(u64::MAX);
    rig.reconcile().expect("room is back");
    for _ in 0..60 {
        rig.append(1, 60).expect("the log works again");
    }
    assert!(length(&disk, &active(&disk)) >= limits().segment_bytes_max, "and is filled ahead again");
}

#[test]
fn a_fill_that_fails_fails_nothing_else_and_leaves_no_file() {
    for operation in [DiskOperation::Write, DiskOperation::Sync, DiskOperation::Open, DiskOperation::Rename] {
        let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(1));
        let faulty = FaultyDisk::over_memory(disk.clone(), faults.clone());
        let mut rig = Rig::open(Arc::new(faulty)).expect("opens");
        // The groups before the first slice are counted, so that the fault hits the filler.
        let mut nth = 0;
        let copy = disk.copy();
        let mut probe = Rig::open(Arc::new(copy.clone())).expect("opens");
        while files(&copy, ".filling").is_empty() {
            probe.append(1, 60).expect("appends");
            nth += 1;
        }
        let hit = match operation {
            DiskOperation::Write | DiskOperation::Sync => nth + 1,
            _ => 1,
        };
        faults.fail_nth(operation, hit);
        for _ in 0..nth {
            rig.append(1, 60).expect("no append notices");
        }
        if operation != DiskOperation::Rename {
            assert!(files(&disk, ".filling").is_empty(), "{operation:?}");
        }
        for _ in 0..60 {
            rig.append(1, 60).expect("no append notices");
        }
        assert!(length(&disk, &active(&disk)) >= limits().segment_bytes_max, "filled again later");
    }
}

#[test]
fn what_a_crash_leaves_of_a_fill_is_removed_and_a_whole_one_is_used() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    while files(&disk, ".filling").is_empty() {
        rig.append(1, 60).expect("appends");
    }
    let killed = disk.kill();
    drop(Rig::open(Arc::new(killed.clone())).expect("opens"));
    assert!(files(&killed, ".filling").is_empty(), "its writer may write on");
    let mut rig = Rig::open(Arc::new(killed.clone())).expect("opens");
    while files(&killed, ".filled.spare").is_empty() {
        rig.append(1, 20).expect("appends");
    }
    let killed = killed.kill();
    let mut rig = Rig::open(Arc::new(killed.clone())).expect("opens");
    let (first, bytes) = (active(&killed), rig.storage.bounds().physical_bytes);
    assert!(bytes >= limits().segment_bytes_max, "its room is counted");
    while active(&killed) == first {
        rig.append(1, 60).expect("appends");
    }
    assert!(files(&killed, ".filled.spare").is_empty());
    assert!(!rig.storage.recycles(), "nothing of a former life lies in it");
}

async fn ends(rig: &Rig) {
    for _ in 0..1_000 {
        if !rig.storage.is_filling() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the filler goes on though nothing is appended");
}

#[tokio::test]
async fn a_filler_beside_commits_never_hits_a_group_and_ends_when_nothing_is_due() {
    let disk = MemDisk::new();
    let mut rig = Rig::open_threaded(Arc::new(disk.clone())).expect("opens");
    let mut ready = 0;
    for at in 0..600 {
        rig.append(1, 40 + at % 90).expect("appends");
        if at % 3 == 0 {
            // The filler's task runs beside this one, its slices on another thread.
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        ready += u64::from(rig.storage.has_room());
    }
    ends(&rig).await;
    assert!(ready > 200, "room was there for {ready} of 600 groups");
    let groups = rig.read_all(rig.storage.bounds().first).await.expect("readable");
    for disk in [disk.crash(1), disk.crash(2)] {
        let opened = Rig::open(Arc::new(disk)).expect("opens");
        assert_eq!(opened.read_all(opened.storage.bounds().first).await.expect("readable"), groups);
    }
}

#[tokio::test]
async fn a_filler_that_hangs_holds_up_no_commit_and_its_file_is_not_used() {
    let (disk, filler) = (MemDisk::new(), DiskFaults::from_seed(1));
    let split =
        Arc::new(Split { log: disk.clone(), filler: FaultyDisk::over_memory(disk.clone(), filler.clone()) });
    let mut rig = Rig::open_threaded(split).expect("opens");
    filler.hang();
    let mut last = 0;
    for _ in 0..200 {
        rig.append(1, 60).expect("nobody waits for it");
        tokio::time::sleep(Duration::from_micros(100)).await;
        last = files(&disk, ".seg").len();
    }
    assert!(last > 5 && rig.storage.is_filling(), "{last} segments were begun beside it");
    let groups = rig.read_all(rig.storage.bounds().first).await.expect("readable");
    filler.heal();
    ends(&rig).await;
    assert_eq!(rig.read_all(rig.storage.bounds().first).await.expect("readable"), groups);
    let opened = Rig::open(Arc::new(disk.kill())).expect("opens");
    assert_eq!(opened.next_lsn, rig.next_lsn);
}

/// Its slice would land on groups: zeros over what was acknowledged.
#[tokio::test]
async fn f25_a_half_full_file_that_a_filler_hangs_in_is_not_taken_for_a_segment() {
    let (disk, filler) = (MemDisk::new(), DiskFaults::from_seed(1));
    let split =
        Arc::new(Split { log: disk.clone(), filler: FaultyDisk::over_memory(disk.clone(), filler.clone()) });
    let mut rig = Rig::open_threaded(split).expect("opens");
    let half = limits().segment_bytes_max / 2;
    let filled = |disk: &MemDisk| files(disk, ".filling").first().map_or(0, |name| length(disk, name));
    // The first segment was not filled ahead: nothing hangs in its own file.
    while filled(&disk) < half {
        rig.append(1, 20).expect("appends");
        ends(&rig).await;
    }
    let (name, writes) = (files(&disk, ".filling"), filler.count(DiskOperation::Write));
    filler.hang();
    let _released = Released(filler.clone());
    while !rig.storage.is_filling() {
        rig.append(1, 20).expect("appends");
    }
    while filler.count(DiskOperation::Write) == writes {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(files(&disk, ".seg").len(), 1);
    while files(&disk, ".seg").len() < 4 {
        rig.append(1, 60).expect("nobody waits for it");
    }
    assert_eq!(files(&disk, ".filling"), name, "somebody is at work in it");
    let groups = rig.read_all(rig.storage.bounds().first).await.expect("readable");
    filler.heal();
    ends(&rig).await;
    assert_eq!(rig.read_all(rig.storage.bounds().first).await.expect("readable"), groups);
    let opened = Rig::open(Arc::new(disk.kill())).expect("opens");
    assert_eq!(opened.read_all(opened.storage.bounds().first).await.expect("readable"), groups);
}

#[test]
fn a_file_that_is_half_full_is_taken_as_far_as_it_is() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    let (whole, half) = (limits().segment_bytes_max, limits().segment_bytes_max / 2);
    let filled = |disk: &MemDisk| files(disk, ".filling").first().map_or(0, |name| length(disk, name));
    while rig.storage.bounds().retained_bytes < 8_000 || filled(&disk) < half {
        rig.append(1, 20).expect("appends");
    }
    let (bytes, before, name) = (filled(&disk), active(&disk), files(&disk, ".filling"));
    assert!((half..whole).contains(&bytes));
    // The next group has no room any more.
    rig.append(8, 200).expect("appends");
    assert!(active(&disk) != before && files(&disk, ".filling") != name);
    assert!(files(&disk, ".spare").is_empty(), "its file is the new segment's, and nobody fills on");
    let (again, next) = (Rig::open(Arc::new(disk.kill())).expect("opens"), rig.next_lsn);
    assert_eq!(again.next_lsn, next);
}

/// What was acknowledged must not lie in a file that has lost its name to another.
#[tokio::test]
async fn f25_a_file_filled_while_another_becomes_a_segment_does_not_take_its_name() {
    let (disk, log) = (MemDisk::new(), Arc::new(OnceLock::new()));
    let busy = Arc::new(Busy { disk: disk.clone(), log: log.clone(), met: AtomicU64::new(0) });
    let mut rig = Rig::open(busy.clone()).expect("opens");
    log.set(Arc::downgrade(&rig.storage)).expect("once");
    for _ in 0..300 {
        rig.append(1, 60).expect("a disk without faults");
    }
    assert!(busy.met.load(Ordering::Relaxed) > 10, "files were filled in just these moments");
    let (next, groups) = (rig.next_lsn, rig.read_all(Lsn::ZERO).await.expect("reads"));
    drop(rig);
    let rig = Rig::open(Arc::new(disk)).expect("opens");
    assert_eq!(rig.next_lsn, next);
    assert_eq!(rig.read_all(Lsn::ZERO).await.expect("reads").len(), groups.len());
}

/// A disk on which the filler is at work whenever a file that was filled becomes a segment.
struct Busy {
    disk: MemDisk,
    log: Arc<OnceLock<Weak<FileStorage>>>,
    met: AtomicU64,
}

impl Disk for Busy {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.to_string_lossy().ends_with(".seg") {
            let log = self.log.get().and_then(Weak::upgrade);
            while log.as_ref().is_some_and(|log| log.fill_slice()) {
                self.met.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        self.disk.lock(path)
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.disk.available(dir)
    }
}

/// Lets go of what hangs when a test ends, however it does: its threads are waited for.
struct Released(DiskFaults);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.heal();
    }
}

/// A disk on which files that are being filled fail alone.
struct Split {
    log: MemDisk,
    filler: FaultyDisk,
}

impl Split {
    fn of(&self, path: &Path) -> &dyn Disk {
        if path.to_string_lossy().ends_with(".filling") { &self.filler } else { &self.log }
    }
}

impl Disk for Split {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.log.create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.of(path).open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.log.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.log.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.log.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.log.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.log.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        self.log.lock(path)
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.log.available(dir)
    }
}
