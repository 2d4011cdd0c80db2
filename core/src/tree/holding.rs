//! [`Tree::hold`]: other keys are held from now on, while the tree is open.
//!
//! It does what opening the tree with another interest does, in the same order. What is to be held is durable first, with
//! which part of it is whole, and decides at once what may be given to others. Then records of other keys have no effect,
//! those of new keys have, and local writes are measured by it. Last the keys leave that are not held any more, in small
//! steps. A crash in between leaves the tree as an opening that was cut short: the configuration at the next start decides.
//!
//! A local write that was let in just before, and whose group comes just after, is durable and goes to whoever holds its
//! key. It counts as written before, and was dropped with the rest.

use std::sync::atomic::Ordering;

use super::core::Tree;
use crate::error::{Error, ErrorKind};
use crate::record::Interest;

impl Tree {
    /// Which keys are held here now.
    pub fn interest(&self) -> Interest {
        self.0.interest.read().clone()
    }

    /// Whether keys that are not held any more are on their way out.
    pub fn is_dropping(&self) -> bool {
        self.0.dropping.load(Ordering::Relaxed)
    }

    /// Holds these keys from now on: others are dropped, and those that were not held before are asked for with a seed.
    /// Durable when it returns. Only while nothing of other clusters is applied or joined and nobody ships from here: see
    /// [`ApplyTarget::hold`](super::target::ApplyTarget::hold).
    ///
    /// # Errors
    /// `Unavailable` when it cannot be stored; `Conflict` for fewer keys while an ordered seed, as for a log that went back
    /// to an older copy, has yet to come. Nothing has changed then.
    pub async fn hold(&self, interest: Interest) -> Result<(), Error> {
        let before = self.interest();
        if before == interest {
            return Ok(());
        }
        let tree = &self.0.identity.tree;
        let fewer = !interest.includes(&before);
        let ordered = self.0.seeds.wish().is_some_and(|wish| wish.from.is_some());
        if fewer && (ordered || !self.0.seeds.holes().is_empty()) {
            let said = format!(
                "tree {tree} waits for a seed that was ordered, and if its log went back to an older copy, what was written on \
                 the copy would be lost with the keys that are not held any more: wait until health says no more that it is \
                 reseeding, then reload again"
            );
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        let (seeds, held) = (self.0.seeds.clone(), interest.clone());
        let covered = self.0.applied.state.read().progress.watermarks.clone();
        self.0.tasks.blocking(move || seeds.hold(&held, &covered)).await??;
        // Records first: a write of a new key that was let in earlier would have no effect.
        self.0.applied.state.write().interest = interest.clone();
        *self.0.interest.write() = interest.clone();
        let seeded = self.0.seeds.wish().is_some();
        tracing::warn!(%tree, %before, now = %interest, seeded, "other keys are held than before");
        if fewer {
            self.0.dropping.store(true, Ordering::Relaxed);
            let dropped = self.take_out_unheld().await;
            self.0.dropping.store(false, Ordering::Relaxed);
            let dropped = dropped?;
            self.0.gauges.dropped.inc_by(dropped);
            tracing::info!(%tree, entries = dropped, "keys are not held any more");
        }
        Ok(())
    }
}
