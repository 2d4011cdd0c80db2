//! [`Latencies`]: durations, and their quantiles.

use std::time::Duration;

/// Measured durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds one.
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Adds all of another.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest duration that at least this share of all does not exceed; zero without any.
    pub(crate) fn quantile(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).or(self.0.last()).copied().unwrap_or_default()
    }
}

/// Milliseconds with their fraction.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_measured_value() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), Duration::ZERO);
        for ms in (1..=100).rev() {
            latencies.record(Duration::from_millis(ms));
        }
        assert_eq!(latencies.quantile(0.5), Duration::from_millis(50));
        assert_eq!(latencies.quantile(0.99), Duration::from_millis(99));
        assert_eq!(latencies.quantile(1.0), Duration::from_millis(100));
    }
}
