//! [`Links`]: the exchange with other clusters, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_applier::{Applier, ApplierMetrics, ReceiveState, ReceiveStatus, Server, ServerConfig};
use tidewire_core::clock::WallClock;
use tidewire_core::cursors::Registry;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::gc::{Keeper, Pressure};
use tidewire_core::id::{BootId, ClusterId, TreeName};
use tidewire_core::limits::Limits;
use tidewire_core::meta::MetaStore;
use tidewire_core::metrics::{BufferMetrics, Metrics};
use tidewire_core::random::Random;
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::{DialTarget, Transport};
use tidewire_core::tree::{Members, Tree};
use tidewire_shipper::{ShipperConfig, ShipperHandle, ShipperMetrics, ShipperState, ShipperStatus};

use super::collecting::{release, window};
use super::consumers::{flush, hold, keep_collected, keep_cursors};
use crate::config::Peer;
use crate::status::{Direction, Lag, PeerState, PeerStatus};

/// How long a stopping cluster waits for peers to acknowledge what they have not yet.
const FAREWELL: Duration = Duration::from_secs(5);

/// A tree that takes part in the exchange.
#[derive(Clone)]
struct Enrolled {
    tree: Tree,
    applier: Applier,
    cursors: Arc<Registry>,
    /// One pass of the collector at a time.
    collecting: Arc<tokio::sync::Mutex<()>>,
    pressure: Arc<Pressure>,
}

/// The consumers of a tree's log, for whoever collects it.
pub(super) struct Consumers {
    pub(super) tree: Tree,
    pub(super) registry: Arc<Registry>,
    pub(super) collecting: Arc<tokio::sync::Mutex<()>>,
    pub(super) pressure: Arc<Pressure>,
}

/// A shipper that is to be started.
struct Missing {
    peer: ClusterId,
    url: String,
    forward: bool,
    enrolled: Enrolled,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<ClusterId, Peer>,
    trees: BTreeMap<TreeName, Enrolled>,
    shippers: BTreeMap<(ClusterId, TreeName), ShipperHandle>,
}

impl State {
    /// Tells each tree with whom it is exchanged.
    fn declare_members(&self) {
        for (name, enrolled) in &self.trees {
            let takes_part =
                |peer: &Peer| peer.trees.is_empty() || peer.trees.iter().any(|tree| tree == name.as_str());
            let joined = self.peers.iter().filter(|(_, peer)| takes_part(peer)).map(|(id, _)| id.clone());
            enrolled.tree.declare_members(Members { joined: joined.collect(), sealed: BTreeSet::new() });
        }
    }
}

/// The links of a cluster.
pub(super) struct Links {
    id: ClusterId,
    boot: BootId,
    transport: Option<Arc<dyn Transport>>,
    wall: Arc<dyn WallClock>,
    shipper_metrics: ShipperMetrics,
    applier_metrics: ApplierMetrics,
    server: Mutex<Option<Server>>,
    state: Mutex<State>,
    stopping: AtomicBool,
}

impl Links {
    pub(super) fn new(
        id: &ClusterId,
        boot: BootId,
        transport: Option<Arc<dyn Transport>>,
        wall: Arc<dyn WallClock>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            id: id.clone(),
            boot,
            transport,
            wall,
            shipper_metrics: ShipperMetrics::new(metrics),
            applier_metrics: ApplierMetrics::new(metrics),
            server: Mutex::default(),
            state: Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Starts to take links. Nobody is let in before a peer is allowed and a tree is enrolled.
    pub(super) async fn listen(&self, tasks: &Tasks) -> Result<(), Error> {
        let Some(transport) = &self.transport else { return Ok(()) };
        let listener = transport.listen().await?;
        let config = ServerConfig { cluster: self.id.clone(), boot: self.boot };
        *self.server.lock() = Some(Server::spawn(tasks, listener, config));
        Ok(())
    }

    /// Where peers dial this cluster.
    pub(super) fn address(&self) -> Option<String> {
        self.server.lock().as_ref().map(|server| server.address().to_owned())
    }

    /// Starts the applier of a tree, once.
    pub(super) async fn enroll_tree(
        &self,
        tasks: &Tasks,
        tree: &Tree,
        meta: Arc<dyn MetaStore>,
        limits: &Limits,
        random: &Random,
    ) -> Result<(), Error> {
        let name = tree.identity().tree.clone();
        let log = tree.clone();
        let cursors = Arc::new(Registry::open(meta, &name).await?.over(move || window(&log)));
        let mut state = self.state.lock();
        if state.trees.contains_key(&name) {
            return Ok(());
        }
        keep_cursors(tasks, &name, cursors.clone());
        let settings = tidewire_applier::Settings {
            max_record_bytes: limits.max_record_bytes,
            // Half of what may be pending, so that local writes leave room for it.
            apply_bytes: (limits.pending_bytes as u64 / 2).max(4 * 1024),
            ..tidewire_applier::Settings::default()
        };
        let applier = Applier::spawn(tasks, Arc::new(tree.clone()), settings, &self.applier_metrics)?;
        if let Some(server) = &*self.server.lock() {
            server.enroll_tree(applier.clone());
        }
        let (collecting, pressure) = (Arc::default(), Arc::default());
        let enrolled = Enrolled { tree: tree.clone(), applier, cursors, collecting, pressure };
        let keeper = Keeper {
            tree: enrolled.tree.clone(),
            registry: enrolled.cursors.clone(),
            turn: enrolled.collecting.clone(),
            pressure: enrolled.pressure.clone(),
            limits: limits.clone(),
            random: random.fork(),
        };
        keep_collected(tasks, keeper);
        state.trees.insert(name, enrolled);
        state.declare_members();
        Ok(())
    }

    /// Who follows a tree's log.
    pub(super) fn cursors(&self, tree: &TreeName) -> Result<Arc<Registry>, Error> {
        let state = self.state.lock();
        let enrolled = state.trees.get(tree);
        let nothing = || Error::new(ErrorKind::NotFound, format!("there is no tree {tree}"));
        enrolled.map(|enrolled| enrolled.cursors.clone()).ok_or_else(nothing)
    }

    /// Lets a peer in.
    pub(super) fn allow(&self, id: &ClusterId, peer: Peer) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.peers.contains_key(id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("peer {id} is there already; remove it first"),
            ));
        }
        let trees: Result<Vec<TreeName>, Error> = peer.trees.iter().map(TreeName::new).collect();
        let trees = trees?;
        if let Some(server) = &*self.server.lock() {
            server.allow(id, (!trees.is_empty()).then(|| trees.into_iter().collect()));
        }
        state.peers.insert(id.clone(), peer);
        state.declare_members();
        Ok(())
    }

    /// Starts the shippers that are missing: one for each peer that is sent to, and tree. Each is registered as a consumer
    /// of the log, durably, before it reads.
    pub(super) async fn connect(&self, tasks: &Tasks, random: &Random) -> Result<(), Error> {
        let Some(transport) = &self.transport else { return Ok(()) };
        for missing in self.missing()? {
            let name = missing.enrolled.tree.identity().tree.clone();
            let consumer = consumer(&missing.peer);
            let checkpoint = missing.enrolled.cursors.register(&consumer).await?;
            let mut state = self.state.lock();
            let place = (missing.peer.clone(), name);
            if state.shippers.contains_key(&place) || !state.peers.contains_key(&missing.peer) {
                continue;
            }
            let mut known: Vec<ClusterId> = state.peers.keys().cloned().collect();
            known.push(self.id.clone());
            let config = ShipperConfig {
                peer: DialTarget { peer: missing.peer, url: missing.url },
                forward: missing.forward,
                hold: hold(&missing.enrolled.cursors, &consumer),
                boot: self.boot,
                known_clusters: Arc::new(move || known.clone()),
                transport: transport.clone(),
                settings: tidewire_shipper::Settings::default(),
                wall: self.wall.clone(),
                metrics: self.shipper_metrics.clone(),
            };
            let (log, cursors) = (Arc::new(missing.enrolled.tree), missing.enrolled.cursors);
            let durable = Arc::new(move |cursor| {
                cursors.report(&consumer, cursor);
            });
            let shipper = tidewire_shipper::spawn(tasks, config, log, random.fork(), checkpoint, durable);
            state.shippers.insert(place, shipper);
        }
        Ok(())
    }

    fn missing(&self) -> Result<Vec<Missing>, Error> {
        let state = self.state.lock();
        let mut missing = Vec::new();
        for (id, peer) in state.peers.iter().filter(|(_, peer)| peer.send) {
            let Some(url) = &peer.url else {
                let said = format!("peer {id} has no url to send to; give one, or set send = false");
                return Err(Error::new(ErrorKind::Invalid, said));
            };
            let wanted = |name: &TreeName| {
                let listed = peer.trees.is_empty() || peer.trees.iter().any(|tree| tree == name.as_str());
                listed && !state.shippers.contains_key(&(id.clone(), name.clone()))
            };
            for (_, enrolled) in state.trees.iter().filter(|(name, _)| wanted(name)) {
                missing.push(Missing {
                    peer: id.clone(),
                    url: url.clone(),
                    forward: peer.forward,
                    enrolled: enrolled.clone(),
                });
            }
        }
        Ok(missing)
    }

    /// Which trees a peer exchanges; empty: all.
    pub(super) fn exchanged(&self, id: &ClusterId) -> Result<Vec<String>, Error> {
        let state = self.state.lock();
        let nobody = || Error::new(ErrorKind::NotFound, format!("there is no peer {id}"));
        state.peers.get(id).map(|peer| peer.trees.clone()).ok_or_else(nobody)
    }

    /// Has every link into a tree begin anew.
    pub(super) fn restart_links(&self, tree: &TreeName) {
        if let Some(server) = &*self.server.lock() {
            server.restart_links(tree);
        }
    }

    /// Whose seed comes into a tree, and how many bytes have come.
    pub(super) fn seed_of(&self, tree: &TreeName) -> Option<(ClusterId, u64)> {
        self.state.lock().trees.get(tree)?.applier.seed()
    }

    /// Ends the exchange with a peer. Answers how many bytes of logs only this peer held.
    pub(super) async fn remove(&self, id: &ClusterId) -> Result<u64, Error> {
        let ended: Vec<ShipperHandle> = {
            let mut state = self.state.lock();
            if state.peers.remove(id).is_none() {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no peer {id}")));
            }
            let places: Vec<_> = state.shippers.keys().filter(|(peer, _)| peer == id).cloned().collect();
            places.iter().filter_map(|place| state.shippers.remove(place)).collect()
        };
        for shipper in ended {
            shipper.stop().await;
        }
        let server = self.server.lock().clone();
        if let Some(server) = server {
            server.remove(id).await;
        }
        let trees: Vec<Enrolled> = self.state.lock().trees.values().cloned().collect();
        let mut freed = 0;
        for enrolled in trees {
            freed += release(&enrolled.tree, &enrolled.cursors, &consumer(id)).await?;
        }
        tracing::info!(peer = %id, bytes = freed, "peer removed; these bytes of the log are no longer held for it");
        Ok(freed)
    }

    /// Releases what is held for clusters that are sent to no more. Answers how many bytes of logs only they held.
    pub(super) async fn release_unlisted(&self) -> Result<u64, Error> {
        let (trees, listed) = {
            let state = self.state.lock();
            let sent_to = state.peers.iter().filter(|(_, peer)| peer.send).map(|(id, _)| consumer(id));
            let trees: Vec<Enrolled> = state.trees.values().cloned().collect();
            (trees, sent_to.collect::<BTreeSet<String>>())
        };
        let mut freed = 0;
        for enrolled in trees {
            for known in enrolled.cursors.consumers() {
                if !known.name.starts_with(PEER) || listed.contains(&known.name) {
                    continue;
                }
                let bytes = release(&enrolled.tree, &enrolled.cursors, &known.name).await?;
                let tree = &enrolled.tree.identity().tree;
                tracing::info!(consumer = known.name, %tree, bytes, "peer is not listed any more; these bytes of the log are no longer held for it");
                freed += bytes;
            }
        }
        Ok(freed)
    }

    /// The consumers of a tree, if it takes part.
    pub(super) fn consumers_of(&self, tree: &str) -> Option<Consumers> {
        let state = self.state.lock();
        let enrolled = state.trees.get(&TreeName::new(tree).ok()?)?;
        Some(Consumers {
            tree: enrolled.tree.clone(),
            registry: enrolled.cursors.clone(),
            collecting: enrolled.collecting.clone(),
            pressure: enrolled.pressure.clone(),
        })
    }

    /// From now on the cluster is not ready.
    pub(super) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether stopping has begun.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Tells peers what they have not acknowledged yet, for a while, then says goodbye on every link.
    pub(super) async fn stop(&self, budget: Duration) {
        let shippers: Vec<ShipperHandle> = self.state.lock().shippers.values().cloned().collect();
        let farewell = FAREWELL.min(budget);
        let reachable = shippers.iter().map(|shipper| async move {
            let connected =
                matches!(shipper.status().state, ShipperState::Streaming | ShipperState::CaughtUp);
            if connected {
                shipper.drain(farewell).await;
            } else {
                shipper.stop().await;
            }
        });
        futures::future::join_all(reachable).await;
        let server = self.server.lock().clone();
        if let Some(server) = server {
            server.stop().await;
        }
        let trees: Vec<Enrolled> = self.state.lock().trees.values().cloned().collect();
        for enrolled in trees {
            enrolled.applier.stop();
            flush(&enrolled.tree.identity().tree, &enrolled.cursors).await;
        }
    }

    /// Every link: one entry for each peer, tree and direction.
    pub(super) fn status(&self) -> Vec<PeerStatus> {
        let now = self.wall.now_millis();
        let state = self.state.lock();
        let sending = state
            .shippers
            .iter()
            .map(|((peer, tree), shipper)| send_status(peer, tree, &shipper.status(), now));
        let mut all: Vec<PeerStatus> = sending.collect();
        drop(state);
        if let Some(server) = &*self.server.lock() {
            all.extend(server.status().into_iter().map(|status| receive_status(status, now)));
        }
        all.sort_by(|a, b| (&a.id, &a.tree, a.direction as u8).cmp(&(&b.id, &b.tree, b.direction as u8)));
        all
    }

    /// Shows what waits in the appliers.
    pub(super) fn show_buffers(&self, buffers: &BufferMetrics) {
        for (name, enrolled) in &self.state.lock().trees {
            let (bytes, budget) = enrolled.applier.buffered();
            buffers.show(name.as_str(), "apply", bytes, budget);
        }
    }
}

/// How names of peers begin among the consumers of a log.
const PEER: &str = "peer ";

/// The name of a peer among the consumers of a log.
fn consumer(peer: &ClusterId) -> String {
    format!("{PEER}{peer}")
}

fn send_status(peer: &ClusterId, tree: &TreeName, status: &ShipperStatus, now: u64) -> PeerStatus {
    PeerStatus {
        id: peer.to_string(),
        tree: tree.to_string(),
        direction: Direction::Send,
        state: match status.state {
            ShipperState::Connecting => PeerState::Connecting,
            ShipperState::Streaming => PeerState::Streaming,
            ShipperState::CaughtUp => PeerState::CaughtUp,
            ShipperState::Waiting => PeerState::Waiting,
            ShipperState::Paused => PeerState::Paused,
            ShipperState::Refused => PeerState::Refused,
            ShipperState::FellOff => PeerState::FellOff,
        },
        reason: status.reason.clone(),
        lag: Lag { entries: status.lag.entries, bytes: status.lag.bytes, seconds: status.lag.seconds as f64 },
        last_ack: status
            .last_ack
            .map(|ago| now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))),
    }
}

fn receive_status(status: ReceiveStatus, now: u64) -> PeerStatus {
    let waits = status.waits_for.map(|waits| {
        format!(
            "{} bytes wait for writes of {} up to {} since {:.1} s",
            waits.bytes, waits.origin, waits.hlc, waits.seconds
        )
    });
    PeerStatus {
        id: status.id,
        tree: status.tree,
        direction: Direction::Receive,
        state: match status.state {
            ReceiveState::Connecting => PeerState::Connecting,
            ReceiveState::Streaming => PeerState::Streaming,
            ReceiveState::CaughtUp => PeerState::CaughtUp,
            ReceiveState::Waiting => PeerState::Waiting,
            ReceiveState::Refused => PeerState::Refused,
        },
        reason: status.reason.or(waits),
        lag: Lag { entries: status.lag.entries, bytes: status.lag.bytes, seconds: status.lag.seconds },
        last_ack: status.last_page_seconds.map(|ago| now.saturating_sub((ago * 1_000.0) as u64)),
    }
}
