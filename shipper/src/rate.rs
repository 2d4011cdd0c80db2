//! [`RateLimit`]: so many bytes a second to one peer, over all its links.
//!
//! A turn is taken in advance: whoever has a page to send is told when it may leave, one behind the other, so links share
//! the rate by bytes in the order in which they ask, and none starves. What was not used of a turn is given back. A limit
//! that was idle for a while lets a tenth of a second's bytes through at once. Heartbeats and acknowledgements take no
//! turn.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes of this time may leave at once after a rest.
const BURST: Duration = Duration::from_millis(100);
/// A page is this part of a second's bytes at most, and not below [`PAGE_BYTES_MIN`]: small steps, not gusts.
const PAGES_A_SECOND: u64 = 10;
const PAGE_BYTES_MIN: u64 = 16 * 1024;

/// The rate of one peer. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_per_second: u64,
    /// When all turns that were given out are over.
    free_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// A limit; at least one byte a second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self(Arc::new(Inner { bytes_per_second: bytes_per_second.max(1), free_at: Mutex::default() }))
    }

    /// Whether the two are one limit.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The rate.
    pub fn bytes_per_second(&self) -> u64 {
        self.0.bytes_per_second
    }

    /// The size of a page that suits the rate.
    pub(crate) fn page_bytes(&self) -> u64 {
        (self.0.bytes_per_second / PAGES_A_SECOND).max(PAGE_BYTES_MIN)
    }

    /// Takes a turn for so many bytes: when they may leave.
    pub(crate) fn take(&self, bytes: u64, now: Instant) -> Instant {
        let mut free_at = self.0.free_at.lock();
        let rested = now.checked_sub(BURST).unwrap_or(now);
        let turn = free_at.map_or(rested, |at| at.max(rested));
        *free_at = Some(turn + self.lasts(bytes));
        turn.max(now)
    }

    /// A turn for `taken` bytes was used for `sent`: the turns behind it come sooner, or later.
    pub(crate) fn settle(&self, taken: u64, sent: u64) {
        if let Some(at) = &mut *self.0.free_at.lock() {
            *at += self.lasts(sent.saturating_sub(taken));
            *at = at.checked_sub(self.lasts(taken.saturating_sub(sent))).unwrap_or(*at);
        }
    }

    fn lasts(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.bytes_per_second as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_any_second_but_for_the_burst() {
        let (limit, start) = (RateLimit::new(1_000), Instant::now());
        let mut now = start;
        let mut left = 0;
        while now < start + Duration::from_secs(10) {
            now = limit.take(50, now);
            left += 50;
        }
        assert!((10_000..=10_150).contains(&left), "{left}");
        assert_eq!(limit.take(0, now + Duration::from_secs(60)), now + Duration::from_secs(60));
    }

    #[test]
    fn two_links_take_turns_by_bytes_and_none_starves() {
        let (limit, start) = (RateLimit::new(1_000), Instant::now());
        let other = limit.clone();
        // One asks for ten times as much at once; each waits for what was asked for before.
        assert_eq!(limit.take(1_000, start), start);
        let second = other.take(100, start);
        let third = limit.take(1_000, second);
        let fourth = other.take(100, second);
        assert_eq!(second - start, Duration::from_millis(900));
        assert_eq!(third - start, Duration::from_millis(1_000));
        assert_eq!(fourth - start, Duration::from_millis(2_000));
        limit.settle(1_000, 500);
        assert_eq!(limit.take(0, second) - start, Duration::from_millis(1_600));
        other.settle(100, 300);
        assert_eq!(limit.take(0, second) - start, Duration::from_millis(1_800));
    }

    #[test]
    fn a_page_is_a_tenth_of_a_second() {
        assert_eq!(RateLimit::new(10 * 1024 * 1024).page_bytes(), 1024 * 1024);
        assert_eq!(RateLimit::new(1).page_bytes(), PAGE_BYTES_MIN);
    }
}
