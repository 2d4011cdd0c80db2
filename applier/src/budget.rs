//! [`Budget`]: the bytes that may wait in the applier of one tree, over all its links.
//!
//! A permit is taken before a page enters the inbox and is given back when its groups are durable or dropped. A peer of
//! which nothing waits may always bring one page, whatever its size: what the others wait for may be in it. So memory is
//! bounded by the bound and one page for each peer.
//!
//! It is the peer that counts, not the origin of the records: a link brings records behind those that they depend on, so
//! what waits of a link waits for nothing behind it on the same link. What waits of an origin may wait for what another
//! link has still to bring, behind records of that origin.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::id::OriginTag;
use tokio::sync::Notify;

/// Credit of a peer of which nothing waits, at least.
const FLOOR_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Default)]
struct Used {
    total: u64,
    by: BTreeMap<OriginTag, u64>,
}

#[derive(Debug)]
struct Inner {
    bound: u64,
    used: Mutex<Used>,
    freed: Notify,
}

/// The bytes that may wait. Cheap to clone; clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Inner>);

impl Budget {
    pub(crate) fn new(bound: u64) -> Self {
        Self(Arc::new(Inner { bound, used: Mutex::default(), freed: Notify::new() }))
    }

    /// Takes room if there is some.
    pub(crate) fn try_take(&self, peer: OriginTag, bytes: u64) -> Option<Permit> {
        let mut used = self.0.used.lock();
        let own = used.by.get(&peer).copied().unwrap_or(0);
        if own > 0 && used.total.saturating_add(bytes) > self.0.bound {
            return None;
        }
        used.total += bytes;
        used.by.insert(peer, own + bytes);
        Some(Permit { budget: self.clone(), peer, bytes })
    }

    /// Takes room, waiting for it. Cancel-safe.
    pub(crate) async fn take(&self, peer: OriginTag, bytes: u64) -> Permit {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_take(peer, bytes) {
                return permit;
            }
            freed.await;
        }
    }

    /// How many bytes a peer may send now beyond what is acknowledged.
    pub(crate) fn credit(&self, peer: OriginTag) -> u64 {
        let used = self.0.used.lock();
        let free = self.0.bound.saturating_sub(used.total);
        if used.by.get(&peer).is_none_or(|own| *own == 0) {
            free.max(FLOOR_BYTES.min(self.0.bound))
        } else {
            free
        }
    }

    /// Bytes that wait, and how many may.
    pub(crate) fn total(&self) -> (u64, u64) {
        (self.0.used.lock().total, self.0.bound)
    }

    /// Bytes that a peer brought and that wait.
    pub(crate) fn used(&self, peer: OriginTag) -> u64 {
        self.0.used.lock().by.get(&peer).copied().unwrap_or(0)
    }
}

/// Room for some bytes; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Budget,
    peer: OriginTag,
    bytes: u64,
}

impl Permit {
    /// Cuts off a part; never more than there is.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), peer: self.peer, bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        {
            let mut used = self.budget.0.used.lock();
            used.total -= self.bytes;
            let own = used.by.entry(self.peer).or_default();
            *own -= self.bytes;
            if *own == 0 {
                used.by.remove(&self.peer);
            }
        }
        self.budget.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OriginTag = OriginTag::new(1);
    const B: OriginTag = OriginTag::new(2);

    #[test]
    fn f16_a_peer_of_which_nothing_waits_gets_in_at_the_bound() {
        let budget = Budget::new(100);
        let mut held = budget.try_take(A, 100).unwrap();
        assert_eq!(budget.credit(A), 0);
        assert!(budget.try_take(A, 1).is_none());
        assert_eq!(budget.credit(B), 100);
        let other = budget.try_take(B, 80).unwrap();
        assert!(budget.try_take(B, 1).is_none());
        drop(held.split(90));
        assert_eq!((budget.credit(A), budget.used(A)), (10, 10));
        drop((held, other));
        assert_eq!((budget.credit(A), budget.credit(B)), (100, 100));
    }

    #[tokio::test]
    async fn a_waiting_page_gets_in_when_room_is_given_back() {
        let budget = Budget::new(10);
        let first = budget.take(A, 10).await;
        let mut second = std::pin::pin!(budget.take(A, 5));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(futures::poll!(second.as_mut()).is_ready());
    }
}
