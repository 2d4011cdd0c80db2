//! Real kills: a process writes and prints what it was told; SIGKILL comes at any moment; what was printed is there.
//!
//! The process is this test binary itself, run for one test alone with [`CHILD`] in its environment. Several writers,
//! each with keys of its own, do what a seed says, so that whoever looks afterwards knows what each of them had asked for:
//! everything it was told, and of the one write behind that all or nothing. Segments are so small that they roll over,
//! are trimmed and used again; snapshots are written all the time.
#![expect(clippy::disallowed_methods, reason = "real processes and files in real time")]
#![expect(
    clippy::print_stdout,
    clippy::panic,
    reason = "a child says what it was told, and nobody may forget it"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::config::TreeConfig;
use tidewire::{Cluster, ClusterConfig, Operation, Tree};
use tidewire_core::disk::RealDisk;
use tidewire_core::id::{ClusterId, Lsn};
use tidewire_core::limits::Limits;
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;
use tidewire_core::trials::Seeds;
use tidewire_core::wal::file::LogFiles;

const CLAIM: &str = "what_a_process_was_told_before_it_was_killed_is_there_afterwards";
/// Seed, directory, and for each writer how many of its writes are done.
const CHILD: &str = "TIDEWIRE_CHILD";
const WRITERS: usize = 4;
/// Lives of one directory.
const LIVES: u64 = 4;
const READY: &str = "ready to be killed";
const TOLD: &str = "told ";

/// What one writer does next.
#[derive(Clone, Debug)]
enum Write {
    Set(String, String),
    Delete(String),
    DeleteRange(String, String),
    Batch(Vec<(String, Option<String>)>),
}

impl Write {
    /// Step number `step` of a writer: the seed says it all.
    fn of(seed: u64, writer: usize, step: u64) -> Self {
        let random = Random::from_seed(seed ^ (writer as u64 + 1) << 40 ^ step << 8);
        let key = |at: u64| format!("w{writer}-{at:02}");
        let value = || format!("{step} ").repeat(1 + usize::try_from(random.below(60)).expect("small"));
        match random.below(10) {
            0 => Self::Delete(key(random.below(20))),
            1 => {
                let from = random.below(18);
                Self::DeleteRange(key(from), key(from + 1 + random.below(4)))
            }
            2..5 => {
                let (first, length) = (random.below(14), 2 + random.below(6));
                let one = |at| (key(at), random.chance(0.8).then(value));
                Self::Batch((first..first + length).map(one).collect())
            }
            _ => Self::Set(key(random.below(20)), value()),
        }
    }

    fn on(&self, keys: &mut BTreeMap<String, String>) {
        match self.clone() {
            Self::Set(key, value) => drop(keys.insert(key, value)),
            Self::Delete(key) => drop(keys.remove(&key)),
            Self::DeleteRange(from, to) => keys.retain(|key, _| *key < from || *key >= to),
            Self::Batch(operations) => {
                for (key, value) in operations {
                    match value {
                        Some(value) => drop(keys.insert(key, value)),
                        None => drop(keys.remove(&key)),
                    }
                }
            }
        }
    }

    async fn ask(self, tree: &Tree) -> Result<(), tidewire::Error> {
        match self {
            Self::Set(key, value) => tree.put(key, value).await,
            Self::Delete(key) => tree.delete(key).await,
            Self::DeleteRange(from, to) => tree.delete_range(from, to).await,
            Self::Batch(operations) => {
                let one = |(key, value): (String, Option<String>)| match value {
                    Some(value) => Operation::Set(key.into(), value.into()),
                    None => Operation::Delete(key.into()),
                };
                tree.batch(operations.into_iter().map(one).collect()).await
            }
        }
        .map(|_| ())
    }
}

/// What a writer's keys hold after its first `steps` writes.
fn after(seed: u64, writer: usize, steps: u64) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    for step in 0..steps {
        Write::of(seed, writer, step).on(&mut keys);
    }
    keys
}

async fn open(dir: &Path) -> (Cluster, Tree) {
    let mut config = ClusterConfig::new("a", dir);
    config.trees = vec![TreeConfig { partitions: 4, ..TreeConfig::new("t") }];
    let limits = Limits {
        segment_bytes_min: 16 << 10,
        segment_bytes_max: 32 << 10,
        snapshot_log_bytes: 48 << 10,
        snapshot_pause: Duration::from_millis(20),
        snapshot_chunk_bytes: 1 << 10,
        ..Limits::default()
    };
    let network = MemNetwork::new(&Random::from_os());
    let builder = Cluster::builder(config).limits(limits);
    let builder = builder.transport(Arc::new(network.endpoint(&ClusterId::new("a").expect("a name"))));
    let cluster = builder.open().await.expect("what a kill leaves opens");
    let tree = cluster.tree("t").await.expect("what a kill leaves opens");
    (cluster, tree)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The process that will be killed. It ends by itself if it is forgotten.
fn write_until_killed(told: &str) {
    let words: Vec<&str> = told.split('\n').collect();
    let number = |word: &&str| word.parse::<u64>().expect("a number");
    let (seed, dir) = (number(&words[0]), PathBuf::from(words[1]));
    let done: Vec<u64> = words[2..].iter().map(number).collect();
    let main = runtime();
    let (cluster, tree) = main.block_on(open(&dir));
    println!("\n{READY}");
    for (writer, done) in done.into_iter().enumerate() {
        let tree = tree.clone();
        // Threads, so that several are on their way into the log at once.
        std::thread::spawn(move || {
            runtime().block_on(async {
                for step in done.. {
                    Write::of(seed, writer, step).ask(&tree).await.expect("a disk without faults");
                    println!("\n{TOLD}{writer} {}", step + 1);
                }
            });
        });
    }
    main.block_on(async {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            tree.snapshot().await.expect("a disk without faults");
            cluster.gc("t", false).await.expect("a disk without faults");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    panic!("nobody has killed this process");
}

/// Lets the process live for a while, kills it, and answers how many writes of each writer it was told of.
fn live_and_die(dir: &Path, seed: u64, done: &[u64; WRITERS], life: Duration) -> [u64; WRITERS] {
    let said = dir.join("said");
    let mut told = format!("{seed}\n{}", dir.join("data").display());
    for done in done {
        told += &format!("\n{done}");
    }
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", &format!("kills::{CLAIM}"), "--nocapture"])
        .env(CHILD, told)
        .stdin(Stdio::null())
        .stdout(File::create(&said).expect("a file"))
        .stderr(File::create(dir.join("stderr")).expect("a file"))
        .spawn()
        .expect("this binary starts");
    let patience = Instant::now() + Duration::from_secs(60);
    while !text(&said).contains(READY) {
        let ended = child.try_wait().expect("a child of ours");
        assert!(ended.is_none() && Instant::now() < patience, "{ended:?}: {}", text(&dir.join("stderr")));
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(life);
    let ended = child.try_wait().expect("a child of ours");
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    assert!(ended.is_none(), "it ended before it was killed, {ended:?}: {}", text(&dir.join("stderr")));
    let said = text(&said);
    assert!(!text(&dir.join("stderr")).contains("panicked"), "{}", text(&dir.join("stderr")));
    // A line that was cut short says nothing.
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    let mut done = *done;
    for line in whole.lines().filter_map(|line| line.strip_prefix(TOLD)) {
        let (writer, step) = line.split_once(' ').expect("two numbers");
        done[writer.parse::<usize>().expect("a number")] = step.parse().expect("a number");
    }
    done
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Fails unless every writer finds what it was told, and all or nothing of the write behind that. Answers where they are.
fn demand(tree: &Tree, seed: u64, told: [u64; WRITERS]) -> [u64; WRITERS] {
    let mut done = told;
    for (writer, done) in done.iter_mut().enumerate() {
        let prefix = format!("w{writer}-");
        let rows = tree.scan(prefix.as_bytes(), None, usize::MAX).into_iter();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let found: BTreeMap<String, String> = rows.map(|row| (text(&row.key), text(&row.value))).collect();
        let known = after(seed, writer, *done);
        if found != known {
            let next = Write::of(seed, writer, *done);
            let mut behind = known.clone();
            next.on(&mut behind);
            assert_eq!(found, behind, "writer {writer} was told of {done} writes; then {next:?}");
            *done += 1;
        }
    }
    done
}

#[test]
fn what_a_process_was_told_before_it_was_killed_is_there_afterwards() {
    if let Ok(told) = std::env::var(CHILD) {
        return write_until_killed(&told);
    }
    let mut seeds = Seeds::new(CLAIM, Duration::from_secs(2), 1.0);
    let (mut writes, mut trimmed, mut by_snapshot, mut landed) = (0, 0, 0, 0);
    while let Some(seed) = seeds.next() {
        let (dir, random) = (tempfile::tempdir().expect("a directory"), Random::from_seed(seed));
        let mut done = [0; WRITERS];
        for life in 0..LIVES {
            let told = live_and_die(dir.path(), seed, &done, Duration::from_millis(5 + random.below(250)));
            let wal = dir.path().join("data/trees/t/wal");
            let log = LogFiles::open(Arc::new(RealDisk), &wal).expect("a log");
            assert_eq!(log.check(&mut |_, _| ()).expect("readable").damage, None, "after life {life}");
            runtime().block_on(async {
                let (cluster, tree) = open(&dir.path().join("data")).await;
                done = demand(&tree, seed, told);
                landed += done.iter().zip(told).map(|(done, told)| done - told).sum::<u64>();
                trimmed += u64::from(tree.bounds().first > Lsn::ZERO);
                by_snapshot += u64::from(tree.last_snapshot().is_some());
                if random.chance(0.5) {
                    cluster.abort().await
                } else {
                    cluster.shutdown().await.expect("stops")
                }
            });
            println!("seed {seed}, life {life}: {done:?} writes");
            seeds.did(1);
        }
        writes += done.iter().sum::<u64>();
    }
    println!(
        "{writes} writes; {trimmed} trimmed logs and {by_snapshot} snapshots found; {landed} writes that nobody was told of"
    );
    assert!(
        writes > 200 && trimmed > 0 && by_snapshot > 0,
        "{writes} writes, {trimmed} trimmed, {by_snapshot}"
    );
}
