//! [`Turn`]: what an applier does between two rounds, when no page is on its way into the tree: it has a seed joined, or
//! other keys held. Whatever waited is forgotten then, and every session begins anew.

use std::sync::Arc;

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::record::Interest;
use tidewire_core::tree::{ApplyTarget, Imported, Staging};
use tokio::sync::oneshot;

use crate::applier::Applier;
use crate::port::Port;

/// What is to be done.
pub(crate) enum Work {
    /// A whole seed is to be joined, which came over a session.
    Import(Box<dyn Staging>, Arc<Port>),
    /// These keys are to be held.
    Hold(Interest),
}

/// What came of it: what was imported, if that was the work.
pub(crate) type Done = Result<Option<Imported>, Error>;

/// Work, and who waits for it.
pub(crate) struct Turn {
    pub(crate) work: Work,
    pub(crate) answer: oneshot::Sender<Done>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}

impl Work {
    /// Does it, in an epoch of the tree.
    pub(crate) async fn run(self, target: &dyn ApplyTarget, epoch: u64) -> Done {
        match self {
            // It lacks what is held since then.
            Self::Import(_, port) if !port.is_of(epoch) => {
                let said = "the tree has changed since this snapshot was asked for: it is asked for again";
                Err(Error::new(ErrorKind::Unavailable, said))
            }
            Self::Import(staging, _) => staging.import().await.map(Some),
            Self::Hold(interest) => target.hold(interest).await.map(|()| None),
        }
    }
}

impl Applier {
    /// Has other keys held from now on. Every session ends, and what it brought and that is not applied is forgotten: peers
    /// filter anew. Whoever ships from the tree is to be stopped before, and started after it: see [`ApplyTarget::hold`].
    ///
    /// # Errors
    /// As [`ApplyTarget::hold`]; `Unavailable` when the applier has ended.
    pub async fn hold(&self, interest: Interest) -> Result<(), Error> {
        if interest == self.target().interest() {
            return Ok(());
        }
        let answer = self.turn(Work::Hold(interest)).await;
        let ended = Error::shutting_down;
        answer.ok_or_else(ended)?.await.map_err(|_| ended())?.map(drop)
    }
}
