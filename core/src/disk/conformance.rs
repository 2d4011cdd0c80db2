//! The claims that every [`Disk`] must hold, to be run by a test of the implementation.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::atomic::{read_whole, write_atomically};
use super::contract::{Disk, DiskFile, OpenMode};

/// Runs all claims. `make` answers a disk and an existing, empty directory on it, anew at each call.
///
/// # Panics
/// When a claim does not hold.
pub fn conformance(make: impl Fn() -> (Arc<dyn Disk>, PathBuf)) {
    let claims: [fn(&dyn Disk, &Path); 10] = [
        a_new_file_is_empty_and_made_once,
        what_is_missing_is_not_found,
        slices_are_written_one_after_the_other,
        a_read_is_short_only_at_the_end,
        resizing_cuts_and_fills_with_zeros,
        a_handle_for_reading_does_not_write,
        names_are_listed_in_order,
        a_rename_replaces_and_handles_stay_on_their_files,
        a_lock_is_held_once,
        small_files_are_replaced_whole,
    ];
    for claim in claims {
        let (disk, dir) = make();
        claim(disk.as_ref(), &dir);
    }
}

fn new_file(disk: &dyn Disk, path: &Path) -> Arc<dyn DiskFile> {
    disk.open(path, OpenMode::CreateNew).expect("a new file opens")
}

fn write(file: &dyn DiskFile, offset: u64, bytes: &[u8]) {
    file.write_all_at(&mut [IoSlice::new(bytes)], offset).expect("there is room");
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0xAA; 64 * 1024];
    let read = file.read_at(&mut bytes, 0).expect("the file is readable");
    bytes.truncate(read);
    assert_eq!(file.len().expect("the file has a length"), read as u64);
    bytes
}

fn a_new_file_is_empty_and_made_once(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("new");
    assert!(!disk.exists(&path).expect("the disk can tell"));
    let file = new_file(disk, &path);
    assert!(file.is_empty().expect("the file has a length"));
    assert!(disk.exists(&path).expect("the disk can tell"));
    assert!(disk.exists(dir).expect("the disk can tell"));
    let again = disk.open(&path, OpenMode::CreateNew).err().expect("it exists");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert!(again.to_string().contains("new"), "the error names the path: {again}");
}

fn what_is_missing_is_not_found(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("missing");
    let kinds = [
        disk.open(&path, OpenMode::Read).err(),
        disk.open(&path, OpenMode::Write).err(),
        disk.open(&path.join("file"), OpenMode::CreateNew).err(),
        disk.rename(&path, &dir.join("other")).err(),
        disk.remove(&path).err(),
        disk.list(&path).err(),
        disk.sync_dir(&path).err(),
    ];
    for (index, error) in kinds.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::NotFound), "call {index}");
    }
}

fn slices_are_written_one_after_the_other(disk: &dyn Disk, dir: &Path) {
    let file = new_file(disk, &dir.join("slices"));
    // More slices than one call of a system takes, empty ones among them.
    let parts: Vec<Vec<u8>> = (0..3000_usize).map(|n| vec![(n % 251) as u8; n % 7]).collect();
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_all_at(&mut slices, 5).expect("there is room");
    file.sync_data().expect("the disk works");
    let expected: Vec<u8> = [0; 5].into_iter().chain(parts.concat()).collect();
    assert!(content(file.as_ref()) == expected);
    file.write_all_at(&mut [], 0).expect("nothing is written");
    file.write_all_at(&mut [IoSlice::new(&[])], 1 << 20).expect("nothing is written");
    assert!(content(file.as_ref()) == expected, "writing nothing changes nothing");
}

fn a_read_is_short_only_at_the_end(disk: &dyn Disk, dir: &Path) {
    let file = new_file(disk, &dir.join("read"));
    write(file.as_ref(), 0, b"0123456789");
    let mut buf = [0; 4];
    for (offset, expected) in [(0, "0123"), (5, "5678"), (8, "89"), (10, ""), (1000, "")] {
        let read = file.read_at(&mut buf, offset).expect("the file is readable");
        assert_eq!(&buf[..read], expected.as_bytes(), "from {offset}");
    }
}

fn resizing_cuts_and_fills_with_zeros(disk: &dyn Disk, dir: &Path) {
    let file = new_file(disk, &dir.join("resized"));
    write(file.as_ref(), 0, &[7; 2000]);
    file.set_len(3).expect("there is room");
    file.set_len(6).expect("there is room");
    assert_eq!(content(file.as_ref()), [7, 7, 7, 0, 0, 0]);
    write(file.as_ref(), 8, &[9]);
    assert_eq!(content(file.as_ref()), [7, 7, 7, 0, 0, 0, 0, 0, 9]);
}

fn a_handle_for_reading_does_not_write(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("read_only");
    write(new_file(disk, &path).as_ref(), 0, b"kept");
    let reader = disk.open(&path, OpenMode::Read).expect("it exists");
    assert!(reader.write_all_at(&mut [IoSlice::new(b"lost")], 0).is_err());
    assert!(reader.set_len(0).is_err());
    let writer = disk.open(&path, OpenMode::Write).expect("it exists");
    write(writer.as_ref(), 4, b"!");
    assert_eq!(content(reader.as_ref()), b"kept!");
}

fn names_are_listed_in_order(disk: &dyn Disk, dir: &Path) {
    for name in ["b", "a", "c.tmp"] {
        new_file(disk, &dir.join(name));
    }
    disk.create_dir_all(&dir.join("b2/inner/deep")).expect("directories can be made");
    disk.create_dir_all(&dir.join("b2/inner")).expect("they exist already");
    new_file(disk, &dir.join("b2/inner/file"));
    assert_eq!(disk.list(dir).expect("it exists"), ["a", "b", "b2", "c.tmp"]);
    assert_eq!(disk.list(&dir.join("b2")).expect("it exists"), ["inner"]);
    assert_eq!(disk.list(&dir.join("b2/inner")).expect("it exists"), ["deep", "file"]);
    disk.remove(&dir.join("a")).expect("it exists");
    disk.sync_dir(dir).expect("the disk works");
    assert_eq!(disk.list(dir).expect("it exists"), ["b", "b2", "c.tmp"]);
    assert!(disk.create_dir_all(&dir.join("b")).is_err(), "a file is in the way");
}

fn a_rename_replaces_and_handles_stay_on_their_files(disk: &dyn Disk, dir: &Path) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let (moved, replaced) = (new_file(disk, &from), new_file(disk, &to));
    write(moved.as_ref(), 0, b"moved");
    write(replaced.as_ref(), 0, b"replaced");
    disk.rename(&from, &to).expect("both are there");
    write(moved.as_ref(), 5, b" on");
    assert_eq!(disk.list(dir).expect("it exists"), ["to"]);
    assert_eq!(read_whole(disk, &to).expect("it exists"), b"moved on");
    assert_eq!(content(replaced.as_ref()), b"replaced");
    disk.remove(&to).expect("it exists");
    assert_eq!(content(moved.as_ref()), b"moved on");
    disk.create_dir_all(&dir.join("elsewhere")).expect("directories can be made");
    new_file(disk, &from);
    let across = disk.rename(&from, &dir.join("elsewhere/from")).expect_err("the directories differ");
    assert_eq!(across.kind(), ErrorKind::InvalidInput);
}

fn a_lock_is_held_once(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("LOCK");
    let held = disk.lock(&path).expect("it is free");
    assert_eq!(disk.lock(&path).err().map(|error| error.kind()), Some(ErrorKind::WouldBlock));
    let other = disk.lock(&dir.join("OTHER")).expect("it is another one");
    drop(held);
    let _again = disk.lock(&path).expect("it is free again");
    drop(other);
    assert!(disk.exists(&path).expect("the disk can tell"));
}

fn small_files_are_replaced_whole(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("small");
    for bytes in [&b"first"[..], b"", b"a longer one"] {
        write_atomically(disk, &path, bytes).expect("the disk works");
        assert_eq!(read_whole(disk, &path).expect("it exists"), bytes);
    }
    new_file(disk, &dir.join("small.tmp"));
    write_atomically(disk, &path, b"after a leftover").expect("a leftover does not disturb");
    assert_eq!(disk.list(dir).expect("it exists"), ["small"]);
}
