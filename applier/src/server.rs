//! [`Server`]: accepts the links of a cluster's peers and decides who may ship what. One per cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::id::{BootId, ClusterId, Incarnation, OriginTag, SessionNumber, TreeName};
use tidewire_core::sink::News;
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::{Link, Listener, wire};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::applier::Applier;
use crate::hello::{self, Caller, Known};
use crate::link::{Admission, serve};
use crate::port::{Ending, Port};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::MAX_STRANGERS;
use crate::slot::Slot;
use crate::status::ReceiveStatus;

/// Who this cluster is.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name.
    pub cluster: ClusterId,
    /// This run of it.
    pub boot: BootId,
    /// Where to say that a peer came in: whoever could not be reached may be there again too.
    pub news: News,
}

/// A peer that may call.
#[derive(Debug)]
pub(crate) struct Peer {
    /// What it may ship; None: every tree that is open here.
    trees: Option<BTreeSet<TreeName>>,
    /// Its links rest by order.
    pub(crate) paused: bool,
    pub(crate) slots: BTreeMap<TreeName, Arc<Slot>>,
}

impl Peer {
    fn may_ship(&self, tree: &TreeName) -> bool {
        self.trees.as_ref().is_none_or(|trees| trees.contains(tree))
    }

    fn slot(&mut self, peer: &ClusterId, applier: &Applier) -> Arc<Slot> {
        let new =
            || Arc::new(Slot::new(peer.clone(), applier.families().peer(&applier.identity().tree, peer)));
        self.slots.entry(applier.identity().tree.clone()).or_insert_with(new).clone()
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) peers: BTreeMap<ClusterId, Peer>,
    pub(crate) trees: BTreeMap<TreeName, Applier>,
    /// Clusters of which nothing is taken, over whatever link.
    pub(crate) sealed: BTreeSet<ClusterId>,
    sessions: u64,
}

pub(crate) struct Inner {
    pub(crate) config: ServerConfig,
    pub(crate) stop: CancellationToken,
    pub(crate) state: Mutex<State>,
    links: TaskTracker,
    accepting: TaskTracker,
}

/// Accepts links. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
    address: Arc<str>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts to accept links. Nobody is let in before [`allow`](Self::allow) and [`enroll_tree`](Self::enroll_tree).
    pub fn spawn(tasks: &Tasks, listener: Box<dyn Listener>, config: ServerConfig) -> Self {
        let address = listener.address().into();
        let inner = Arc::new(Inner {
            config,
            stop: tasks.stop_token().child_token(),
            state: Mutex::default(),
            links: TaskTracker::new(),
            accepting: TaskTracker::new(),
        });
        let token = inner.accepting.token();
        let (server, own_tasks) = (inner.clone(), tasks.clone());
        tasks.spawn("accept links", async move {
            accept(listener, server, &own_tasks).await;
            drop(token);
        });
        inner.accepting.close();
        Self { inner, address }
    }

    /// The address that peers can dial.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a tree to the peers that may ship it. An applier that was there before is replaced.
    pub fn enroll_tree(&self, applier: Applier) {
        let mut state = self.inner.state.lock();
        let tree = applier.identity().tree.clone();
        for (name, peer) in &mut state.peers {
            if peer.may_ship(&tree) {
                applier.metrics(name);
                peer.slot(name, &applier);
            }
        }
        state.trees.insert(tree, applier);
    }

    /// Closes a tree to all peers; their sessions end.
    pub fn close_tree(&self, tree: &TreeName) {
        let mut state = self.inner.state.lock();
        state.trees.remove(tree);
        for slot in state.peers.values_mut().filter_map(|peer| peer.slots.remove(tree)) {
            slot.end(Ending::Goodbye("the tree was closed"));
        }
    }

    /// Lets a peer ship the given trees, or all (None). For a peer that is there already, changes which.
    pub fn allow(&self, peer: &ClusterId, trees: Option<BTreeSet<TreeName>>) {
        let mut state = self.inner.state.lock();
        let State { peers, trees: open, .. } = &mut *state;
        let entry = peers.entry(peer.clone()).or_insert_with(|| Peer {
            trees: None,
            paused: false,
            slots: BTreeMap::new(),
        });
        entry.trees = trees;
        for (tree, applier) in open.iter() {
            if entry.may_ship(tree) {
                applier.metrics(peer);
                entry.slot(peer, applier);
            } else if let Some(slot) = entry.slots.remove(tree) {
                let detail =
                    format!("{peer} may no longer ship tree {tree} to {}", self.inner.config.cluster);
                slot.end(Ending::Refused(Refusal::new(RefusalKind::UnknownTree, detail)));
            }
        }
    }

    /// Ends every session on a tree in order, so that each begins anew with what the tree says then.
    pub fn restart_links(&self, tree: &TreeName) {
        let state = self.inner.state.lock();
        for slot in state.peers.values().filter_map(|peer| peer.slots.get(tree)) {
            slot.end(Ending::Goodbye("the tree asks for a snapshot"));
        }
    }

    /// Takes a peer off the list: its sessions end, and what waits of its writes and of what it forwarded is dropped, not
    /// acknowledged, unless another peer brings the same. Also clears what was noted against it.
    pub async fn remove(&self, peer: &ClusterId) {
        let appliers = {
            let mut state = self.inner.state.lock();
            let Some(removed) = state.peers.remove(peer) else { return };
            let detail = format!("{peer} is no longer a peer of {}", self.inner.config.cluster);
            let mut forgotten = Vec::new();
            for (tree, slot) in &removed.slots {
                let mut origins = slot.carried();
                origins.push(peer.tag());
                slot.end(Ending::Refused(Refusal::new(RefusalKind::UnknownPeer, detail.clone())));
                let others = state.peers.values().filter_map(|other| other.slots.get(tree));
                let brought: BTreeSet<OriginTag> = others.flat_map(|slot| slot.carried()).collect();
                origins.retain(|origin| !brought.contains(origin));
                state.trees.get(tree).inspect(|applier| applier.families().forget(tree, peer));
                forgotten.extend(state.trees.get(tree).map(|applier| (applier.clone(), origins)));
            }
            forgotten
        };
        for (applier, origins) in appliers {
            applier.forget(origins).await;
        }
    }

    /// How every tree stands with every peer that may ship it, by peer and tree. Also brings the gauges up to date: call it
    /// before metrics are rendered.
    pub fn status(&self) -> Vec<ReceiveStatus> {
        let state = self.inner.state.lock();
        let slots = state.peers.values().flat_map(|peer| peer.slots.iter().map(|slot| (slot, peer.paused)));
        slots.filter_map(|((tree, slot), paused)| Some(slot.status(state.trees.get(tree)?, paused))).collect()
    }

    /// Which peers cannot seed a tree, and why, as far as they have said what they hold; and how many others may ship it.
    pub fn unfit_givers(&self, tree: &TreeName) -> (Vec<String>, usize) {
        let state = self.inner.state.lock();
        let slots: Vec<_> = state.peers.values().filter_map(|peer| peer.slots.get(tree)).collect();
        let unfit: Vec<String> = slots.iter().filter_map(|slot| slot.unfit()).collect();
        let others = slots.len() - unfit.len();
        (unfit, others)
    }

    /// Says goodbye on every link, waits until all have ended, and frees the address.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.accepting.wait().await;
    }
}

impl Inner {
    /// Decides whether a caller may come in, and gives its session a number.
    pub(crate) fn admit(&self, hello: &wire::Hello) -> Result<Admission, Refusal> {
        let caller = hello::identify(hello)?;
        let mut state = self.state.lock();
        let State { peers, trees, sessions, sealed } = &mut *state;
        let applier = trees.get(&caller.tree);
        // Looked at before what is held: what changes after that ends the session.
        let epoch = applier.map(|applier| applier.view().get().epoch);
        let held = applier.map(|applier| applier.target().interest()).unwrap_or_default();
        let origin = caller.peer.tag();
        let known = Known {
            cluster: &self.config.cluster,
            boot: self.config.boot,
            peers: peers.keys().collect(),
            allowed: peers.get(&caller.peer).map(|peer| peer.may_ship(&caller.tree)),
            paused: peers.get(&caller.peer).is_some_and(|peer| peer.paused),
            sealed: sealed.contains(&caller.peer),
            tree: applier.map(|applier| {
                let marks =
                    applier.target().progress().watermarks.origin(origin).map(|marks| marks.incarnation());
                (applier.identity().clone(), held.clone(), marks)
            }),
        };
        let checked = hello::check(hello, &caller, &known);
        let entry = peers.get_mut(&caller.peer).filter(|peer| peer.may_ship(&caller.tree));
        let Some((peer, applier)) = entry.zip(applier.cloned()) else {
            return Err(checked.expect_err("the door lets in only peers that may ship a tree that is open"));
        };
        let slot = peer.slot(&caller.peer, &applier);
        if let Err(refusal) = checked {
            slot.refused(&refusal);
            return Err(refusal);
        }
        if let Some(refusal) = slot.shut() {
            return Err(refusal);
        }
        let unfit = caller.unfit(&held);
        let cannot = unfit.is_some();
        if slot.is_unfit(unfit) && cannot && wishes_from(&applier, &caller.peer) {
            // Whoever else has a link was not asked.
            let others = peers.iter().filter(|(name, _)| **name != caller.peer);
            for other in others.filter_map(|(_, peer)| peer.slots.get(&caller.tree)) {
                other.end(Ending::Goodbye("the tree asks for a snapshot"));
            }
        }
        *sessions += 1;
        let port = Arc::new(Port::new(SessionNumber::new(*sessions), caller.peer.clone()));
        port.stands_behind(epoch.unwrap_or_default());
        Ok(Admission { caller, applier, slot, port })
    }

    /// When a caller is to send a snapshot instead of pages: when its log lacks what the tree needs of the caller's own
    /// writes, or of writes that come here over relays alone now. Not while another one comes in.
    pub(crate) fn snapshot_request(
        &self,
        applier: &Applier,
        caller: &Caller,
        carried: &BTreeMap<OriginTag, (ClusterId, Incarnation)>,
    ) -> Option<wire::SnapshotRequest> {
        if !applier.target().takes_seeds() || applier.seed().is_some() {
            return None;
        }
        let wish = applier.target().seed_wish();
        let state = self.state.lock();
        // Whom the order names may be of no use: then whoever else comes is.
        let cannot = |from: &ClusterId| {
            let slot = state.peers.get(from).and_then(|peer| peer.slots.get(&caller.tree));
            slot.is_some_and(|slot| slot.unfit().is_some())
        };
        let now = wish.is_some_and(|wish| wish.from.is_none_or(|from| from == caller.peer || cannot(&from)));
        let linked = |name: &ClusterId| {
            let slot = state.peers.get(name).and_then(|peer| peer.slots.get(&caller.tree));
            slot.is_some_and(|slot| slot.is_live())
        };
        let here = |name: &ClusterId| *name == caller.peer || !linked(name);
        let origins = carried.iter().filter(|(_, (name, _))| here(name)).map(|(origin, _)| origin.get());
        Some(wire::SnapshotRequest { now, origins: origins.collect() })
    }

    /// Lets a caller in whose log the tree knows now. Much may have changed since it was admitted.
    pub(crate) fn enter(&self, caller: &Caller, slot: &Arc<Slot>, port: &Arc<Port>) -> Result<(), Refusal> {
        let state = self.state.lock();
        let peer = state.peers.get(&caller.peer);
        let now = peer.and_then(|peer| peer.slots.get(&caller.tree));
        let rests = peer.is_some_and(|peer| peer.paused);
        let sealed = state.sealed.iter().any(|origin| port.carries(origin.tag()));
        if rests || sealed || !now.is_some_and(|now| Arc::ptr_eq(now, slot)) {
            return Err(Refusal::new(
                RefusalKind::UnknownPeer,
                "the peer was changed at this moment: try again",
            ));
        }
        slot.enter(caller.boot, port).inspect_err(|_| {
            if let Some(applier) = state.trees.get(&caller.tree) {
                applier.metrics(&caller.peer).two_copies.inc();
            }
        })?;
        self.config.news.tell();
        Ok(())
    }
}

/// Whether a tree waits for a seed of this peer alone.
fn wishes_from(applier: &Applier, peer: &ClusterId) -> bool {
    applier.target().seed_wish().is_some_and(|wish| wish.from.as_ref() == Some(peer))
}

async fn accept(mut listener: Box<dyn Listener>, server: Arc<Inner>, tasks: &Tasks) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    let next = async |listener: &mut Box<dyn Listener>| {
        let stranger = strangers.clone().acquire_owned().await.expect("the semaphore is never closed");
        listener.accept().await.map(|link| (link, stranger))
    };
    loop {
        let accepted = tokio::select! { biased;
            () = server.stop.cancelled() => break,
            accepted = next(&mut listener) => accepted,
        };
        match accepted {
            Ok((link, stranger)) => start(link, stranger, &server, tasks),
            Err(error) => {
                tracing::error!(%error, "no links are accepted any more; restart the cluster");
                server.stop.cancelled().await;
                break;
            }
        }
    }
    // Links say goodbye first: closing the listener may break them.
    server.links.close();
    server.links.wait().await;
    listener.close().await;
}

fn start(link: Link, stranger: impl Send + 'static, server: &Arc<Inner>, tasks: &Tasks) {
    let (token, server) = (server.links.token(), server.clone());
    tasks.spawn(format!("link from {}", link.remote), async move {
        serve(link, server, stranger).await;
        drop(token);
    });
}
