//! What operators order of a [`Server`] about one peer, or one origin: to rest, to begin anew, to be counted out.

use std::sync::Arc;

use tidewire_core::id::ClusterId;

use crate::hello;
use crate::port::Ending;
use crate::refusal::{Refusal, RefusalKind};
use crate::server::{Inner, Server};
use crate::slot::Slot;

impl Server {
    /// Has the links of a peer rest: its sessions end, and none is let in before [`resume`](Self::resume). What has come
    /// is kept, and goes on its way.
    pub fn pause(&self, peer: &ClusterId) {
        let detail = format!("{} has paused its links with {peer}", self.inner.config.cluster);
        let mut state = self.inner.state.lock();
        let Some(entry) = state.peers.get_mut(peer) else { return };
        entry.paused = true;
        for slot in entry.slots.values() {
            slot.end(Ending::Refused(Refusal::new(RefusalKind::Paused, detail.clone())));
        }
    }

    /// Ends a pause.
    pub fn resume(&self, peer: &ClusterId) {
        if let Some(entry) = self.inner.state.lock().peers.get_mut(peer) {
            entry.paused = false;
        }
    }

    /// Ends the sessions of a peer in order, and forgets what was noted against it: the next ones begin anew.
    pub fn restart(&self, peer: &ClusterId) {
        let state = self.inner.state.lock();
        for slot in state.peers.get(peer).iter().flat_map(|entry| entry.slots.values()) {
            slot.begin_anew(Ending::Goodbye("the operator asks for a new link"));
        }
    }

    /// Whether a peer has a session here.
    pub fn is_live(&self, peer: &ClusterId) -> bool {
        let state = self.inner.state.lock();
        state.peers.get(peer).is_some_and(|entry| entry.slots.values().any(|slot| slot.is_live()))
    }

    /// From now on nothing of a cluster is taken, over whatever link, and nothing of it waits. If it is a peer, it is
    /// [removed](Self::remove).
    pub async fn seal(&self, cluster: &ClusterId) {
        let appliers = {
            let mut state = self.inner.state.lock();
            state.sealed.insert(cluster.clone());
            let carries = |slot: &Arc<Slot>| slot.carried().contains(&cluster.tag());
            for slot in state.peers.values().flat_map(|peer| peer.slots.values()).filter(|slot| carries(slot))
            {
                slot.end(Ending::Goodbye("an origin was sealed out"));
            }
            state.trees.values().cloned().collect::<Vec<_>>()
        };
        self.remove(cluster).await;
        for applier in appliers {
            applier.forget(vec![cluster.tag()]).await;
        }
    }

    /// Lets a cluster return that was sealed out. Every link begins anew: only then do relays look whether they have its
    /// records.
    pub fn unseal(&self, cluster: &ClusterId) {
        let mut state = self.inner.state.lock();
        if state.sealed.remove(cluster) {
            for slot in state.peers.values().flat_map(|peer| peer.slots.values()) {
                slot.end(Ending::Goodbye("an origin that was sealed out may return"));
            }
        }
    }
}

impl Inner {
    /// Why nothing of an origin is taken, if it was sealed out.
    pub(crate) fn sealed(&self, origin: &ClusterId) -> Option<Refusal> {
        let sealed = self.state.lock().sealed.contains(origin);
        let detail = || hello::sealed(origin, &self.config.cluster);
        sealed.then(|| Refusal::new(RefusalKind::Sealed, detail()))
    }
}
