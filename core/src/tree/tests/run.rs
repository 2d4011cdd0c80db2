//! [`Run`]: one tree under random writes, pages, snapshots, trims, faults and crashes, held against its [`History`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;

use super::history::{History, Logged, read_log, records_of, shape};
use super::{Site, ready_groups};
use crate::disk::{Disk, DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::{Error, ErrorKind};
use crate::feed::{FeedError, FeedSource};
use crate::id::{Lsn, Version};
use crate::random::Random;
use crate::record::Mutation;
use crate::tree::{ApplyTarget, Operation, PutOptions, ReadyGroup, Tree, TreeIdentity};

/// Nobody waits longer for an answer, whatever the disk does.
const PATIENCE: Duration = Duration::from_secs(120);

/// Another cluster that has written to the same keys.
#[derive(Clone)]
pub(super) struct Other {
    pub(super) identity: TreeIdentity,
    pub(super) groups: Arc<Vec<ReadyGroup>>,
    pub(super) records: Arc<Vec<Vec<Logged>>>,
}

impl Other {
    pub(super) async fn new(seed: u64, writes: u64) -> Self {
        let (mut site, random) = (Site::new("b", seed), Random::from_seed(seed ^ 0xb));
        let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
        for number in 0..writes {
            tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
            let write = Write::any(&random, &format!("b{number}"));
            write.on(&tree).await.expect("written");
        }
        let groups = ready_groups(&tree).await;
        let mut reader = tree.feed(tree.cursor_at(Lsn::ZERO));
        let mut records = Vec::new();
        while records.len() < groups.len() {
            let batch = reader.next().await.expect("readable");
            records.extend(batch.groups().iter().map(|group| records_of(group)));
        }
        Self { identity: tree.identity().clone(), groups: Arc::new(groups), records: Arc::new(records) }
    }
}

/// A write that is asked for.
#[derive(Clone, Debug)]
enum Write {
    Batch(Vec<Operation>),
    One(Operation),
    Range(Bytes, Bytes),
}

impl Write {
    fn any(random: &Random, value: &str) -> Self {
        let key = |at: u64| Bytes::from(format!("k{at:02}"));
        let value = || Bytes::from(value.repeat(1 + usize::try_from(random.below(12)).expect("small")));
        let any = || key(random.below(40));
        match random.below(12) {
            0 | 1 => Self::One(Operation::Delete(any())),
            2 => {
                let from = random.below(38);
                Self::Range(key(from), key(from + 1 + random.below(3)))
            }
            3 | 4 => {
                let (first, length) = (random.below(34), 2 + random.below(5));
                let one = |at: u64| match random.below(4) {
                    0 => Operation::Delete(key(at)),
                    1 => Operation::SetWith(key(at), value(), ttl(random)),
                    _ => Operation::Set(key(at), value()),
                };
                Self::Batch((first..first + length).map(one).collect())
            }
            5 => Self::One(Operation::SetWith(any(), value(), ttl(random))),
            _ => Self::One(Operation::Set(any(), value())),
        }
    }

    fn mutations(&self) -> Vec<Mutation> {
        let of = |operation: &Operation| shape(&operation.clone().mutation(|| 0).expect("valid"));
        match self {
            Self::Batch(operations) => operations.iter().map(of).collect(),
            Self::One(operation) => vec![of(operation)],
            Self::Range(from, to) => vec![Mutation::delete_range(from.clone(), to.clone())],
        }
    }

    async fn on(self, tree: &Tree) -> Result<Version, Error> {
        match self {
            Self::Batch(operations) => tree.batch(operations).await,
            Self::One(Operation::Set(key, value)) => tree.put(key, value).await,
            Self::One(Operation::SetWith(key, value, options)) => tree.put_with(key, value, options).await,
            Self::One(Operation::Delete(key)) => tree.delete(key).await,
            Self::Range(from, to) => tree.delete_range(from, to).await,
        }
    }
}

/// Most are over within the run, some at once.
fn ttl(random: &Random) -> PutOptions {
    PutOptions::ttl(Duration::from_millis(1 + random.below(3_000)))
}

/// One tree, and everything that is known of it.
pub(super) struct Run {
    pub(super) random: Random,
    pub(super) site: Site,
    pub(super) disk: MemDisk,
    pub(super) faults: DiskFaults,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) other: Other,
    pub(super) tree: Tree,
    writes: u64,
    /// Writes that were acknowledged, that failed, and openings by a snapshot.
    pub(super) figures: [u64; 3],
}

impl Run {
    /// A new tree on a disk that `wrap` may put something around.
    pub(super) async fn new(
        seed: u64,
        other: Other,
        wrap: impl FnOnce(Arc<dyn Disk>, &MemDisk, Arc<Mutex<History>>) -> Arc<dyn Disk>,
    ) -> Self {
        let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(seed));
        let history = Arc::new(Mutex::new(History::new(other.records.clone())));
        let mut site = Site::new("a", seed);
        // Small enough that several fit into a run; chunks small enough that writes come in between.
        site.limits.snapshot_log_bytes = 6 * 1024;
        site.limits.snapshot_bytes_per_second = 64 * 1024;
        let faulty = Arc::new(FaultyDisk::over_memory(disk.clone(), faults.clone()));
        let tree = site.open(wrap(faulty, &disk, history.clone())).await.expect("a new tree opens");
        let random = Random::from_seed(seed);
        Self { random, site, disk, faults, history, other, tree, writes: 0, figures: [0; 3] }
    }

    /// How many writes were asked for.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    pub(super) async fn step(&mut self) {
        match self.random.below(20) {
            0 => self.crash().await,
            1 if self.random.chance(0.2) => self.stop().await,
            _ => self.step_without_restart().await,
        }
    }

    pub(super) async fn step_without_restart(&mut self) {
        match self.random.below(100) {
            0..50 => self.burst(PATIENCE).await,
            50..61 => self.page().await,
            61..69 => self.read().await,
            69..77 => self.snapshot().await,
            77..85 => self.trim().await,
            85..91 => tokio::time::sleep(Duration::from_millis(self.random.below(2_500))).await,
            _ => self.fault(),
        }
        self.catch_up().await;
    }

    /// A few writes at once, of which some callers go away. All that is not answered after `patience` is left alone.
    pub(super) async fn burst(&mut self, patience: Duration) {
        let count = 1 + self.random.below(6);
        let tree = &self.tree;
        let writes = (0..count).map(|_| {
            self.writes += 1;
            let write = Write::any(&self.random, &format!("a{}", self.writes));
            let number = self.history.lock().ask(write.mutations());
            let leaves = self.random.chance(0.1).then(|| Duration::from_micros(self.random.below(4_000)));
            let history = self.history.clone();
            async move {
                let answer = match leaves {
                    Some(after) => tokio::time::timeout(after, write.on(tree)).await.ok(),
                    None => Some(write.on(tree).await),
                };
                if let Some(answer) = &answer {
                    history.lock().answer(number, answer);
                }
                answer
            }
        });
        let writes: Vec<_> = writes.collect();
        let answers = tokio::time::timeout(patience, join_all(writes)).await;
        assert!(answers.is_ok() || patience < PATIENCE, "nobody hangs");
        for answer in answers.into_iter().flatten().flatten() {
            match answer {
                Ok(_) => self.figures[0] += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    self.figures[1] += 1;
                }
            }
        }
    }

    /// The next groups of the other cluster.
    async fn page(&mut self) {
        let identity = &self.other.identity;
        if self.tree.enroll(&identity.cluster, identity.incarnation).await.is_err() {
            return;
        }
        let covered =
            self.tree.progress().watermarks.origin(identity.origin()).map_or(0, |marks| marks.covered());
        let mut before = 0;
        let next = self.other.records.iter().take_while(|group| {
            before += group.len() as u64;
            before <= covered
        });
        let next = next.count();
        let last =
            self.other.groups.len().min(next + 1 + usize::try_from(self.random.below(4)).expect("small"));
        if next == last {
            return;
        }
        let page = self.other.groups[next..last].to_vec();
        let closed = page.last().expect("not empty").closed;
        let applied = tokio::time::timeout(PATIENCE, self.tree.apply(page)).await.expect("nobody hangs");
        match applied {
            Ok(_) => self.tree.advance(identity.origin(), closed),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }

    async fn read(&mut self) {
        let from = Lsn::new(self.random.below(self.history.lock().end().get() + 1));
        let bounds = self.tree.bounds();
        if from < bounds.first {
            let mut reader = self.tree.feed(self.tree.cursor_at(from));
            let error = reader.next().await.expect_err("it is trimmed");
            assert!(matches!(error, FeedError::FellOff { lowest } if lowest == bounds.first), "{error}");
            return;
        }
        let Some(read) = read_log(&self.tree, from).await else { return };
        let history = self.history.lock();
        let (read, known): (Vec<&Logged>, Vec<&Logged>) = (
            read.iter().flatten().filter(|record| record.lsn >= from).collect(),
            history.from(from).iter().collect(),
        );
        assert_eq!(read[..known.len()], known[..], "from {from}");
        let key = |random: &Random| format!("k{:02}", random.below(42));
        let limit = usize::try_from(self.random.below(9)).expect("small");
        history.view.demand_parts(&self.tree, &key(&self.random)[..2], &key(&self.random), limit);
    }

    /// A snapshot beside writes; half of those who ask for one do not wait for it.
    async fn snapshot(&mut self) {
        let patience =
            if self.random.chance(0.5) { PATIENCE } else { Duration::from_micros(self.random.below(9_000)) };
        let tree = self.tree.clone();
        let (taken, ()) = tokio::join!(tokio::time::timeout(patience, tree.snapshot()), self.burst(PATIENCE));
        match taken {
            Ok(Ok(_)) => assert!(tree.last_snapshot().is_some()),
            Ok(Err(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            Err(_) => assert!(patience < PATIENCE, "nobody hangs"),
        }
    }

    /// As the collector does it: never above the checkpoint.
    async fn trim(&mut self) {
        let (checkpoint, old) = (self.tree.checkpoint(), self.tree.bounds().first);
        let before = Lsn::new(self.random.below(self.history.lock().end().get() + 2)).min(checkpoint);
        let promised = self.tree.bounds_after_trim(before);
        match self.tree.trim(before).await {
            Ok(bounds) => {
                assert_eq!((bounds.first, bounds.retained_bytes), (promised.first, promised.retained_bytes));
                assert!(bounds.first <= before.max(old));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert_eq!(self.tree.bounds().first, old, "a trim that failed has trimmed nothing");
            }
        }
        let above = checkpoint.max(self.tree.bounds().first).next();
        let refused = self.tree.trim(above).await.expect_err("the tree needs it");
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    }

    fn fault(&mut self) {
        use DiskOperation::{Open, Read, Remove, Rename, Sync, SyncDir, Write};
        let operations = [Write, Write, Sync, Sync, SyncDir, Rename, Remove, Open, Read];
        let room = self.disk.used() + self.random.below(8_000);
        match usize::try_from(self.random.below(14)).expect("small") {
            9 => self.faults.fill(),
            10 => self.disk.set_quota(room),
            11.. => self.heal(),
            which => self.faults.fail_nth(operations[which], 1 + self.random.below(4)),
        }
    }

    fn heal(&self) {
        self.faults.heal();
        self.disk.set_quota(u64::MAX);
    }

    /// Power is lost or the process killed, in the middle of writes as likely as not.
    pub(super) async fn crash(&mut self) {
        if self.random.chance(0.7) {
            let moment = Duration::from_micros(self.random.below(5_000));
            self.burst(moment).await;
        }
        self.disk =
            if self.random.chance(0.7) { self.disk.crash(self.random.id()) } else { self.disk.kill() };
        self.open_again().await;
    }

    /// Drains, and opens again.
    async fn stop(&mut self) {
        self.tree.drain(Duration::from_secs(10)).await;
        self.catch_up().await;
        self.tree.snapshot_before_stop().await;
        self.disk = self.disk.kill();
        self.open_again().await;
    }

    /// Opens what a crash left. A disk that fails meanwhile is reported as that, never taken for damage.
    async fn open_again(&mut self) {
        self.heal();
        for attempt in 0.. {
            let shaky = attempt < 3 && self.random.chance(0.3);
            if shaky {
                use DiskOperation::{Open, Read, Sync, Write};
                let operation =
                    [Open, Read, Sync, Write][usize::try_from(self.random.below(4)).expect("small")];
                self.faults.fail_nth(operation, 1 + self.random.below(12));
            }
            let faulty = FaultyDisk::over_memory(self.disk.clone(), self.faults.clone());
            let opened = self.site.open(Arc::new(faulty)).await;
            self.faults.heal();
            match opened {
                Ok(tree) => {
                    self.tree = tree;
                    break;
                }
                Err(error) => {
                    assert!(shaky, "a crash leaves a tree that opens: {error}");
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    // Whoever could not open it may lose power as well.
                    self.disk = if self.random.chance(0.5) {
                        self.disk.crash(self.random.id())
                    } else {
                        self.disk.kill()
                    };
                }
            }
        }
        self.figures[2] += u64::from(self.tree.last_snapshot().is_some());
        demand_reopened(&self.tree, &self.history).await;
    }

    /// Reads what is new, and compares the state now and then.
    async fn catch_up(&mut self) {
        let end = self.history.lock().end();
        let from = end.max(self.tree.bounds().first);
        let Some(read) = read_log(&self.tree, from).await else { return };
        let mut history = self.history.lock();
        history.catch_up(&self.tree, read);
        if self.random.chance(0.2) {
            history.view.demand(&self.tree);
        }
    }
}

/// A tree that was opened after a crash holds what it must.
pub(super) async fn demand_reopened(tree: &Tree, history: &Mutex<History>) {
    let read = read_log(tree, tree.bounds().first).await.expect("a disk without faults is read");
    let mut history = history.lock();
    history.reopen(tree, read);
    history.view.demand(tree);
}
