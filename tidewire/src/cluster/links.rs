//! [`Links`]: the exchange with other clusters, both ways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_applier::{Applier, ApplierMetrics, Server, ServerConfig};
use tidewire_core::clock::WallClock;
use tidewire_core::cursors::Registry;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::gc::{Keeper, Pressure};
use tidewire_core::id::{BootId, ClusterId, TreeName};
use tidewire_core::limits::Limits;
use tidewire_core::meta::MetaStore;
use tidewire_core::metrics::{BufferMetrics, Metrics};
use tidewire_core::random::Random;
use tidewire_core::sink::News;
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::{DialTarget, Transport};
use tidewire_core::tree::Tree;
use tidewire_shipper::{ShipperConfig, ShipperHandle, ShipperMetrics, ShipperState};

use super::collecting::window;
use super::consumers::{flush, hold, keep_collected, keep_cursors};
use super::flows::Flows;
use super::membership::{Roll, exchanges};
use crate::config::Peer;

/// How long a stopping cluster waits for peers to acknowledge what they have not yet.
const FAREWELL: Duration = Duration::from_secs(5);

/// A tree that takes part in the exchange.
#[derive(Clone)]
pub(super) struct Enrolled {
    pub(super) tree: Tree,
    pub(super) applier: Applier,
    pub(super) cursors: Arc<Registry>,
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
    settings: Peer,
    url: String,
    paused: bool,
    enrolled: Enrolled,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) roll: Roll,
    pub(super) trees: BTreeMap<TreeName, Enrolled>,
    pub(super) shippers: BTreeMap<(ClusterId, TreeName), ShipperHandle>,
    /// Whether everybody is on the roll who was a peer before this start.
    pub(super) complete: bool,
    /// The names of all peers, for whoever says hello.
    names: Arc<Mutex<Vec<ClusterId>>>,
}

impl State {
    /// Tells each tree with whom it is exchanged, and those who say hello who there is.
    pub(super) fn declare(&self) {
        for (name, enrolled) in self.trees.iter().filter(|_| self.complete) {
            enrolled.tree.declare_members(self.roll.members(name));
        }
        *self.names.lock() = self.roll.peers().map(|(id, _)| id.clone()).collect();
    }
}

/// The links of a cluster.
pub(super) struct Links {
    pub(super) id: ClusterId,
    boot: BootId,
    pub(super) meta: Arc<dyn MetaStore>,
    transport: Option<Arc<dyn Transport>>,
    pub(super) wall: Arc<dyn WallClock>,
    pub(super) shipper_metrics: ShipperMetrics,
    applier_metrics: ApplierMetrics,
    pub(super) flows: Flows,
    /// Whether peers are dialled by the addresses that are in their urls.
    pub(super) dials_urls: bool,
    /// Who got through, for those that try again.
    news: News,
    server: Mutex<Option<Server>>,
    pub(super) state: Mutex<State>,
    /// One change of the peers at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
}

impl Links {
    pub(super) fn new(
        id: &ClusterId,
        boot: BootId,
        meta: Arc<dyn MetaStore>,
        transport: Option<Arc<dyn Transport>>,
        wall: Arc<dyn WallClock>,
        metrics: &Metrics,
        flows: Flows,
    ) -> Self {
        Self {
            id: id.clone(),
            boot,
            meta,
            transport,
            wall,
            shipper_metrics: ShipperMetrics::new(metrics),
            applier_metrics: ApplierMetrics::new(metrics),
            flows,
            dials_urls: false,
            news: News::default(),
            server: Mutex::default(),
            state: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Peers are dialled by the addresses in their urls, which are looked at then.
    pub(super) fn dialling_urls(self, dials_urls: bool) -> Self {
        Self { dials_urls, ..self }
    }

    /// Starts to take links. Nobody is let in before a peer is allowed and a tree is enrolled.
    pub(super) async fn listen(&self, tasks: &Tasks) -> Result<(), Error> {
        let Some(transport) = &self.transport else { return Ok(()) };
        let listener = transport.listen().await?;
        let (cluster, news) = (self.id.clone(), self.news.clone());
        let config = ServerConfig { cluster, boot: self.boot, news };
        *self.server.lock() = Some(Server::spawn(tasks, listener, config));
        Ok(())
    }

    /// The receiving side, once it listens.
    pub(super) fn server(&self) -> Option<Server> {
        self.server.lock().clone()
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
        limits: &Limits,
        random: &Random,
        apply_after: Option<Duration>,
    ) -> Result<(), Error> {
        let name = tree.identity().tree.clone();
        let log = tree.clone();
        let cursors = Arc::new(Registry::open(self.meta.clone(), &name).await?.over(move || window(&log)));
        let mut state = self.state.lock();
        if state.trees.contains_key(&name) {
            return Ok(());
        }
        keep_cursors(tasks, &name, cursors.clone());
        let settings = tidewire_applier::Settings {
            max_record_bytes: limits.max_record_bytes,
            // Half of what may be pending, so that local writes leave room for it.
            apply_bytes: (limits.pending_bytes as u64 / 2).max(4 * 1024),
            relay_after: limits.relay_after,
            apply_after,
            buffer_bytes: limits.apply_buffer_bytes,
            ..tidewire_applier::Settings::default()
        };
        let settings = tidewire_applier::Settings {
            initial_credit_bytes: settings.initial_credit_bytes.min(settings.buffer_bytes),
            ..settings
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
        state.declare();
        Ok(())
    }

    /// Who follows a tree's log.
    pub(super) fn cursors(&self, tree: &TreeName) -> Result<Arc<Registry>, Error> {
        let state = self.state.lock();
        let enrolled = state.trees.get(tree);
        let nothing = || Error::new(ErrorKind::NotFound, format!("there is no tree {tree}"));
        enrolled.map(|enrolled| enrolled.cursors.clone()).ok_or_else(nothing)
    }

    /// Starts the shippers that are missing: one for each peer that is sent to, and tree; at rest where the peer is paused.
    /// Each is registered as a consumer of the log, durably, before it reads.
    pub(super) async fn start_missing(&self, tasks: &Tasks, random: &Random) -> Result<(), Error> {
        let Some(transport) = &self.transport else { return Ok(()) };
        for missing in self.missing()? {
            let name = missing.enrolled.tree.identity().tree.clone();
            let consumer = consumer(&missing.peer);
            let checkpoint = missing.enrolled.cursors.register(&consumer).await?;
            missing.enrolled.cursors.expect(&consumer);
            let mut state = self.state.lock();
            let place = (missing.peer.clone(), name);
            let (names, me) = (state.names.clone(), self.id.clone());
            let config = ShipperConfig {
                peer: DialTarget { peer: missing.peer, url: missing.url },
                forward: missing.settings.forward,
                hold: hold(&missing.enrolled.cursors, &consumer),
                boot: self.boot,
                known_clusters: Arc::new(move || names.lock().iter().chain([&me]).cloned().collect()),
                transport: transport.clone(),
                settings: self.flows.settings(&place.0, &missing.settings, &place.1),
                wall: self.wall.clone(),
                metrics: self.shipper_metrics.clone(),
                news: self.news.clone(),
            };
            let (log, cursors) = (Arc::new(missing.enrolled.tree), missing.enrolled.cursors);
            let shipper = if missing.paused {
                ShipperHandle::resting(config, log, checkpoint)
            } else {
                let durable = Arc::new(move |cursor| {
                    cursors.report(&consumer, cursor);
                });
                tidewire_shipper::spawn(tasks, config, log, random.fork(), checkpoint, durable)
            };
            state.shippers.insert(place, shipper);
        }
        Ok(())
    }

    fn missing(&self) -> Result<Vec<Missing>, Error> {
        let state = self.state.lock();
        let mut missing = Vec::new();
        for (id, peer, paused) in state.roll.active().filter(|(_, peer, _)| peer.send) {
            let Some(url) = &peer.url else {
                let said = format!("peer {id} has no url to send to; give one, or set send = false");
                return Err(Error::new(ErrorKind::Invalid, said));
            };
            let wanted = |name: &TreeName| {
                exchanges(peer, name) && !state.shippers.contains_key(&(id.clone(), name.clone()))
            };
            for (_, enrolled) in state.trees.iter().filter(|(name, _)| wanted(name)) {
                missing.push(Missing {
                    peer: id.clone(),
                    settings: peer.clone(),
                    url: url.clone(),
                    paused,
                    enrolled: enrolled.clone(),
                });
            }
        }
        Ok(missing)
    }

    /// Which trees a peer exchanges; empty: all.
    pub(super) fn exchanged(&self, id: &ClusterId) -> Result<Vec<String>, Error> {
        Ok(self.state.lock().roll.peer(id)?.trees.clone())
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

    /// Which peers cannot seed a tree, and why; and how many others may ship it.
    pub(super) fn unfit_givers(&self, tree: &TreeName) -> (Vec<String>, usize) {
        self.server().map_or_else(Default::default, |server| server.unfit_givers(tree))
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

    /// Shows what waits in the appliers.
    pub(super) fn show_buffers(&self, buffers: &BufferMetrics) {
        for (name, enrolled) in &self.state.lock().trees {
            let (bytes, budget) = enrolled.applier.buffered();
            buffers.show(name.as_str(), "apply", bytes, budget);
        }
    }
}

/// How names of peers begin among the consumers of a log.
pub(super) const PEER: &str = "peer ";

/// The name of a peer among the consumers of a log.
pub(super) fn consumer(peer: &ClusterId) -> String {
    format!("{PEER}{peer}")
}
