//! [`Port`]: what the rest of the cluster can do to a running session: end it, once.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_core::id::{ClusterId, Incarnation, OriginTag, SessionNumber};
use tokio::sync::watch;

use crate::refusal::Refusal;

/// How a session ends from this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, with a reason.
    Goodbye(&'static str),
    /// Something was refused.
    Refused(Refusal),
}

/// The handle of a session.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: SessionNumber,
    pub(crate) peer: ClusterId,
    origins: OnceLock<BTreeMap<OriginTag, (ClusterId, Incarnation)>>,
    /// Which epoch of the tree the session belongs to.
    epoch: AtomicU64,
    ending: watch::Sender<Option<Ending>>,
}

impl Port {
    pub(crate) fn new(number: SessionNumber, peer: ClusterId) -> Self {
        Self {
            number,
            peer,
            origins: OnceLock::new(),
            epoch: AtomicU64::new(0),
            ending: watch::Sender::new(None),
        }
    }

    /// Says whose records the link carries, once.
    pub(crate) fn carry(&self, origins: BTreeMap<OriginTag, (ClusterId, Incarnation)>) {
        // A second answer would be another session, which has a port of its own.
        let _first = self.origins.set(origins);
    }

    /// Says in which epoch of the tree the session was let in.
    pub(crate) fn stands_behind(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Whether the session belongs to this epoch of the tree. What waited when it began was dropped, and peers filter for the
    /// keys that were held when a session began: so an older session's run is broken.
    pub(crate) fn is_of(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Relaxed) == epoch
    }

    /// Whose records the link carries, by tag; nobody's before that is known.
    pub(crate) fn origins(&self) -> impl Iterator<Item = OriginTag> + '_ {
        self.origins.get().into_iter().flatten().map(|(origin, _)| *origin)
    }

    /// Whether the link carries an origin's records.
    pub(crate) fn carries(&self, origin: OriginTag) -> bool {
        self.origins.get().is_some_and(|origins| origins.contains_key(&origin))
    }

    /// Ends the session; the first reason counts. From here on nothing it brought and that still waits in the inbox is
    /// taken.
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(ending);
            }
            first
        });
    }

    /// Whether it has ended from this side.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Waits until it is ended from this side. Cancel-safe.
    pub(crate) async fn ended(&self) -> Ending {
        let mut ending = self.ending.subscribe();
        let ended = ending.wait_for(Option::is_some).await.map(|ending| ending.clone());
        ended.ok().flatten().expect("the sender lives as long as the port, and the value was waited for")
    }
}
