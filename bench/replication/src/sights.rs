//! [`Sights`]: when each probe was due, committed, and seen at the other side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Sight {
    due: Instant,
    committed: Option<Instant>,
    seen: Option<Instant>,
}

/// Probes by number. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Sights(Arc<Mutex<BTreeMap<u64, Sight>>>);

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Lags {
    /// From the answer of the source to the sight at the target, in milliseconds.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// The longest from the moment a probe was due to its sight; none if one was not seen at all.
    pub longest: Option<Duration>,
    pub probes: usize,
}

impl Sights {
    /// A probe that is to be written now.
    pub fn due(&self, number: u64, due: Instant) {
        self.0.lock().insert(number, Sight { due, committed: None, seen: None });
    }

    /// The source has answered.
    pub fn committed(&self, number: u64) {
        let now = Instant::now();
        if let Some(sight) = self.0.lock().get_mut(&number) {
            sight.committed = Some(now);
        }
    }

    /// It is visible at the target, for the first time or again.
    pub fn seen(&self, number: u64) {
        let now = Instant::now();
        if let Some(sight) = self.0.lock().get_mut(&number) {
            sight.seen.get_or_insert(now);
        }
    }

    /// The first that is not seen yet.
    pub fn first_unseen(&self) -> Option<u64> {
        self.0.lock().iter().find(|(_, sight)| sight.seen.is_none()).map(|(number, _)| *number)
    }

    /// What came out. A probe that the source did not answer counts as not seen.
    pub fn lags(&self) -> Lags {
        let sights = self.0.lock();
        let mut took: Vec<Duration> = Vec::with_capacity(sights.len());
        let mut longest = Some(Duration::ZERO);
        for sight in sights.values() {
            match (sight.committed, sight.seen) {
                (Some(committed), Some(seen)) => {
                    took.push(seen.saturating_duration_since(committed));
                    longest = longest.map(|longest| longest.max(seen.saturating_duration_since(sight.due)));
                }
                _ => longest = None,
            }
        }
        took.sort_unstable();
        let at = |share: f64| {
            let rank = (took.len() as f64 * share).ceil() as usize;
            took.get(rank.saturating_sub(1)).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
        };
        Lags { p50_ms: at(0.5), p99_ms: at(0.99), longest, probes: sights.len() }
    }
}
