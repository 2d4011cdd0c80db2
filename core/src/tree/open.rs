//! Opening a tree: what is on its disk becomes a state, and a writer continues behind it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::core::{AppliedState, Inner, Tree};
use super::identity::{Consistency, TreeIdentity};
use super::reaping::{Graves, Reaper};
use super::recovery::{Recovered, Recovery};
use super::snapshot::keep_snapshots;
use crate::clock::HybridClock;
use crate::disk::Disk;
use crate::error::Error;
use crate::id::{ClusterId, Incarnation, Lsn, OriginTag, TreeName};
use crate::latest::Latest;
use crate::letters::TreeLetters;
use crate::limits::Limits;
use crate::metrics::{Labels, Metrics};
use crate::random::Random;
use crate::record::{Group, Interest, MergeMode};
use crate::tasks::Tasks;
use crate::wal::file::{FileStorage, Manifest};
use crate::wal::{CommitRunner, DurableGroups, Log, WalMetrics, WalStorage, Writer, WriterConfig};

/// What is unpacked under one lock: a tenth of a millisecond.
const UNPACKED_BYTES: usize = 64 * 1024;
/// Between two of these steps writes and reads go on.
const UNPACKING_PAUSE: Duration = Duration::from_millis(1);

/// What a tree is opened with.
pub struct TreeConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// The tree.
    pub name: TreeName,
    /// The tree's own directory.
    pub dir: PathBuf,
    /// Number of partitions; must be what the tree was created with.
    pub partitions: u16,
    /// How concurrent writes are merged; must be what the tree was created with.
    pub merge: MergeMode,
    /// Whether writes wait for their dependencies here.
    pub consistency: Consistency,
    /// Which keys are held here. Fewer than before are dropped at once; more take a seed, which is asked for.
    pub interest: Interest,
    /// The bounds.
    pub limits: Limits,
    /// The files.
    pub disk: Arc<dyn Disk>,
    /// The cluster's clock.
    pub clock: Arc<HybridClock>,
    /// Where what can never be applied is kept; None: it is not taken.
    pub letters: Option<Arc<TreeLetters>>,
    /// Where its tasks run.
    pub tasks: Tasks,
    /// Where it commits.
    pub runner: CommitRunner,
    /// Gives a new log its incarnation.
    pub random: Random,
    /// The log's metrics.
    pub wal_metrics: WalMetrics,
    /// The tree's metrics.
    pub tree_metrics: TreeMetrics,
}

/// The families of all trees of a cluster.
#[derive(Clone, Debug)]
pub struct TreeMetrics {
    conflicts: Family<Labels, Counter>,
    retained: Family<Labels, Gauge>,
    physical: Family<Labels, Gauge>,
    trimmed: Family<Labels, Counter>,
    tombstones: Family<Labels, Gauge>,
    ranges: Family<Labels, Gauge>,
    reaped: Family<Labels, Counter>,
    dropped: Family<Labels, Counter>,
    passed_over: Family<Labels, Counter>,
}

/// The gauges of one tree, brought up to date when its size is asked for.
#[derive(Debug)]
pub(super) struct TreeGauges {
    pub(super) retained: Gauge,
    pub(super) physical: Gauge,
    pub(super) trimmed: Counter,
    /// Keys that were there and are not held any more.
    pub(super) dropped: Counter,
    tombstones: Gauge,
    ranges: Gauge,
    /// Tombstones, expired entries, deleted ranges.
    reaped: [Counter; 3],
}

impl TreeGauges {
    fn new(metrics: &TreeMetrics, tree: &TreeName) -> Self {
        let labels = vec![("tree", tree.to_string())];
        let reaped = |kind: &str| {
            let labels = vec![("tree", tree.to_string()), ("kind", kind.to_owned())];
            metrics.reaped.get_or_create(&labels).clone()
        };
        Self {
            retained: metrics.retained.get_or_create(&labels).clone(),
            physical: metrics.physical.get_or_create(&labels).clone(),
            trimmed: metrics.trimmed.get_or_create(&labels).clone(),
            dropped: metrics.dropped.get_or_create(&labels).clone(),
            tombstones: metrics.tombstones.get_or_create(&labels).clone(),
            ranges: metrics.ranges.get_or_create(&labels).clone(),
            reaped: ["tombstone", "expired", "range"].map(reaped),
        }
    }

    pub(super) fn show_graves(&self, graves: Graves) {
        self.tombstones.set(i64::try_from(graves.tombstones).unwrap_or(i64::MAX));
        self.ranges.set(i64::try_from(graves.ranges).unwrap_or(i64::MAX));
    }

    pub(super) fn reaped(&self, gone: Graves) {
        for (counter, count) in self.reaped.iter().zip([gone.tombstones, gone.expired, gone.ranges]) {
            counter.inc_by(count);
        }
    }
}

impl TreeMetrics {
    /// Registers the families.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            conflicts: metrics.counters(
                "tidewire_conflicts",
                "Writes that met a concurrent write of the same key; one of the two lost",
            ),
            retained: metrics.gauges("tidewire_wal_retained_bytes", "Bytes of the groups that a log retains"),
            physical: metrics.gauges("tidewire_wal_physical_bytes", "Bytes that the files of a log occupy"),
            trimmed: metrics.counters("tidewire_wal_trimmed_records", "Records that a log has let go of"),
            tombstones: metrics
                .gauges("tidewire_tombstones", "Deleted keys that are kept so that nothing older wins"),
            ranges: metrics.gauges(
                "tidewire_range_tombstones",
                "Deleted ranges that are kept so that nothing older wins",
            ),
            reaped: metrics.counters(
                "tidewire_reaped",
                "Deleted keys, expired keys and deleted ranges that were forgotten",
            ),
            dropped: metrics.counters(
                "tidewire_interest_dropped_keys",
                "Keys that were there and are not held any more: of the snapshot that a tree was opened by, and while it is open",
            ),
            passed_over: metrics.counters(
                "tidewire_interest_passed_over_records",
                "Records in a log that have no effect because their keys are not held, when it is opened and since",
            ),
        }
    }
}

struct Applier {
    tree: TreeName,
    applied: Arc<AppliedState>,
    storage: Arc<FileStorage>,
    own: (OriginTag, Incarnation),
    conflicts: Counter,
    passed_over: Counter,
    /// Below it the log's losers are forgotten.
    forgotten: AtomicU64,
}

impl DurableGroups for Applier {
    fn apply(&self, group: &Arc<Group>) {
        // Followers may look as soon as the state has it: by then it must be there to be read.
        self.applied.log.remember(group);
        let manifest = self.storage.manifest();
        let outcome = {
            let mut state = self.applied.state.write();
            state.apply(group, |origin| manifest.incarnation_of(origin).unwrap_or(self.own.1))
        };
        if outcome.lost {
            self.forget_trimmed();
        }
        if !self.applied.observers.is_empty() {
            let part = group.first_lsn()..group.next_lsn();
            let lost = self.applied.state.read().superseded.within(part);
            self.applied.observers.show(&self.tree, self.own.0, group, &lost);
        }
        self.passed_over.inc_by(outcome.unheld);
        if outcome.conflicts > 0 {
            self.conflicts.inc_by(outcome.conflicts);
        }
        self.applied.moved.modify(|moved| *moved = (group.next_lsn(), moved.1 + 1));
    }

    fn is_followed(&self) -> bool {
        self.applied.moved.is_awaited() || !self.applied.observers.is_empty()
    }
}

impl Applier {
    /// What was trimmed needs no memory of its losers. Looked at when there is a new one: the set grows nowhere else.
    fn forget_trimmed(&self) {
        let first = self.storage.bounds().first.get();
        if self.forgotten.swap(first, Ordering::Relaxed) < first {
            self.applied.state.write().superseded.forget(Lsn::new(first));
        }
    }
}

impl Tree {
    /// Opens a tree, or creates it, and replays its log.
    ///
    /// # Errors
    /// `Refused` when something that is pinned has changed, `Corrupt` when the log is damaged, `Unavailable` for I/O.
    pub async fn open(config: TreeConfig) -> Result<Self, Error> {
        Self::open_through(config, |files| files).await
    }

    /// The same, with a provider of the log between the tree and its files.
    pub(super) async fn open_through(
        config: TreeConfig,
        provider: impl FnOnce(Arc<FileStorage>) -> Arc<dyn WalStorage>,
    ) -> Result<Self, Error> {
        let new = Manifest {
            incarnation: Incarnation::new(config.random.id()),
            cluster: config.cluster.clone(),
            tree: config.name.clone(),
            partitions: config.partitions,
            merge: config.merge,
            origins: Default::default(),
        };
        let recovery = Recovery {
            disk: config.disk.clone(),
            dir: config.dir.clone(),
            new,
            limits: config.limits.clone(),
            tasks: config.tasks.clone(),
            clock: config.clock.clone(),
            letters: config.letters.clone(),
            interest: config.interest.clone(),
        };
        let recovered = recovery.run().await?;
        let provider = provider(recovered.storage.clone());
        Ok(Self::assemble(config, recovered, provider))
    }

    fn assemble(config: TreeConfig, recovered: Recovered, provider: Arc<dyn WalStorage>) -> Self {
        let manifest = recovered.storage.manifest();
        let own = config.cluster.tag();
        let identity = TreeIdentity {
            cluster: config.cluster,
            tree: config.name.clone(),
            incarnation: manifest.incarnation,
            partitions: config.partitions,
            merge: config.merge,
            consistency: config.consistency,
        };
        let end = recovered.start.lsn;
        let labels = vec![("tree", config.name.to_string())];
        let unheld = recovered.state.unheld;
        let passed_over = config.tree_metrics.passed_over.get_or_create(&labels).clone();
        passed_over.inc_by(unheld.records);
        let applied = Arc::new(AppliedState {
            state: RwLock::new(recovered.state),
            log: Log::new(provider.clone(), config.limits.recent_bytes),
            moved: Latest::new((end, 0)),
            observers: Arc::default(),
            digesting: Mutex::default(),
        });
        let groups = Arc::new(Applier {
            tree: config.name.clone(),
            applied: applied.clone(),
            storage: recovered.storage.clone(),
            own: (own, manifest.incarnation),
            conflicts: config.tree_metrics.conflicts.get_or_create(&labels).clone(),
            passed_over,
            forgotten: AtomicU64::new(0),
        });
        let writer = Writer::new(
            WriterConfig {
                tree: config.name.clone(),
                origin: own,
                incarnation: manifest.incarnation,
                partitions: config.partitions,
                limits: config.limits.clone(),
                clock: config.clock.clone(),
                storage: provider,
                runner: config.runner,
                groups,
                metrics: config.wal_metrics,
            },
            recovered.start,
        );
        let gauges = TreeGauges::new(&config.tree_metrics, &config.name);
        gauges.dropped.inc_by(unheld.keys);
        let tree = Self(Arc::new(Inner {
            identity,
            interest: RwLock::new(config.interest),
            dropping: AtomicBool::new(false),
            gauges,
            limits: config.limits,
            clock: config.clock,
            writer,
            storage: recovered.storage,
            applied,
            snapshots: recovered.snapshots,
            seeds: recovered.seeds,
            members: Mutex::default(),
            reaper: Reaper::default(),
            letters: config.letters,
            tasks: config.tasks,
        }));
        tree.watch_deadlines();
        tree.keep_snapshots();
        tree.unpack();
        tree
    }

    fn watch_deadlines(&self) {
        let (watched, stop) = (self.0.writer.clone(), self.0.tasks.stop_token());
        self.0.tasks.spawn(format!("deadlines of {}", self.0.identity.tree), async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = watched.watch_deadlines() => {}
            }
        });
    }

    /// Gives the rows of the snapshot that the tree was opened by memory of their own, in small steps: until then a row
    /// holds all others of its chunk.
    fn unpack(&self) {
        if self.last_snapshot().is_none() {
            return;
        }
        let (applied, stop) = (self.0.applied.clone(), self.0.tasks.stop_token());
        self.0.tasks.spawn(format!("unpacking of {}", self.0.identity.tree), async move {
            let mut from = 0;
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(UNPACKING_PAUSE) => {}
                }
                let next = applied.state.write().unpack_some(from, UNPACKED_BYTES);
                let Some(next) = next else { return };
                from = next;
            }
        });
    }

    fn keep_snapshots(&self) {
        let (moved, pause) = (self.0.applied.moved.follow(), self.0.limits.snapshot_pause);
        let (tree, stop) = (Arc::downgrade(&self.0), self.0.tasks.stop_token());
        self.0.tasks.spawn(format!("snapshots of {}", self.0.identity.tree), async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = keep_snapshots(tree, moved, pause) => {}
            }
        });
    }
}
