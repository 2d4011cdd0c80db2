//! What the disks promise beyond the conformance suite: crashes, room, faults.

use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::error::{StorageError, StorageErrorKind};

const SEEDS: std::ops::Range<u64> = 0..64;

fn mem() -> MemDisk {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk
}

fn put(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).unwrap();
    write(file.as_ref(), 0, bytes);
    file
}

fn write(file: &dyn DiskFile, offset: u64, bytes: &[u8]) {
    file.write_all_at(&mut [IoSlice::new(bytes)], offset).unwrap();
}

fn get(disk: &dyn Disk, path: &str) -> Option<Vec<u8>> {
    match read_whole(disk, Path::new(path)) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

fn durable_file(disk: &MemDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = put(disk, path, bytes);
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    file
}

#[test]
fn the_real_disk_conforms() {
    let root = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    conformance(|| {
        next.set(next.get() + 1);
        let dir = root.path().join(next.get().to_string());
        RealDisk.create_dir_all(&dir).unwrap();
        (Arc::new(RealDisk), dir)
    });
}

#[test]
fn the_disk_in_memory_conforms() {
    conformance(|| (Arc::new(mem()), "/data".into()));
}

#[test]
fn the_faulty_disk_without_faults_conforms() {
    conformance(|| (Arc::new(FaultyDisk::over_memory(mem(), DiskFaults::from_seed(1))), "/data".into()));
}

#[test]
fn the_real_disk_knows_its_free_room() {
    let root = tempfile::tempdir().unwrap();
    assert!(RealDisk.available(root.path()).unwrap().unwrap() > 0);
}

#[test]
fn relative_directories_are_made_on_the_real_disk() {
    assert!(RealDisk.exists(Path::new("")).unwrap());
    RealDisk.sync_dir(Path::new("")).unwrap();
    RealDisk.create_dir_all(Path::new("src")).unwrap();
}

#[test]
fn errors_name_operation_path_and_cause_and_map_to_kinds() {
    let error = RealDisk.open(Path::new("/nowhere/at/all"), OpenMode::Read).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with("cannot open /nowhere/at/all: "), "{text}");
    assert_eq!(StorageError::from(error).kind(), StorageErrorKind::Io);
    let faults = DiskFaults::from_seed(1);
    let disk = FaultyDisk::over_memory(mem(), faults.clone());
    let _held = disk.lock(Path::new("/data/LOCK")).unwrap();
    let held = disk.lock(Path::new("/data/LOCK")).err().unwrap();
    assert_eq!(StorageError::from(held).kind(), StorageErrorKind::Locked);
    faults.fill();
    let full = disk.open(Path::new("/data/new"), OpenMode::CreateNew).err().unwrap();
    assert_eq!(StorageError::from(full).kind(), StorageErrorKind::Full);
}

#[test]
fn a_file_whose_directory_was_not_synced_may_or_may_not_exist_after_a_crash() {
    let found: BTreeSet<bool> = SEEDS
        .map(|seed| {
            let disk = mem();
            put(&disk, "/data/new", b"x").sync_data().unwrap();
            get(&disk.crash(seed), "/data/new").is_some()
        })
        .collect();
    assert_eq!(found, [false, true].into());
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in SEEDS {
        let disk = mem();
        durable_file(&disk, "/data/kept", &[5; 3000]);
        disk.create_dir_all(Path::new("/data/trees/orders")).unwrap();
        let disk = disk.crash(seed).crash(seed + 1);
        assert_eq!(get(&disk, "/data/kept").unwrap(), [5; 3000]);
        assert!(disk.exists(Path::new("/data/trees/orders")).unwrap());
    }
}

#[test]
fn a_rename_that_was_not_synced_has_happened_or_not() {
    let found: BTreeSet<_> = SEEDS
        .map(|seed| {
            let disk = mem();
            durable_file(&disk, "/data/a", b"new");
            durable_file(&disk, "/data/b", b"old");
            disk.rename(Path::new("/data/a"), Path::new("/data/b")).unwrap();
            let disk = disk.crash(seed);
            (get(&disk, "/data/a"), get(&disk, "/data/b").unwrap())
        })
        .collect();
    let expected = [(Some(b"new".to_vec()), b"old".to_vec()), (None, b"new".to_vec())];
    assert_eq!(found, expected.into());
}

#[test]
fn a_renamed_file_is_not_lost_to_a_new_one_under_its_old_name() {
    for seed in SEEDS {
        let disk = mem();
        durable_file(&disk, "/data/a", b"old");
        disk.rename(Path::new("/data/a"), Path::new("/data/b")).unwrap();
        put(&disk, "/data/a", b"new").sync_data().unwrap();
        let disk = disk.crash(seed);
        let old = Some(b"old".to_vec());
        assert!(get(&disk, "/data/a") == old || get(&disk, "/data/b") == old, "seed {seed}");
    }
}

#[test]
fn a_removal_that_was_not_synced_has_happened_or_not() {
    let found: BTreeSet<bool> = SEEDS
        .map(|seed| {
            let disk = mem();
            durable_file(&disk, "/data/a", b"x");
            disk.remove(Path::new("/data/a")).unwrap();
            get(&disk.crash(seed), "/data/a").is_some()
        })
        .collect();
    assert_eq!(found, [false, true].into());
}

#[test]
fn a_crash_tears_a_write_at_any_sector_and_length() {
    let (mut lengths, mut images) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..300 {
        let disk = mem();
        let file = durable_file(&disk, "/data/log", &[1; 2048]);
        write(file.as_ref(), 0, &[2; 4096]);
        let image = get(&disk.crash(seed), "/data/log").unwrap();
        lengths.insert(image.len());
        images.insert(image[..2048].chunks(512).map(|sector| sector[0]).collect::<Vec<_>>());
    }
    assert_eq!(images.len(), 16, "all subsets of four sectors occur");
    assert!(lengths.contains(&2048) && lengths.contains(&4096) && lengths.len() > 10);
}

#[test]
fn the_same_seed_leaves_the_same_disk() {
    let image = |seed| {
        let disk = mem();
        for name in ["/data/a", "/data/b", "/data/c"] {
            let file = put(&disk, name, &[1; 1500]);
            file.sync_data().unwrap();
            write(file.as_ref(), 700, &[2; 5000]);
        }
        let disk = disk.crash(seed);
        ["/data/a", "/data/b", "/data/c"].map(|name| get(&disk, name))
    };
    for seed in SEEDS {
        assert_eq!(image(seed), image(seed));
    }
}

#[test]
fn a_crashed_process_reaches_nothing_and_its_lock_is_free() {
    type End = fn(&MemDisk) -> MemDisk;
    let ends: [End; 2] = [|disk| disk.crash(1), MemDisk::kill];
    for end in ends {
        let disk = mem();
        let file = durable_file(&disk, "/data/a", b"old");
        let clone = disk.clone();
        let held = disk.lock(Path::new("/data/LOCK")).unwrap();
        let next = end(&disk);
        let _taken = next.lock(Path::new("/data/LOCK")).unwrap();
        drop(held);
        assert!(next.lock(Path::new("/data/LOCK")).is_err(), "the late release is not for the new lock");
        assert!(file.write_all_at(&mut [IoSlice::new(b"new")], 0).is_err());
        assert!(file.read_at(&mut [0; 3], 0).is_err());
        assert!(file.sync_data().is_err());
        assert!(clone.open(Path::new("/data/b"), OpenMode::CreateNew).is_err());
        assert!(clone.remove(Path::new("/data/a")).is_err());
        assert_eq!(get(&next, "/data/a").unwrap(), b"old");
    }
}

#[test]
fn a_killed_process_loses_nothing_until_the_power_goes() {
    let mut ends = BTreeSet::new();
    for seed in SEEDS {
        let disk = mem();
        durable_file(&disk, "/data/a", b"old");
        write(disk.open(Path::new("/data/a"), OpenMode::Write).unwrap().as_ref(), 0, b"new");
        let disk = disk.kill();
        assert_eq!(get(&disk, "/data/a").unwrap(), b"new");
        ends.insert(get(&disk.crash(seed), "/data/a").unwrap());
    }
    assert_eq!(ends.len(), 2, "the next crash still may lose it");
}

#[test]
fn a_copy_is_independent_and_knows_what_is_durable() {
    let disk = mem();
    let file = durable_file(&disk, "/data/a", b"old");
    write(file.as_ref(), 0, b"new");
    let copy = disk.copy();
    write(file.as_ref(), 0, b"???");
    assert_eq!(get(&copy, "/data/a").unwrap(), b"new");
    assert!(SEEDS.map(|seed| get(&copy.copy().crash(seed), "/data/a").unwrap()).any(|bytes| bytes == b"old"));
    assert_eq!(get(&disk, "/data/a").unwrap(), b"???");
}

#[test]
fn a_full_disk_takes_what_fits_and_works_again_when_there_is_room() {
    let disk = mem();
    let file = durable_file(&disk, "/data/a", &[1; 600]);
    disk.set_quota(1000);
    assert_eq!(disk.available(Path::new("/data")).unwrap(), Some(400));
    let error =
        file.write_all_at(&mut [IoSlice::new(&[2; 300]), IoSlice::new(&[3; 300])], 600).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!((file.len().unwrap(), disk.used()), (1000, 1000));
    assert_eq!(file.set_len(1001).err().unwrap().kind(), ErrorKind::StorageFull);
    write(file.as_ref(), 0, &[4; 1000]);
    file.set_len(100).unwrap();
    let other = put(&disk, "/data/b", &[5; 900]);
    drop(other);
    disk.remove(Path::new("/data/b")).unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    assert_eq!(disk.used(), 100, "what was removed is free again");
    let disk = disk.crash(3);
    let found = get(&disk, "/data/a").unwrap().len() as u64;
    assert_eq!(disk.used(), found, "the account is right after a crash");
}

#[test]
fn a_failed_sync_loses_the_unsynced_bytes_though_the_next_one_succeeds() {
    let faults = DiskFaults::from_seed(1);
    let memory = mem();
    durable_file(&memory, "/data/a", &[1; 1024]);
    let disk = FaultyDisk::over_memory(memory, faults.clone());
    let file = disk.open(Path::new("/data/a"), OpenMode::Write).unwrap();
    write(file.as_ref(), 0, &[2; 2000]);
    faults.fail_nth(DiskOperation::Sync, 1);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    let expected: Vec<u8> = [1; 1024].into_iter().chain([0; 976]).collect();
    assert!(get(&disk, "/data/a").unwrap() == expected);
}

#[test]
fn the_nth_operation_fails_and_no_other() {
    let faults = DiskFaults::from_seed(9);
    let disk = FaultyDisk::over_memory(mem(), faults.clone());
    let file = put(&disk, "/data/a", &[1; 100]);
    faults.fail_nth(DiskOperation::Write, 2);
    write(file.as_ref(), 100, &[2; 100]);
    assert!(file.write_all_at(&mut [IoSlice::new(&[3; 50]), IoSlice::new(&[3; 50])], 200).is_err());
    assert!((200..300).contains(&file.len().unwrap()), "a part of it is written");
    write(file.as_ref(), 200, &[4; 100]);
    assert_eq!(faults.count(DiskOperation::Write), 4);
    faults.fail_all(DiskOperation::Open);
    assert!(disk.open(Path::new("/data/a"), OpenMode::Read).is_err());
    faults.heal();
    faults.fail_randomly(DiskOperation::Read, 0.5);
    let failed = (0..1000).filter(|_| file.read_at(&mut [0], 0).is_err()).count();
    assert!((400..600).contains(&failed), "{failed}");
}

#[test]
fn what_hangs_goes_on_after_healing() {
    let faults = DiskFaults::from_seed(9);
    let disk = FaultyDisk::over_memory(mem(), faults.clone());
    let file = put(&disk, "/data/a", b"");
    let before = faults.count(DiskOperation::Write);
    faults.hang();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(file.as_ref(), 0, b"late"));
        while faults.count(DiskOperation::Write) == before {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        assert!(file.is_empty().unwrap());
        faults.heal();
    });
    assert_eq!(get(&disk, "/data/a").unwrap(), b"late");
}

#[test]
fn a_replaced_file_is_old_or_new_whatever_fails_and_crashes() {
    use DiskOperation::{Open, Rename, Sync, SyncDir, Write};
    let path = Path::new("/data/small");
    let mut found = BTreeSet::new();
    for seed in SEEDS {
        for operation in [Open, Write, Sync, Rename, SyncDir] {
            let memory = mem();
            let faults = DiskFaults::from_seed(seed);
            let disk = FaultyDisk::over_memory(memory.clone(), faults.clone());
            write_atomically(&disk, path, b"old").unwrap();
            faults.fail_nth(operation, 1);
            write_atomically(&disk, path, b"new").unwrap_err();
            let bytes = get(&memory.crash(seed), "/data/small").unwrap();
            assert!(bytes == b"old" || bytes == b"new");
            found.insert(bytes);
        }
        let disk = mem();
        write_atomically(&disk, path, b"done").unwrap();
        assert_eq!(get(&disk.crash(seed), "/data/small").unwrap(), b"done");
    }
    assert_eq!(found.len(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, len: usize },
    Resize(usize),
    Sync,
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5000_usize, 1..2000_usize).prop_map(|(offset, len)| Step::Write { offset, len }),
        1 => (0..6000_usize).prop_map(Step::Resize),
        2 => Just(Step::Sync),
        1 => any::<u64>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// Every state of the file since the last sync.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn now(&self) -> &Vec<u8> {
        self.0.last().unwrap()
    }

    /// Whether each sector of an image is one of its states, zeros where a state had ended.
    fn explains(&self, image: &[u8]) -> bool {
        let sector_of = |state: &[u8], start: usize, len: usize| -> Vec<u8> {
            (start..start + len).map(|at| state.get(at).copied().unwrap_or(0)).collect()
        };
        let shortest = self.0.iter().map(Vec::len).min().unwrap();
        let longest = self.0.iter().map(Vec::len).max().unwrap();
        (shortest..=longest).contains(&image.len())
            && image.chunks(512).enumerate().all(|(index, sector)| {
                self.0.iter().any(|state| sector_of(state, index * 512, sector.len()) == sector)
            })
    }
}

proptest! {
    #[test]
    fn a_file_reads_as_written_and_a_crash_keeps_whole_sectors_of_what_was_there(steps in steps()) {
        let path = PathBuf::from("/data/f");
        let mut disk = mem();
        let mut file = durable_file(&disk, "/data/f", b"");
        let mut model = Model(vec![Vec::new()]);
        for (fill, step) in (1_u8..).zip(steps) {
            let mut next = model.now().clone();
            match step {
                Step::Write { offset, len } => {
                    next.resize(next.len().max(offset + len), 0);
                    next[offset..offset + len].fill(fill);
                    write(file.as_ref(), offset as u64, &vec![fill; len]);
                    model.0.push(next);
                }
                Step::Resize(len) => {
                    next.resize(len, 0);
                    file.set_len(len as u64).unwrap();
                    model.0.push(next);
                }
                Step::Sync => {
                    file.sync_data().unwrap();
                    model = Model(vec![next]);
                }
                Step::Crash(seed) => {
                    disk = disk.crash(seed);
                    file = disk.open(&path, OpenMode::Write).unwrap();
                    let image = get(&disk, "/data/f").unwrap();
                    prop_assert!(model.explains(&image));
                    model = Model(vec![image]);
                }
            }
            prop_assert!(&get(&disk, "/data/f").unwrap() == model.now());
        }
    }
}
