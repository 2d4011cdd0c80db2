//! The files of format version 1, as they lie in `golden/v1`, open and read: state, positions, feed.
//!
//! They are the directory of a real tree: a sealed segment, the one that was written and one that was being filled, MANIFEST,
//! TRIM, two snapshots; with records of two clusters, every kind of write, deletes that lost, values that expire. `expected.txt` says what is in
//! them. To write both anew, as long as the format may change: `TIDEWIRE_REGENERATE=1 cargo test -p tidewire-tests golden`.
#![expect(clippy::disallowed_methods, reason = "reads and writes files of the source tree")]

use std::fmt::Write as _;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire::{Event, Operation, PutOptions, Start, Tree};
use tidewire_core::disk::{Disk, MemDisk, OpenMode, read_whole};
use tidewire_core::id::Lsn;
use tidewire_core::meta::{MemMeta, MetaChange, MetaStore};
use tidewire_core::tree::{ApplyTarget, LogView};
use tidewire_tests::{World, virtual_time};

/// Where the files belong on the disk of the site that opens them.
const DATA: &str = "/data/a";
const EXPECTED: &str = "expected.txt";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v1")
}

/// A world of which only the first site is started.
fn world() -> World {
    let world = World::new(41, 2);
    for site in &world.sites {
        site.clock.set_offset(0);
    }
    world
}

/// The files of a real directory, as paths from there, in order.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![dir.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the golden files are there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(dir).expect("below").to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The golden files on a disk in memory.
fn loaded() -> MemDisk {
    let disk = MemDisk::new();
    for path in files_below(&golden()).into_iter().filter(|path| *path != Path::new(EXPECTED)) {
        let place = Path::new(DATA).join(&path);
        let dir = place.parent().expect("below the data directory");
        disk.create_dir_all(dir).expect("created");
        let file = disk.open(&place, OpenMode::CreateNew).expect("created");
        let bytes = std::fs::read(golden().join(&path)).expect("read");
        file.write_all_at(&mut [IoSlice::new(&bytes)], 0).expect("written");
        file.sync_data().expect("synced");
        disk.sync_dir(dir).expect("synced");
    }
    disk
}

/// Everything that a tree says about what it holds, as text.
async fn describe(tree: &Tree) -> String {
    let mut text = String::new();
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let digest = tree.digest();
    writeln!(text, "digest {:032x} of {} entries", digest.digest, digest.entries).expect("a text");
    for row in tree.scan(b"", None, usize::MAX) {
        let (key, value) = (show(&row.key), show(&row.value));
        writeln!(text, "row {key} = {value} @ {:?} until {:?}", row.version, row.deadline_ms)
            .expect("a text");
    }
    let bounds = tree.bounds();
    writeln!(text, "log {} to {}, {} records", bounds.first, bounds.next, bounds.records).expect("a text");
    for (origin, marks) in tree.progress().watermarks.iter() {
        for (partition, mark) in marks.iter() {
            writeln!(
                text,
                "covered {origin} {} {partition} to {} {}",
                marks.incarnation(),
                mark.next,
                mark.hlc
            )
            .expect("a text");
        }
    }
    let mut changes = tree.changes(Start::Beginning);
    while let Event::Change(change) = changes.next().await.expect("the feed reads") {
        let (key, value) = (show(&change.key), show(&change.value));
        let end = change.end_key.as_deref().map(show);
        let (lsn, dot, until) = (change.lsn, change.dot.expect("of the log"), change.deadline_ms);
        writeln!(
            text,
            "change {lsn} {:?} {key} {end:?} = {value} @ {:?} {dot:?} until {until:?}",
            change.kind, change.version
        )
        .expect("a text");
    }
    text
}

/// Both sites write, and know of each other; the first one trims its log twice.
async fn write(world: &mut World) {
    world.start_all().await;
    let [a, b] = [0, 1].map(|at: usize| world.sites[at].tree().expect("it runs"));
    for round in 0..5_u32 {
        for at in 0..14_u32 {
            let (one, other) =
                (format!("key-{:02}", (round * 5 + at) % 20), format!("key-{:02}", (round + at * 3) % 20));
            let value = |name: &str| format!("{name}{round}.{at} ").repeat(4 + at as usize % 5);
            let (ours, theirs) = tokio::join!(a.put(one, value("a")), b.put(other, value("b")));
            ours.expect("written");
            theirs.expect("written");
        }
        a.delete(format!("key-{:02}", round * 3)).await.expect("written");
        b.delete_range(format!("key-{:02}", 9 + round), format!("key-{:02}", 11 + round))
            .await
            .expect("written");
        let soon = PutOptions::ttl(Duration::from_millis(500));
        let late = PutOptions::ttl(Duration::from_secs(3_000_000_000));
        a.batch(vec![
            Operation::Set(format!("pair-{round}-a").into(), "one of two".into()),
            Operation::SetWith(format!("pair-{round}-b").into(), "the other, for long".into(), late),
        ])
        .await
        .expect("written");
        a.put_with(format!("soon-{round}"), "over by now", soon).await.expect("written");
        tokio::time::sleep(Duration::from_secs(10)).await;
        if (2..4).contains(&round) {
            a.snapshot().await.expect("written");
            world.sites[0].cluster().expect("it runs").gc("t", false).await.expect("a pass");
        }
    }
    world.demand_convergence(Duration::from_secs(60)).await;
}

/// Writes the golden files and what is in them.
fn regenerate() {
    let (disk, said) = virtual_time(async {
        let mut world = world();
        write(&mut world).await;
        let said = describe(&world.sites[0].tree().expect("it runs")).await;
        // As the end of a process leaves it: nothing is rounded off for the sake of the one who reads.
        (world.sites[0].backup().0, said)
    });
    if golden().exists() {
        std::fs::remove_dir_all(golden()).expect("the old ones go");
    }
    let tree = Path::new("trees/t");
    let parts = [Path::new("").to_owned(), tree.join("wal"), tree.join("snapshots")];
    for part in parts {
        let here = Path::new(DATA).join(&part);
        std::fs::create_dir_all(golden().join(&part)).expect("created");
        for name in
            disk.list(&here).expect("listed").into_iter().filter(|name| name != "LOCK" && name != "trees")
        {
            let bytes = read_whole(&disk, &here.join(&name)).expect("read");
            std::fs::write(golden().join(&part).join(name), bytes).expect("written");
        }
    }
    std::fs::write(golden().join(EXPECTED), said).expect("written");
}

#[test]
fn the_golden_files_of_version_1_open_and_read_as_they_were_written() {
    if std::env::var_os("TIDEWIRE_REGENERATE").is_some() {
        regenerate();
    }
    demand_layout();
    let expected = std::fs::read_to_string(golden().join(EXPECTED)).expect("what is in the golden files");
    virtual_time(async {
        let mut world = world();
        // Of the metadata of their cluster only whose they are.
        let meta = MemMeta::new();
        meta.commit(vec![MetaChange::put("cluster/id", "a")]).await.expect("pinned");
        world.sites[0].restore((loaded(), meta));
        // As late as when they were written: what has expired is over.
        tokio::time::sleep(Duration::from_secs(120)).await;
        world.start(0).await;
        let tree = world.sites[0].tree().expect("it runs");
        assert_eq!(describe(&tree).await, expected);
        assert!(
            tree.last_snapshot().is_some() && tree.bounds().first > Lsn::ZERO,
            "opened by a snapshot, trimmed"
        );
        assert!(expected.contains("DeleteRange") && expected.contains("until Some"), "every kind is there");
        // It is no museum piece: it takes writes, and opens again with them.
        let version = tree.put("after", "v").await.expect("the tree goes on");
        assert!(tree.end().lsn.get() > 0);
        world.sites[0].crash().await;
        world.start(0).await;
        let found = world.sites[0].tree().expect("it runs").get("after").expect("it is there");
        assert_eq!((&found.value[..], found.version), (&b"v"[..], version));
    });
}

/// The golden files show every kind of file but those of a seed and spares, and are small.
fn demand_layout() {
    let files = files_below(&golden());
    let count = |ending: &str| files.iter().filter(|path| path.to_string_lossy().ends_with(ending)).count();
    assert!(count(".seg") >= 2 && count(".snap") == 2, "{files:?}");
    assert_eq!(count(".filling"), 1, "{files:?}");
    let sealed = |path: &&PathBuf| {
        let bytes = std::fs::read(golden().join(path)).expect("there");
        path.to_string_lossy().ends_with(".seg") && bytes.windows(4).any(|word| word == b"TWE1")
    };
    assert!(files.iter().any(|path| sealed(&path)), "no segment has a footer in {files:?}");
    for name in ["wal/MANIFEST", "wal/TRIM", "VERSION"] {
        assert_eq!(count(name), 1, "{name} in {files:?}");
    }
    let bytes: u64 =
        files.iter().map(|path| std::fs::metadata(golden().join(path)).expect("there").len()).sum();
    assert!(bytes < 256 << 10, "{bytes} bytes are too many to carry around");
}
