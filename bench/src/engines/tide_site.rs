//! [`Site`]: what logs and trees of one cluster share, on real files: its tasks, its clock with a durable ceiling, its
//! metrics.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidewire_core::clock::{HybridClock, SystemClock};
use tidewire_core::disk::{Disk, RealDisk};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::limits::Limits;
use tidewire_core::meta::{RedbMeta, StoredCeiling};
use tidewire_core::metrics::Metrics;
use tidewire_core::random::Random;
use tidewire_core::record::MergeMode;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Consistency, Tree, TreeConfig, TreeMetrics};
use tidewire_core::wal::{CommitRunner, WalMetrics};

use crate::failure::Outcome;

/// One cluster, as far as logs and trees need one.
pub struct Site {
    pub dir: PathBuf,
    pub cluster: ClusterId,
    pub disk: Arc<dyn Disk>,
    pub tasks: Tasks,
    pub clock: Arc<HybridClock>,
    pub runner: CommitRunner,
    pub random: Random,
    #[allow(dead_code, reason = "the replication bench counts no syncs")]
    pub metrics: Metrics,
    pub wal_metrics: WalMetrics,
    pub tree_metrics: TreeMetrics,
}

/// Opens what a cluster has in a directory.
pub async fn new_site(dir: &Path) -> Outcome<Site> {
    std::fs::create_dir_all(dir)?;
    let tasks = Tasks::new(Threads::Spawn);
    let meta = Arc::new(RedbMeta::open(&dir.join("meta.redb"))?);
    let limits = Limits::default();
    let ceiling = Arc::new(StoredCeiling::new(meta));
    let clock = HybridClock::open(Arc::new(SystemClock), ceiling, limits.max_clock_skew).await?;
    let metrics = Metrics::default();
    Ok(Site {
        dir: dir.to_owned(),
        cluster: ClusterId::new("bench")?,
        disk: Arc::new(RealDisk),
        runner: CommitRunner::new(tasks.clone()),
        tasks,
        clock: Arc::new(clock),
        random: Random::from_os(),
        wal_metrics: WalMetrics::new(&metrics),
        tree_metrics: TreeMetrics::new(&metrics),
        metrics,
    })
}

impl Site {
    /// Opens a tree, or creates it. Snapshots are written only when somebody asks for one.
    pub async fn tree(&self, name: &str, partitions: u16) -> Outcome<Tree> {
        let config = TreeConfig {
            cluster: self.cluster.clone(),
            name: TreeName::new(name)?,
            dir: self.dir.join(name),
            partitions,
            merge: MergeMode::default(),
            consistency: Consistency::default(),
            interest: tidewire_core::record::Interest::all(),
            limits: Limits { snapshot_log_bytes: u64::MAX, ..Limits::default() },
            disk: self.disk.clone(),
            clock: self.clock.clone(),
            letters: None,
            tasks: self.tasks.clone(),
            runner: self.runner.clone(),
            random: self.random.fork(),
            wal_metrics: self.wal_metrics.clone(),
            tree_metrics: self.tree_metrics.clone(),
        };
        Ok(Tree::open(config).await?)
    }
}
