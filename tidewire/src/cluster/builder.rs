//! [`ClusterBuilder`]: takes components, checks the configuration, and assembles a cluster.

use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use tidewire_core::clock::{HybridClock, SystemClock, WallClock};
use tidewire_core::disk::{Disk, RealDisk};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{BootId, ClusterId};
use tidewire_core::limits::Limits;
use tidewire_core::meta::{MetaStore, RedbMeta, StoredCeiling};
use tidewire_core::metrics::{BufferMetrics, Metrics};
use tidewire_core::random::Random;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::Transport;
use tidewire_core::tree::TreeMetrics;
use tidewire_core::wal::{CommitRunner, WalMetrics};
use tokio::time::Instant;

use super::directory::Directory;
use super::flows::{Flows, Freshness};
use super::handle::{Cluster, Inner, Meta};
use super::links::Links;
use super::sinks::Sinks;
use crate::config::ClusterConfig;

/// Assembles a cluster. What is not given is the real thing: files, system clock, gRPC.
pub struct ClusterBuilder {
    config: ClusterConfig,
    disk: Option<Arc<dyn Disk>>,
    meta: Option<Arc<dyn MetaStore>>,
    wall: Option<Arc<dyn WallClock>>,
    transport: Option<Arc<dyn Transport>>,
    random: Option<Random>,
    limits: Option<Limits>,
    commit_latency: Option<std::time::Duration>,
}

impl ClusterBuilder {
    pub(super) fn new(config: ClusterConfig) -> Self {
        Self {
            config,
            disk: None,
            meta: None,
            wall: None,
            transport: None,
            random: None,
            limits: None,
            commit_latency: None,
        }
    }

    /// Where files are.
    #[must_use]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Where positions, leases and the clock's ceiling are kept.
    #[must_use]
    pub fn meta(mut self, meta: Arc<dyn MetaStore>) -> Self {
        self.meta = Some(meta);
        self
    }

    /// The time of day.
    #[must_use]
    pub fn wall(mut self, wall: Arc<dyn WallClock>) -> Self {
        self.wall = Some(wall);
        self
    }

    /// How other clusters are reached.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// The source of randomness.
    #[must_use]
    pub fn random(mut self, random: Random) -> Self {
        self.random = Some(random);
        self
    }

    /// Bounds that the configuration does not name. Instead of those that it does.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// No threads: everything runs as tasks of the current runtime, and a write takes up to this long. For simulation,
    /// with a disk and metadata in memory.
    #[must_use]
    pub fn simulated(mut self, commit_latency: std::time::Duration) -> Self {
        self.commit_latency = Some(commit_latency);
        self
    }

    /// Opens the cluster: replays its trees, then starts to receive, then to send.
    ///
    /// # Errors
    /// `Invalid` for a configuration that cannot work, `Conflict` when the directory or an address is in use, `Corrupt`
    /// when a log is damaged, `Refused` when something that is pinned has changed.
    pub async fn open(self) -> Result<Cluster, Error> {
        let config =
            self.config.validate().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        let id = ClusterId::new(&config.cluster.id)?;
        let random = self.random.unwrap_or_else(Random::from_os);
        let limits = self.limits.unwrap_or_else(|| config.limits());
        let tasks = Tasks::new(if self.commit_latency.is_some() { Threads::Inline } else { Threads::Spawn });
        let disk = self.disk.unwrap_or_else(|| Arc::new(RealDisk));
        let (lock_disk, root) = (disk.clone(), config.cluster.data_dir.clone());
        let directory = tasks.blocking(move || Directory::open(&lock_disk, &root)).await??;
        let meta = match self.meta {
            Some(meta) => Meta::Given(meta),
            None => Meta::open(&tasks, directory.root.join("meta.redb")).await?,
        };
        directory.pin_cluster(&disk, &meta.store(), &id).await?;
        let wall = self.wall.unwrap_or_else(|| Arc::new(SystemClock));
        let ceiling = Arc::new(StoredCeiling::new(meta.store()));
        let clock = Arc::new(HybridClock::open(wall.clone(), ceiling, limits.max_clock_skew).await?);
        let runner = match self.commit_latency {
            None => CommitRunner::new(tasks.clone()),
            Some(latency) => CommitRunner::simulated(tasks.clone(), latency, random.fork()),
        };
        let metrics = Metrics::default();
        let dials_urls = self.transport.is_none();
        let transport = match self.transport {
            Some(transport) => Some(transport),
            None => default_transport(&config)?,
        };
        let boot = BootId::new(random.id());
        let sinks = Sinks::new(meta.store(), boot, wall.clone(), limits.lease_ttl, &metrics);
        let links = Links::new(&id, boot, meta.store(), transport, wall, &metrics, Flows::new(&config.trees))
            .dialling_urls(dials_urls);
        let inner = Inner {
            wal_metrics: WalMetrics::new(&metrics),
            tree_metrics: TreeMetrics::new(&metrics),
            buffers: BufferMetrics::new(&metrics),
            freshness: Freshness::new(&metrics),
            config: Mutex::new(Arc::new(config)),
            reloading: tokio::sync::Mutex::default(),
            id,
            boot,
            random,
            limits,
            tasks,
            disk,
            directory,
            meta,
            clock,
            runner,
            metrics,
            trees: DashMap::new(),
            opening: tokio::sync::Mutex::default(),
            links,
            sinks,
            started: Instant::now(),
        };
        Cluster::start(inner).await
    }
}

impl Meta {
    async fn open(tasks: &Tasks, path: std::path::PathBuf) -> Result<Self, Error> {
        let opened = tasks.blocking(move || RedbMeta::open(&path)).await??;
        Ok(Self::Own(Arc::new(opened)))
    }
}

#[cfg(feature = "grpc")]
fn default_transport(config: &ClusterConfig) -> Result<Option<Arc<dyn Transport>>, Error> {
    use tidewire_connectors::transports::grpc::{GrpcConfig, GrpcTransport};
    let settings = GrpcConfig {
        listen: config.listen.replication.to_string(),
        max_record_bytes: config.limits().max_record_bytes,
    };
    Ok(Some(Arc::new(GrpcTransport::new(settings)?)))
}

#[cfg(not(feature = "grpc"))]
fn default_transport(_config: &ClusterConfig) -> Result<Option<Arc<dyn Transport>>, Error> {
    Ok(None)
}
