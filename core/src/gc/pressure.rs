//! [`Pressure`]: whether a log is over its bound of bytes, with a distance between raising the alarm and ending it. Pure.

use std::sync::atomic::{AtomicBool, Ordering};

/// The alarm ends when the log is down to so many hundredths of its bound.
const RECLAIM_TARGET: u64 = 80;

/// The alarm of one log.
#[derive(Debug, Default)]
pub struct Pressure(AtomicBool);

impl Pressure {
    /// Looks at what the log retains; `bound` is `wal_max_bytes`, zero for none. Says whether the log is to be brought down
    /// with urgency.
    pub fn look(&self, retained: u64, bound: u64) -> bool {
        let target = bound / 100 * RECLAIM_TARGET + bound % 100 * RECLAIM_TARGET / 100;
        let alarmed = bound > 0 && if self.is_high() { retained > target } else { retained > bound };
        self.0.store(alarmed, Ordering::Relaxed);
        alarmed
    }

    /// Whether the alarm is raised.
    pub fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_is_raised_above_the_bound_and_ends_at_four_fifths_of_it() {
        let pressure = Pressure::default();
        let seen: Vec<bool> =
            [900, 1_000, 1_001, 999, 801, 800, 999].map(|bytes| pressure.look(bytes, 1_000)).into();
        assert_eq!(seen, [false, false, true, true, true, false, false]);
        assert!(!pressure.look(u64::MAX, 0), "no bound, no alarm");
    }
}
