//! [`Stall`]: whether anything still arrives. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Follows how many messages have arrived: something waits and nothing arrives is a state with a name.
#[derive(Debug)]
pub(super) struct Stall {
    limit: Duration,
    seen: u64,
    since: Instant,
}

impl Stall {
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, seen: 0, since: now }
    }

    /// Takes over how many messages have arrived and how many wait; true when the limit has passed without an arrival.
    pub(super) fn check(&mut self, now: Instant, arrived: u64, waiting: u64) -> bool {
        if arrived != self.seen || waiting == 0 {
            (self.seen, self.since) = (arrived, now);
        }
        now.duration_since(self.since) >= self.limit
    }

    /// When to check again at the latest.
    pub(super) fn next_check(&self, now: Instant) -> Instant {
        (self.since + self.limit).min(now + self.limit / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f42_waiting_without_an_arrival_is_a_stall_and_idling_is_none() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stall = Stall::new(Duration::from_secs(60), start);
        assert!(!stall.check(at(59), 0, 5));
        assert!(stall.check(at(60), 0, 5));
        assert!(!stall.check(at(61), 1, 4), "something arrived");
        assert!(!stall.check(at(120), 1, 4));
        assert!(stall.check(at(121), 1, 4));
        let mut idle = Stall::new(Duration::from_secs(60), start);
        assert!(!idle.check(at(1_000), 0, 0), "nothing waits");
        assert!(!idle.check(at(1_059), 0, 1), "counts from when something began to wait");
        assert!(idle.next_check(at(1_059)) <= at(1_060));
        assert!(idle.check(at(1_060), 0, 1));
    }
}
