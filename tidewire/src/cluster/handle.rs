//! [`Cluster`]: the handle of an open cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures::StreamExt;
use parking_lot::Mutex;
use tidewire_core::clock::HybridClock;
use tidewire_core::disk::Disk;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{BootId, ClusterId, TreeName};
use tidewire_core::letters::TreeLetters;
use tidewire_core::limits::Limits;
use tidewire_core::meta::{MetaStore, RedbMeta};
use tidewire_core::metrics::{BufferMetrics, Metrics};
use tidewire_core::random::Random;
use tidewire_core::tasks::Tasks;
use tidewire_core::tree::{Consistency, MergeMode, SnapshotReport, Tree, TreeConfig, TreeMetrics};
use tidewire_core::wal::{CommitRunner, WalMetrics};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::builder::ClusterBuilder;
use super::directory::Directory;
use super::flows::Freshness;
use super::links::Links;
use super::sinks::Sinks;
use crate::config::{self, ClusterConfig};

/// How many trees are opened at once when a cluster starts.
const OPEN_AT_ONCE: usize = 16;

/// The metadata store, and whether closing it is our part.
pub(super) enum Meta {
    Given(Arc<dyn MetaStore>),
    Own(Arc<RedbMeta>),
}

impl Meta {
    pub(super) fn store(&self) -> Arc<dyn MetaStore> {
        match self {
            Self::Given(store) => store.clone(),
            Self::Own(store) => store.clone(),
        }
    }
}

impl Meta {
    async fn close(&self) {
        if let Self::Own(store) = self
            && let Err(error) = store.close().await
        {
            tracing::warn!(%error, "the metadata store did not close in order; nothing acknowledged is lost");
        }
    }
}

pub(super) struct Inner {
    pub(super) config: Mutex<Arc<ClusterConfig>>,
    /// One reload at a time.
    pub(super) reloading: tokio::sync::Mutex<()>,
    pub(super) id: ClusterId,
    pub(super) boot: BootId,
    pub(super) random: Random,
    pub(super) limits: Limits,
    pub(super) tasks: Tasks,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: Directory,
    pub(super) meta: Meta,
    pub(super) clock: Arc<HybridClock>,
    pub(super) runner: CommitRunner,
    pub(super) metrics: Metrics,
    pub(super) buffers: BufferMetrics,
    pub(super) freshness: Freshness,
    pub(super) wal_metrics: WalMetrics,
    pub(super) tree_metrics: TreeMetrics,
    pub(super) trees: DashMap<String, Tree>,
    pub(super) opening: tokio::sync::Mutex<()>,
    pub(super) links: Links,
    pub(super) sinks: Sinks,
    pub(super) started: Instant,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.tasks.stop_token().is_cancelled() {
            tracing::warn!(cluster = %self.id, "dropped without shutdown: nothing acknowledged is lost, the next start replays more");
            for tree in &self.trees {
                tree.abandon();
            }
            self.tasks.abort();
        }
    }
}

/// An open cluster. Cheap to clone; all clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(pub(super) Arc<Inner>);

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Opens a cluster on files, with the system's clock and gRPC between clusters.
    ///
    /// # Errors
    /// As [`ClusterBuilder::open`].
    pub async fn open(config: ClusterConfig) -> Result<Self, Error> {
        Self::builder(config).open().await
    }

    /// A builder, to give components of your own.
    pub fn builder(config: ClusterConfig) -> ClusterBuilder {
        ClusterBuilder::new(config)
    }

    pub(super) async fn start(inner: Inner) -> Result<Self, Error> {
        let cluster = Self(Arc::new(inner));
        let opened = cluster.open_everything().await;
        if let Err(error) = opened {
            cluster.abort().await;
            return Err(error);
        }
        Ok(cluster)
    }

    async fn open_everything(&self) -> Result<(), Error> {
        let config = self.0.config();
        self.open_trees(&config).await?;
        for name in self.0.directory.trees_on_disk(&self.0.disk) {
            if !config.trees.iter().any(|tree| tree.name == name) {
                tracing::warn!(
                    tree = name,
                    "a tree on disk is not configured; its files stay, nothing serves it"
                );
            }
        }
        self.0.links.listen(&self.0.tasks).await?;
        for tree in self.trees() {
            self.enroll(&tree).await?;
        }
        let listed = config.peers.iter().map(|peer| ClusterId::new(&peer.id));
        self.0.links.recall(&listed.collect::<Result<BTreeSet<_>, Error>>()?).await?;
        for peer in &config.peers {
            self.add_peer(peer.clone()).await?;
        }
        self.0.links.complete_roll();
        self.0.links.connect(&self.0.tasks, &self.0.random).await?;
        self.start_sinks().await
    }

    async fn enroll(&self, tree: &Tree) -> Result<(), Error> {
        let Inner { links, tasks, limits, random, .. } = &*self.0;
        links.enroll_tree(tasks, tree, limits, random, self.apply_after(tree)).await
    }

    /// The cluster's name.
    pub fn id(&self) -> &ClusterId {
        &self.0.id
    }

    /// The id of this run.
    pub fn boot(&self) -> BootId {
        self.0.boot
    }

    /// Where other clusters dial this one, if it listens.
    pub fn replication_address(&self) -> Option<String> {
        self.0.links.address()
    }

    /// The metrics of this cluster, with the gauges of its links brought up to date.
    pub fn metrics(&self) -> &Metrics {
        self.0.links.status();
        for tree in self.trees() {
            tree.size();
            tree.show_buffers(&self.0.buffers);
            self.0.freshness.show(&tree, self.0.clock.wall_millis());
        }
        self.0.links.show_buffers(&self.0.buffers);
        self.0.sinks.show_buffers(&self.0.buffers);
        &self.0.metrics
    }

    /// Fires when the cluster begins to stop.
    pub fn stop_token(&self) -> CancellationToken {
        self.0.tasks.stop_token()
    }

    /// The tasks that end with this cluster.
    pub fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// Opens a tree as it is configured, or creates it with the defaults.
    ///
    /// # Errors
    /// `Invalid` for a name that cannot be, `Refused` when something that is pinned has changed, `Corrupt` when its log
    /// is damaged.
    pub async fn tree(&self, name: &str) -> Result<Tree, Error> {
        if let Some(tree) = self.find_tree(name) {
            return Ok(tree);
        }
        let configured = self.0.config().trees.iter().find(|tree| tree.name == name).cloned();
        let tree = self.open_tree(&configured.unwrap_or_else(|| config::TreeConfig::new(name))).await?;
        self.enroll(&tree).await?;
        self.0.links.connect(&self.0.tasks, &self.0.random).await?;
        Ok(tree)
    }

    /// How long a foreign write of a tree waits for what it depends on, if not for ever.
    fn apply_after(&self, tree: &Tree) -> Option<Duration> {
        let config = self.0.config();
        let settings = config.trees.iter().find(|settings| settings.name == tree.identity().tree.as_str())?;
        (settings.on_stall == config::OnStall::ApplyAfter).then(|| settings.apply_after.get())
    }

    /// A tree that is open.
    pub fn find_tree(&self, name: &str) -> Option<Tree> {
        self.0.trees.get(name).map(|tree| tree.value().clone())
    }

    /// Writes a snapshot of a tree that is open: the next start replays its log from there.
    ///
    /// # Errors
    /// `NotFound` when no such tree is open, and as [`Tree::snapshot`].
    pub async fn snapshot(&self, tree: &str) -> Result<SnapshotReport, Error> {
        match self.find_tree(tree) {
            Some(tree) => tree.snapshot().await,
            None => {
                Err(Error::new(ErrorKind::NotFound, format!("no tree {tree:?} is open on {}", self.id())))
            }
        }
    }

    /// The trees that are open, by name.
    pub fn trees(&self) -> Vec<Tree> {
        let mut trees: Vec<Tree> = self.0.trees.iter().map(|tree| tree.value().clone()).collect();
        trees.sort_by(|a, b| a.identity().tree.cmp(&b.identity().tree));
        trees
    }

    /// Opens the trees of the configuration, some at once: what takes long is waiting for the disk.
    async fn open_trees(&self, config: &ClusterConfig) -> Result<(), Error> {
        let guard = self.0.opening.lock().await;
        let opening = config.trees.iter().map(|tree| self.open_alone(tree));
        let opened: Vec<_> = futures::stream::iter(opening).buffered(OPEN_AT_ONCE).collect().await;
        drop(guard);
        opened.into_iter().try_for_each(|opened| opened.map(drop))
    }

    async fn open_tree(&self, settings: &config::TreeConfig) -> Result<Tree, Error> {
        let guard = self.0.opening.lock().await;
        let tree = self.open_alone(settings).await;
        drop(guard);
        tree
    }

    /// Opens a tree while nobody else opens it.
    async fn open_alone(&self, settings: &config::TreeConfig) -> Result<Tree, Error> {
        if let Some(tree) = self.find_tree(&settings.name) {
            return Ok(tree);
        }
        if self.stop_token().is_cancelled() || self.0.links.is_stopping() {
            return Err(Error::shutting_down());
        }
        let name = TreeName::new(&settings.name)?;
        let most = settings.dead_letter_bytes.get();
        let letters = TreeLetters::open(self.0.meta.store(), &name, most).await?;
        let tree = Tree::open(TreeConfig {
            cluster: self.0.id.clone(),
            name,
            dir: self.0.directory.tree(&settings.name),
            partitions: settings.partitions,
            merge: match settings.merge {
                config::Merge::Lww => MergeMode::LastWriterWins,
            },
            consistency: match settings.consistency {
                config::Consistency::Causal => Consistency::Causal,
                config::Consistency::Eventual => Consistency::Eventual,
            },
            interest: settings.interest().map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("interest of {}: {error}", settings.name))
            })?,
            limits: self.0.limits.clone(),
            disk: self.0.disk.clone(),
            clock: self.0.clock.clone(),
            letters: Some(Arc::new(letters)),
            tasks: self.0.tasks.clone(),
            runner: self.0.runner.clone(),
            random: self.0.random.fork(),
            wal_metrics: self.0.wal_metrics.clone(),
            tree_metrics: self.0.tree_metrics.clone(),
        })
        .await?;
        self.0.trees.insert(settings.name.clone(), tree.clone());
        Ok(tree)
    }

    /// Stops in order: no new writes, everything pending made durable, peers and sinks told what they have not
    /// acknowledged as far as the drain budget allows, positions stored, leases given back.
    ///
    /// # Errors
    /// When the last positions could not be stored; nothing acknowledged is lost by that.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let budget = self.0.limits.drain_budget;
        self.0.links.begin_stop();
        let trees = self.trees();
        futures::future::join_all(trees.iter().map(|tree| tree.drain(budget))).await;
        futures::join!(self.0.sinks.stop(budget), self.0.links.stop(budget));
        for tree in &trees {
            tree.snapshot_before_stop().await;
        }
        self.0.tasks.join().await;
        let closed = self.0.clock.close().await;
        self.0.meta.close().await;
        closed
    }

    /// Stops where it stands, as a crash would, and waits until nothing touches the directory any more.
    pub async fn abort(&self) {
        futures::future::join_all(self.trees().iter().map(Tree::kill)).await;
        self.0.tasks.abort_and_join().await;
        self.0.meta.close().await;
    }
}
