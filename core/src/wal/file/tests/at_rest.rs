//! Logs at rest: what a look says of them, and what a cut leaves.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::rig::{DIR, Rig};
use crate::disk::{DirLock, Disk, DiskFile, MemDisk, OpenMode, read_whole};
use crate::error::StorageErrorKind;
use crate::wal::WalStorage;
use crate::wal::file::{Checkup, LogFiles};

fn filled(groups: usize) -> (MemDisk, Rig) {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    for _ in 0..groups {
        rig.append(2, 150).expect("appends");
    }
    (disk, rig)
}

fn at_rest(disk: &MemDisk) -> LogFiles {
    LogFiles::open(Arc::new(disk.clone()), Path::new(DIR)).expect("a log")
}

fn check(disk: &MemDisk) -> Checkup {
    let (mut last, log) = ((0, 0), at_rest(disk));
    let checkup = log.check(&mut |done, total| last = (done, total)).expect("files can be read");
    assert!(last.0 <= last.1, "{last:?}");
    checkup
}

fn segments(disk: &MemDisk) -> Vec<String> {
    let names = disk.list(Path::new(DIR)).expect("listed");
    names.into_iter().filter(|name| name.ends_with(".seg")).collect()
}

fn flip(disk: &MemDisk, name: &str, at: u64) {
    let file = disk.open(&Path::new(DIR).join(name), OpenMode::Write).expect("opens");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("read");
    file.write_all_at(&mut [IoSlice::new(&[byte[0] ^ 1])], at).expect("written");
    file.sync_data().expect("synced");
}

#[test]
fn a_log_that_is_whole_is_found_whole_record_by_record() {
    let (disk, rig) = filled(30);
    let (checkup, bounds) = (check(&disk), rig.storage.bounds());
    assert_eq!(checkup.damage, None);
    assert_eq!((checkup.records(), checkup.bytes()), (bounds.records, bounds.retained_bytes));
    assert_eq!(checkup.segments.first().map(|first| first.first_lsn), Some(bounds.first));
    assert_eq!(checkup.segments.last().map(|last| last.next_lsn), Some(bounds.next));
    assert!(checkup.segments.iter().rev().skip(1).all(|segment| segment.complete));
}

#[tokio::test]
async fn a_trimmed_log_with_used_files_is_whole_too() {
    let (disk, mut rig) = filled(30);
    rig.storage.trim(rig.next_lsn).await.expect("trims");
    for _ in 0..30 {
        rig.append(2, 150).expect("appends");
    }
    let (checkup, bounds) = (check(&disk), rig.storage.bounds());
    assert_eq!(checkup.damage, None);
    assert_eq!(checkup.records(), bounds.records);
    assert!(checkup.segments.iter().any(|segment| segment.recycled), "a file was used again");
    assert_eq!(at_rest(&disk).trimmed_to(), Some(bounds.first));
}

#[test]
fn a_look_at_a_log_opens_nothing_for_writing_and_changes_no_byte() {
    let (disk, _) = filled(12);
    let bytes = |disk: &MemDisk| -> Vec<Vec<u8>> {
        let names = disk.list(Path::new(DIR)).expect("listed");
        names.iter().map(|name| read_whole(disk, &Path::new(DIR).join(name)).expect("read")).collect()
    };
    let before = bytes(&disk);
    let watched = ReadOnly(disk.clone());
    let log = LogFiles::open(Arc::new(watched), Path::new(DIR)).expect("a log");
    assert_eq!(log.check(&mut |_, _| {}).expect("files can be read").damage, None);
    assert_eq!(bytes(&disk), before);
}

/// A disk that nobody may write to.
struct ReadOnly(MemDisk);

impl Disk for ReadOnly {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        panic!("creates a directory")
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        assert_eq!(mode, OpenMode::Read, "{}", path.display());
        self.0.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        panic!("renames")
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        panic!("removes")
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        panic!("syncs")
    }

    fn lock(&self, _: &Path) -> io::Result<DirLock> {
        panic!("locks")
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.0.available(dir)
    }
}

#[test]
fn what_a_crash_left_of_a_group_is_no_damage() {
    let (disk, rig) = filled(9);
    let last = segments(&disk).pop().expect("a segment");
    let file = disk.open(&Path::new(DIR).join(&last), OpenMode::Write).expect("opens");
    file.write_all_at(&mut [IoSlice::new(b"TWF1 and no more")], rig.storage.active_end()).expect("written");
    let checkup = check(&disk);
    assert_eq!((checkup.damage, checkup.tail_bytes), (None, 16));
    assert_eq!(checkup.segments.last().map(|last| last.next_lsn), Some(rig.next_lsn));
}

/// Damages each segment in turn, at its head and in the middle: everything before reads, the cut leaves just that, and
/// the log opens and takes groups again.
#[test]
fn f27_a_cut_leaves_what_reads_before_the_first_damage_and_nothing_else() {
    let (whole, rig) = filled(30);
    let names = segments(&whole);
    assert!(names.len() > 3, "{names:?}");
    for (name, at) in names.iter().skip(1).flat_map(|name| [(name, 9), (name, 300)]) {
        let disk = whole.copy();
        flip(&disk, name, at);
        let last_header = at == 9 && name == names.last().expect("a last");
        let checkup = check(&disk);
        let damage = checkup.damage.clone().unwrap_or_else(|| panic!("{name} at {at} is damaged"));
        assert!(damage.file.ends_with(name) && damage.end < rig.next_lsn, "{damage:?}");
        assert_eq!(damage.end.get(), checkup.records(), "everything before it reads");
        let behind = rig.next_lsn.get() - damage.end.get();
        assert!(damage.lost.records <= behind && damage.lost.records + 4 >= behind, "{damage:?} of {behind}");
        assert!(last_header || Rig::open(Arc::new(disk.copy())).is_err(), "opening refuses it");
        let aside = at_rest(&disk).cut(&damage).expect("cut");
        assert!(
            !aside.is_empty() && aside.iter().all(|path| disk.exists(path).expect("known")),
            "kept beside"
        );
        assert_eq!(check(&disk).damage, None);
        let mut again = Rig::open(Arc::new(disk)).expect("what is left opens");
        assert_eq!(again.next_lsn, damage.end);
        again.append(1, 10).expect("and takes groups");
    }
}

#[test]
fn a_log_of_which_nothing_would_be_left_is_not_cut() {
    let (disk, _) = filled(30);
    let first = segments(&disk).remove(0);
    flip(&disk, &first, 9);
    let damage = check(&disk).damage.expect("damaged");
    let error = at_rest(&disk).cut(&damage).expect_err("refused");
    assert_eq!(error.kind(), StorageErrorKind::Unsupported);
    assert_eq!(segments(&disk).first(), Some(&first));
}
