//! Accepted connections that have no link: how many there may be, and for how long.
//!
//! A connection is a stranger until one of its streams has said `Hello`, and again when its last link has ended. Strangers
//! are few and short-lived; at the bound the oldest goes, so that those who only hold a connection keep nobody out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use super::config::{HELLO_DEADLINE, MAX_STRANGERS};

/// How often the log is told of refused strangers.
const REPORT_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Register {
    next: u64,
    waiting: BTreeMap<u64, Weak<Visitor>>,
    refused: u64,
    reported: Option<Instant>,
}

/// The strangers of one listener.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Register>);

impl Strangers {
    /// Enters a connection that was just accepted. `kill` ends it.
    pub(super) fn admit(self: &Arc<Self>, remote: SocketAddr, kill: CancellationToken) -> Arc<Visitor> {
        let visitor = Arc::new(Visitor { strangers: self.clone(), remote, kill, standing: Mutex::default() });
        let number = self.enter(&visitor);
        visitor.standing.lock().stranger = Some((number, Instant::now()));
        visitor
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    fn enter(&self, visitor: &Arc<Visitor>) -> u64 {
        let mut oldest = None;
        let number = {
            let mut register = self.0.lock();
            if register.waiting.len() >= MAX_STRANGERS {
                oldest = register.waiting.pop_first().and_then(|(_, visitor)| visitor.upgrade());
            }
            register.next += 1;
            let number = register.next;
            register.waiting.insert(number, Arc::downgrade(visitor));
            number
        };
        if let Some(oldest) = oldest {
            oldest.kill.cancel();
        }
        number
    }

    fn leave(&self, number: u64) {
        self.0.lock().waiting.remove(&number);
    }

    /// Counts a stranger that was turned away, and tells the log now and then.
    pub(super) fn refused(&self, remote: SocketAddr, reason: &str) {
        tracing::debug!(%remote, reason, "stranger turned away");
        let mut register = self.0.lock();
        register.refused += 1;
        if register.reported.is_none_or(|last| last.elapsed() >= REPORT_EVERY) {
            register.reported = Some(Instant::now());
            tracing::warn!(%remote, reason, count = register.refused, "strangers turned away from the replication port");
        }
    }
}

#[derive(Debug, Default)]
struct Standing {
    /// Number in the register and since when, while the connection has no link.
    stranger: Option<(u64, Instant)>,
    links: usize,
    hello_pending: bool,
    was_known: bool,
    gone: bool,
}

/// One accepted connection.
#[derive(Debug)]
pub(super) struct Visitor {
    strangers: Arc<Strangers>,
    pub(super) remote: SocketAddr,
    /// Ends the connection.
    pub(super) kill: CancellationToken,
    standing: Mutex<Standing>,
}

impl Visitor {
    /// When the connection must be looked at again, or `None` if its time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let Some((_, since)) = self.standing.lock().stranger else { return Some(now + HELLO_DEADLINE) };
        Some(since + HELLO_DEADLINE).filter(|deadline| *deadline > now)
    }

    /// Whether another stream may wait for its `Hello`: only one on a connection without a link.
    pub(super) fn may_say_hello(&self) -> bool {
        let mut standing = self.standing.lock();
        let allowed = standing.links > 0 || !standing.hello_pending;
        standing.hello_pending |= allowed && standing.links == 0;
        allowed
    }

    /// A stream has said `Hello`: the connection is known while the result lives.
    pub(super) fn said_hello(self: &Arc<Self>) -> Presence {
        let stranger = {
            let mut standing = self.standing.lock();
            standing.links += 1;
            standing.was_known = true;
            standing.hello_pending = false;
            standing.stranger.take()
        };
        if let Some((number, _)) = stranger {
            self.strangers.leave(number);
        }
        Presence(self.clone())
    }

    /// A stream was turned away before it had a link.
    pub(super) fn turned_away(&self, reason: &str) {
        self.standing.lock().hello_pending = false;
        self.strangers.refused(self.remote, reason);
    }

    fn link_ended(self: &Arc<Self>) {
        let last = {
            let mut standing = self.standing.lock();
            standing.links -= 1;
            standing.links == 0 && !standing.gone
        };
        if last {
            let number = self.strangers.enter(self);
            self.standing.lock().stranger = Some((number, Instant::now()));
        }
    }

    /// The connection is gone.
    pub(super) fn gone(&self) {
        let (stranger, was_known) = {
            let mut standing = self.standing.lock();
            standing.gone = true;
            (standing.stranger.take(), standing.was_known)
        };
        if let Some((number, _)) = stranger {
            self.strangers.leave(number);
        }
        if !was_known {
            self.strangers.refused(self.remote, "the connection ended without a Hello");
        }
    }
}

/// One link of a connection; dropped with it.
pub(super) struct Presence(Arc<Visitor>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.link_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(strangers: &Arc<Strangers>) -> Arc<Visitor> {
        strangers.admit(([127, 0, 0, 1], 1).into(), CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_bound_the_oldest_stranger_goes_and_the_known_stay() {
        let strangers = Arc::new(Strangers::default());
        let known = admit(&strangers);
        let presence = known.said_hello();
        let all: Vec<_> = (0..=MAX_STRANGERS).map(|_| admit(&strangers)).collect();
        assert_eq!(strangers.len(), MAX_STRANGERS);
        assert!(all[0].kill.is_cancelled() && !all[1].kill.is_cancelled() && !known.kill.is_cancelled());
        drop(presence);
        assert_eq!(strangers.len(), MAX_STRANGERS, "one without a link is a stranger again");
        assert!(all[1].kill.is_cancelled() && !known.kill.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_has_five_seconds_and_one_hello_at_a_time() {
        let strangers = Arc::new(Strangers::default());
        let visitor = admit(&strangers);
        assert_eq!(visitor.deadline(), Some(Instant::now() + HELLO_DEADLINE));
        assert!(visitor.may_say_hello() && !visitor.may_say_hello());
        tokio::time::advance(HELLO_DEADLINE).await;
        assert_eq!(visitor.deadline(), None);
        let presence = visitor.said_hello();
        assert!(visitor.deadline().is_some() && visitor.may_say_hello() && visitor.may_say_hello());
        drop(presence);
        assert_eq!(visitor.deadline(), Some(Instant::now() + HELLO_DEADLINE));
        visitor.gone();
        assert_eq!(strangers.len(), 0);
        let late = visitor.said_hello();
        drop(late);
        assert_eq!(strangers.len(), 0, "what is gone does not come back");
    }
}
