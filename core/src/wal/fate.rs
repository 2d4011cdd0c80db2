//! [`Fate`]: what becomes of something that a provider was asked to do. Decided once.
//!
//! A writer that has waited too long gives up; a provider that is done says that it has landed. Both may come at the
//! same moment, and exactly one of the two is true from then on, for both sides. That is the cancellation as well:
//! a provider may watch for it and stop early, and one that does not learns of it when it wants to land.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

const OPEN: u8 = 0;
const LANDED: u8 = 1;
const GIVEN_UP: u8 = 2;

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    told: Notify,
}

/// What becomes of one append or one repair. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Fate(Arc<Inner>);

impl Fate {
    /// Says that it is durable. True: that stands. False: it was given up on before, and must stay invisible.
    pub fn land(&self) -> bool {
        self.decide(LANDED)
    }

    /// Gives up on it. True: it never becomes visible. False: it had landed before.
    pub fn give_up(&self) -> bool {
        let given_up = self.decide(GIVEN_UP);
        if given_up {
            self.0.told.notify_waiters();
        }
        given_up
    }

    /// Whether it was given up on.
    pub fn is_given_up(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == GIVEN_UP
    }

    /// Waits until it is given up on; for ever, if that does not happen. Cancel-safe.
    pub async fn given_up(&self) {
        loop {
            let told = self.0.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.is_given_up() {
                return;
            }
            told.await;
        }
    }

    fn decide(&self, wanted: u8) -> bool {
        match self.0.state.compare_exchange(OPEN, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(decided) => decided == wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_stands_and_saying_it_again_is_harmless() {
        let (landed, given_up) = (Fate::default(), Fate::default());
        assert!(landed.land() && landed.land() && !landed.give_up() && !landed.is_given_up());
        assert!(given_up.give_up() && given_up.give_up() && !given_up.land() && given_up.is_given_up());
    }

    #[tokio::test]
    async fn whoever_watches_is_told_before_and_after_the_moment() {
        let fate = Fate::default();
        let watched = fate.clone();
        tokio::join!(watched.given_up(), async { assert!(fate.give_up()) });
        watched.given_up().await;
    }
}
