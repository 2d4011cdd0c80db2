//! [`Backoff`]: how long to wait after a failed run, and when to complain about it. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::random::Random;

/// How often the same trouble is logged.
const COMPLAINT_EVERY: Duration = Duration::from_secs(30);

/// How the wait between runs grows.
#[derive(Clone, Debug)]
pub struct BackoffSettings {
    /// The first wait. Default 100 ms.
    pub first: Duration,
    /// Each wait is twice the one before, up to this. Default 30 s.
    pub most: Duration,
    /// How far a wait is moved up or down by chance, in percent, so that many consumers of one destination do not
    /// return in step. Default 20.
    pub jitter_percent: u32,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), most: Duration::from_secs(30), jitter_percent: 20 }
    }
}

/// Counts failures in a row.
#[derive(Debug)]
pub struct Backoff {
    settings: BackoffSettings,
    failures: u32,
    complained_at: Option<Instant>,
}

impl Backoff {
    /// No failure yet.
    pub fn new(settings: BackoffSettings) -> Self {
        Self { settings, failures: 0, complained_at: None }
    }

    /// Failures since the last [`reset`](Self::reset).
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Forgets the failures: something was achieved.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Forgets the failures if a run went on so long that its end is a new trouble, not the old one.
    pub fn reset_after(&mut self, run: Duration) {
        if run > self.settings.most {
            self.reset();
        }
    }

    /// Counts a failure, and says how long to wait.
    pub fn failed(&mut self, random: &Random) -> Duration {
        let doubled =
            2_u32.checked_pow(self.failures).and_then(|factor| self.settings.first.checked_mul(factor));
        let wait = doubled.unwrap_or(self.settings.most).min(self.settings.most);
        self.failures = self.failures.saturating_add(1);
        let jitter = u64::from(self.settings.jitter_percent.min(100));
        let percent = 100 - jitter + random.below(2 * jitter + 1);
        wait * u32::try_from(percent).expect("at most 200") / 100
    }

    /// Whether a failure at this time is worth a line in the log: the first one, then one in 30 s.
    pub fn complains(&mut self, now: Instant) -> bool {
        let due = self.failures <= 1
            || self.complained_at.is_none_or(|last| now.duration_since(last) >= COMPLAINT_EVERY);
        if due {
            self.complained_at = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_stay_within_the_jitter() {
        let random = Random::from_seed(1);
        let mut backoff = Backoff::new(BackoffSettings::default());
        for expected in [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            let wait = backoff.failed(&random).as_millis();
            assert!((expected * 8 / 10..=expected * 12 / 10).contains(&wait), "{wait} for {expected}");
        }
        for _ in 0..100 {
            assert!(backoff.failed(&random) <= Duration::from_secs(36));
        }
        backoff.reset_after(Duration::from_secs(1));
        assert!(backoff.failures() > 0);
        backoff.reset_after(Duration::from_secs(31));
        assert!(backoff.failed(&random) <= Duration::from_millis(120));
    }

    #[tokio::test(start_paused = true)]
    async fn one_line_at_once_and_then_one_in_thirty_seconds() {
        let random = Random::from_seed(1);
        let mut backoff = Backoff::new(BackoffSettings::default());
        let mut lines = Vec::new();
        let start = Instant::now();
        for second in 0..100 {
            backoff.failed(&random);
            if backoff.complains(start + Duration::from_secs(second)) {
                lines.push(second);
            }
        }
        assert_eq!(lines, [0, 30, 60, 90]);
    }
}
