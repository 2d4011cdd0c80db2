//! For tests: a tree under writes of its own and of another cluster, and everything that it holds, to be compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::causal::VersionVector;
use crate::disk::{Disk, MemDisk};
use crate::id::{Lsn, OriginTag};
use crate::random::Random;
use crate::tree::image::{EntryImage, RangeImage};
use crate::tree::target::{ApplyTarget, Progress};
use crate::tree::tests::{Site, ready_groups};
use crate::tree::{Operation, PutOptions, ReadyGroup, Tree};

pub(super) const SNAPSHOTS: &str = "/data/trees/t/snapshots";
pub(super) const WAL: &str = "/data/trees/t/wal";

/// Everything that a tree knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picture {
    pub(super) digest: u128,
    pub(super) entries: Vec<EntryImage>,
    pub(super) ranges: Vec<RangeImage>,
    pub(super) superseded: Vec<std::ops::Range<Lsn>>,
    pub(super) next: Lsn,
    pub(super) progress: Progress,
    pub(super) observed: VersionVector,
}

impl Picture {
    pub(super) fn of(tree: &Tree) -> Self {
        let observed = tree.0.writer.observed();
        let state = tree.0.applied.state.read();
        Self {
            digest: state.digest(0),
            entries: state.export(None, usize::MAX),
            ranges: state.ranges(),
            superseded: state.superseded(),
            next: state.next_lsn,
            progress: state.progress.clone(),
            observed,
        }
    }

    /// What was promised without being in the log, and what a write may have seen, may be more after a snapshot than
    /// after a replay of everything; all else is the same.
    pub(super) fn must_be(&self, replayed: &Self, context: &str) {
        assert!(self.progress.frontier.covers(&replayed.progress.frontier), "{context}: frontier");
        assert!(self.observed.covers(&replayed.observed), "{context}: observed");
        let alike = Self {
            progress: Progress { frontier: replayed.progress.frontier.clone(), ..self.progress.clone() },
            observed: replayed.observed.clone(),
            ..self.clone()
        };
        assert_eq!(&alike, replayed, "{context}");
    }
}

/// Another cluster's writes to the same keys, in pages.
pub(super) async fn foreign_pages(seed: u64, writes: u64) -> (Tree, Vec<Vec<ReadyGroup>>) {
    let (mut site, random) = (Site::new("b", seed), Random::from_seed(seed ^ 77));
    let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
    for step in 0..writes {
        write_once(&tree, &random, &format!("b{step}")).await;
    }
    let groups = ready_groups(&tree).await;
    (tree, groups.chunks(3).map(<[ReadyGroup]>::to_vec).collect())
}

/// One random write over few keys.
async fn write_once(tree: &Tree, random: &Random, value: &str) {
    let key = || format!("k{:02}", random.below(40));
    let value = value.repeat(1 + usize::try_from(random.below(6)).expect("small"));
    let written = match random.below(10) {
        0 => tree.delete(key()).await,
        1 => {
            let from = random.below(38);
            tree.delete_range(format!("k{from:02}"), format!("k{:02}", from + 2)).await
        }
        2 => {
            let first = random.below(39);
            let set = |at: u64| Operation::Set(format!("k{at:02}").into(), value.clone().into());
            tree.batch(vec![set(first), set(first + 1)]).await
        }
        3 => tree.put_with(key(), value, PutOptions { ttl: Some(Duration::from_secs(3_600)) }).await,
        _ => tree.put(key(), value).await,
    };
    written.expect("written");
}

/// Writes of this cluster and pages of another, all at random moments.
pub(super) async fn write_both(tree: &Tree, other: &Tree, pages: Vec<Vec<ReadyGroup>>, random: &Random) {
    let name = other.identity();
    tree.enroll(&name.cluster, name.incarnation).await.expect("enrolled");
    let own = async {
        for step in 0..60 {
            tokio::time::sleep(Duration::from_micros(random.below(3_000))).await;
            write_once(tree, random, &format!("a{step}")).await;
        }
    };
    let theirs = async {
        for page in pages {
            tokio::time::sleep(Duration::from_micros(random.below(9_000))).await;
            let closed = page.last().expect("no empty pages").closed;
            tree.apply(page).await.expect("applied");
            tree.advance(other.identity().origin(), closed.next());
        }
    };
    tokio::join!(own, theirs);
}

/// A copy of a disk without what is below a directory.
pub(super) fn without(disk: &MemDisk, dir: &str) -> MemDisk {
    let copy = disk.copy();
    for name in copy.list(Path::new(dir)).unwrap_or_default() {
        copy.remove(&Path::new(dir).join(name)).expect("removed");
    }
    if copy.exists(Path::new(dir)).expect("known") {
        copy.sync_dir(Path::new(dir)).expect("synced");
    }
    copy
}

/// The names of the snapshots on a disk.
pub(super) fn snapshots_on(disk: &MemDisk) -> Vec<String> {
    disk.list(Path::new(SNAPSHOTS)).unwrap_or_default()
}

/// Numbers that were acknowledged, by key.
pub(super) type Acknowledged = Arc<Mutex<BTreeMap<String, u64>>>;

/// Counts under a few keys; notes what was acknowledged.
pub(super) async fn count(tree: &Tree, name: &str, until: u64, acknowledged: &Acknowledged) {
    for number in 1..=until {
        let key = format!("{name}-{}", number % 9);
        tree.put(key.clone(), format!("{number:08}").repeat(8)).await.expect("put");
        acknowledged.lock().insert(key, number);
    }
}

/// Fails when a number that was acknowledged is missing.
pub(super) fn demand(tree: &Tree, acknowledged: &BTreeMap<String, u64>, context: &str) {
    for (key, number) in acknowledged {
        let found = tree.get(key).map(|value| String::from_utf8_lossy(&value.value[..8]).into_owned());
        let found = found.map(|text| text.parse::<u64>().expect("a number"));
        assert!(found >= Some(*number), "{context}: {key} is {found:?}, {number} was acknowledged");
    }
}

/// The tag of the cluster that tests open.
pub(super) fn own() -> OriginTag {
    crate::id::ClusterId::new("a").expect("name").tag()
}
