//! [`Held`]: what the groups of one origin wait for, for people.

use tidewire_core::id::{ClusterId, Hlc, OriginTag, TreeName};

use crate::applier::Applier;
use crate::server::Server;

/// Groups of one origin that wait for writes of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Whose groups wait.
    pub origin: OriginTag,
    /// Their bytes.
    pub bytes: u64,
    /// For how long the first of them has.
    pub seconds: f64,
    /// For whose writes.
    pub on: OriginTag,
    /// Up to which HLC.
    pub until: Hlc,
    /// Up to here everything of the origin itself is applied.
    pub reached: Hlc,
    /// Neighbours that forward on demand, if there are any, are asked for those writes.
    pub asked: bool,
}

impl Applier {
    /// What waits, by origin.
    pub fn held(&self) -> Vec<Held> {
        let view = self.view().get();
        let held = view.waiting.iter().map(|waiting| Held {
            origin: waiting.origin,
            bytes: waiting.bytes,
            seconds: waiting.since.elapsed().as_secs_f64(),
            on: waiting.on,
            until: waiting.until,
            reached: view.progress.frontier.get(waiting.origin),
            asked: view.wanted.contains(&waiting.on),
        });
        held.collect()
    }
}

impl Server {
    /// The peers whose links carry an origin's writes into a tree now.
    pub fn carriers(&self, tree: &TreeName, origin: OriginTag) -> Vec<ClusterId> {
        let state = self.inner.state.lock();
        let carries = |peer: &crate::server::Peer| {
            peer.slots.get(tree).is_some_and(|slot| slot.carried().contains(&origin))
        };
        state.peers.iter().filter(|(_, peer)| carries(peer)).map(|(name, _)| name.clone()).collect()
    }
}
