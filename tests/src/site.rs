//! [`Site`]: one simulated cluster that can be killed and started again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::config::{Forward, TreeConfig};
use tidewire::{Cluster, ClusterConfig, Peer, Reloaded, Tree};
use tidewire_core::disk::{DiskFaults, FaultyDisk, MemDisk};
use tidewire_core::error::Error;
use tidewire_core::id::ClusterId;
use tidewire_core::limits::Limits;
use tidewire_core::meta::MemMeta;
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;

use crate::clock::SimClock;

/// The tree that simulations replicate.
pub(crate) const TREE: &str = "t";

/// One cluster of a simulation.
pub struct Site {
    id: ClusterId,
    network: MemNetwork,
    random: Random,
    limits: Limits,
    settings: TreeConfig,
    /// Its wall clock.
    pub clock: SimClock,
    /// Faults of its disk.
    pub faults: DiskFaults,
    disk: MemDisk,
    meta: MemMeta,
    peers: Vec<Peer>,
    cluster: Option<Cluster>,
    tree: Arc<Mutex<Option<Tree>>>,
}

impl Site {
    /// A site that has never been started.
    pub fn new(name: &str, network: &MemNetwork, clock: SimClock, random: Random, limits: Limits) -> Self {
        Self {
            id: ClusterId::new(name).expect("a valid name"),
            network: network.clone(),
            faults: DiskFaults::from_seed(random.next_u64()),
            random,
            limits,
            settings: TreeConfig { partitions: 4, ..TreeConfig::new(TREE) },
            clock,
            disk: MemDisk::new(),
            meta: MemMeta::new(),
            peers: Vec::new(),
            cluster: None,
            tree: Arc::default(),
        }
    }

    /// Its name.
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// Sends to another site and takes from it, from the next start.
    pub fn connect(&mut self, other: &ClusterId) {
        self.link(other, true, false);
    }

    /// Takes from another site, and sends to it if told so, as a relay or its own writes alone. From the next start; said
    /// again it replaces what was said before.
    pub fn link(&mut self, other: &ClusterId, send: bool, forward: impl Into<Forward>) {
        self.peers.retain(|peer| peer.id != other.as_str());
        let peer = Peer::new(other.as_str(), format!("mem://{other}")).forward(forward);
        self.peers.push(Peer { send, ..peer });
    }

    /// Takes nothing from another site, which never sends its own writes here. From the next start.
    pub fn only_send(&mut self, other: &ClusterId) {
        self.peers.iter_mut().filter(|peer| peer.id == other.as_str()).for_each(|peer| peer.receive = false);
    }

    /// Knows nothing of another site, from the next start.
    pub fn forget(&mut self, other: &ClusterId) {
        self.peers.retain(|peer| peer.id != other.as_str());
    }

    /// Knows nobody any more, from the next start.
    pub fn alone(&mut self) {
        self.peers.clear();
    }

    /// Tells the running site of the peers that it does not know yet.
    pub async fn join(&self) {
        let cluster = self.cluster.as_ref().expect("it runs");
        for peer in &self.peers {
            cluster.add_peer(peer.clone()).await.expect("a new peer");
        }
    }

    /// Changes the settings of its tree, from the next start.
    pub fn configure(&mut self, change: impl FnOnce(&mut TreeConfig)) {
        change(&mut self.settings);
    }

    /// Changes its bounds, from the next start.
    pub fn limit(&mut self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.limits);
    }

    /// Starts it.
    ///
    /// # Errors
    /// When it cannot open its files.
    pub async fn start(&mut self) -> Result<(), Error> {
        assert!(self.cluster.is_none(), "a site runs once");
        let cluster = Cluster::builder(self.config())
            .disk(Arc::new(FaultyDisk::over_memory(self.disk.clone(), self.faults.clone())))
            .meta(Arc::new(self.meta.clone()))
            .wall(Arc::new(self.clock.clone()))
            .transport(Arc::new(self.network.endpoint(&self.id)))
            .random(self.random.fork())
            .limits(self.limits.clone())
            .simulated(Duration::from_millis(3))
            .open()
            .await?;
        for peer in &self.peers {
            cluster.add_peer(peer.clone()).await?;
        }
        *self.tree.lock() = Some(cluster.tree(TREE).await?);
        self.cluster = Some(cluster);
        Ok(())
    }

    fn config(&self) -> ClusterConfig {
        let mut config = ClusterConfig::new(self.id.as_str(), format!("/data/{}", self.id));
        config.trees = vec![self.settings.clone()];
        config
    }

    /// Has the running site take over the settings that it would start with, as far as that is possible.
    ///
    /// # Errors
    /// As [`Cluster::reload`].
    pub async fn reload(&self) -> Result<Reloaded, Error> {
        self.cluster.as_ref().expect("it runs").reload(self.config()).await
    }

    /// Kills it as a loss of power would: links break, what was not synced may be lost, nothing is said to anybody.
    pub async fn crash(&mut self) {
        self.network.kill(&self.id);
        self.tree.lock().take();
        self.disk = self.disk.crash(self.random.next_u64());
        self.meta = self.meta.crash();
        if let Some(cluster) = self.cluster.take() {
            cluster.abort().await;
        }
    }

    /// Stops it in order.
    pub async fn stop(&mut self) {
        self.tree.lock().take();
        if let Some(cluster) = self.cluster.take() {
            cluster.shutdown().await.expect("a clean stop");
        }
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.cluster.is_some()
    }

    /// The running cluster.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// A copy of its files as they are, to be put back later.
    pub fn backup(&self) -> (MemDisk, MemMeta) {
        (self.disk.copy(), self.meta.copy())
    }

    /// Puts back a copy of its files. Only while it is down.
    pub fn restore(&mut self, backup: (MemDisk, MemMeta)) {
        assert!(self.cluster.is_none(), "files are put back while the site is down");
        (self.disk, self.meta) = backup;
    }

    /// The tree, while the site runs; shared with the writers.
    pub fn tree(&self) -> Option<Tree> {
        self.tree.lock().clone()
    }

    /// Where writers look for the tree.
    pub(crate) fn slot(&self) -> Arc<Mutex<Option<Tree>>> {
        self.tree.clone()
    }
}
