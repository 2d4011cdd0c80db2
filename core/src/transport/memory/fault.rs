//! What can go wrong on the way from one cluster to another.

use std::time::Duration;

use tokio::time::Instant;

use crate::random::Random;

/// The state of one direction between two clusters. The default is a perfect wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// Shortest and longest time on the way.
    pub(super) delay: (Duration, Duration),
    /// Since when nothing passes.
    pub(super) cut_since: Option<Instant>,
    /// Chance that a frame breaks its link instead of arriving.
    pub(super) break_chance: f64,
    /// Chance that a frame arrives twice.
    pub(super) repeat_chance: f64,
    /// Chance that a frame overtakes the one before it.
    pub(super) reorder_chance: f64,
}

impl Wire {
    /// How long a frame is on the way this time.
    pub(super) fn draw_delay(&self, random: &Random) -> Duration {
        let (shortest, longest) = self.delay;
        let spread = u64::try_from(longest.saturating_sub(shortest).as_micros()).unwrap_or(u64::MAX);
        shortest + Duration::from_micros(random.below(spread.saturating_add(1)))
    }
}
