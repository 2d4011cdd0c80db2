//! [`Latencies`]: durations, and their quantiles.

use std::time::Duration;

/// Measured durations, in tenths of a microsecond; and how many there were beside those that count.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u32>, u64);

impl Latencies {
    pub fn record(&mut self, took: Duration) {
        self.0.push(u32::try_from(took.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    /// One that does not count, while warming up for instance.
    pub fn pass(&mut self) {
        self.1 += 1;
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
        self.1 += other.1;
    }

    /// All there were.
    pub fn all(&self) -> u64 {
        self.0.len() as u64 + self.1
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Median and 99th percentile in microseconds.
    pub fn quantiles(mut self) -> (f64, f64) {
        self.0.sort_unstable();
        let at = |share: f64| {
            let rank = (self.0.len() as f64 * share).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).map_or(0.0, |tenths| f64::from(*tenths) / 10.0)
        };
        (at(0.5), at(0.99))
    }
}
