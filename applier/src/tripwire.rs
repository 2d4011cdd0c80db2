//! [`Tripwire`]: keeps a link shut on which this cluster's own writes came back, longer each time, until it has shown that
//! it works. Pure.
//!
//! Such a link is wired wrongly: what goes round once goes round for ever. Refusing the page alone would have the far side
//! dial and send it again and again.

use std::time::Duration;

use tokio::time::Instant;

/// How long a link stays shut at first, and at most.
const SHUT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(10));
/// How long a session goes on, and brings something, before it counts as healthy.
const PROVEN: Duration = Duration::from_secs(10);

/// The tripwire of one peer and tree.
#[derive(Debug, Default)]
pub(crate) struct Tripwire {
    trips: u32,
    shut_until: Option<Instant>,
    entered: Option<Instant>,
}

impl Tripwire {
    /// Own writes came back. Says how long the link stays shut.
    pub(crate) fn trip(&mut self, now: Instant) -> Duration {
        let shut = SHUT.0.saturating_mul(2_u32.saturating_pow(self.trips)).min(SHUT.1);
        self.trips = self.trips.saturating_add(1);
        self.shut_until = Some(now + shut);
        shut
    }

    /// How long the link is still shut, if it is.
    pub(crate) fn shut(&self, now: Instant) -> Option<Duration> {
        self.shut_until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// A session was let in.
    pub(crate) fn entered(&mut self, now: Instant) {
        self.entered = Some(now);
    }

    /// A session brought something. Whether the link works, by all that is known.
    pub(crate) fn brought(&mut self, now: Instant) -> bool {
        let proven = self.trips == 0 || self.entered.is_some_and(|since| now.duration_since(since) >= PROVEN);
        if proven {
            (self.trips, self.shut_until) = (0, None);
        }
        proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f13_each_trip_shuts_the_link_for_longer_until_a_session_has_proven_itself() {
        let (mut wire, mut now) = (Tripwire::default(), Instant::now());
        assert!(wire.brought(now), "nothing was ever wrong");
        for expected in [30, 60, 120, 240, 480, 600, 600] {
            wire.entered(now);
            assert_eq!(wire.trip(now).as_secs(), expected);
            assert_eq!(wire.shut(now).map(|left| left.as_secs()), Some(expected));
            now += Duration::from_secs(expected);
            assert_eq!(wire.shut(now), None);
        }
        wire.entered(now);
        assert!(!wire.brought(now + Duration::from_secs(9)), "a page before the loop proves nothing");
        assert!(wire.brought(now + PROVEN));
        assert_eq!(wire.trip(now).as_secs(), 30, "what is over is forgotten");
    }
}
