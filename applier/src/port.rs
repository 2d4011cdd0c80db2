//! [`Port`]: what the rest of the cluster can do to a running session: end it, once.

use tidewire_core::id::{ClusterId, OriginTag, SessionNumber};
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
    pub(crate) origin: OriginTag,
    ending: watch::Sender<Option<Ending>>,
}

impl Port {
    pub(crate) fn new(number: SessionNumber, peer: ClusterId) -> Self {
        Self { number, origin: peer.tag(), peer, ending: watch::Sender::new(None) }
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
