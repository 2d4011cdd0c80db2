//! [`Schedule`]: when a log is looked at again. Pure.

use std::time::Duration;

use crate::limits::Limits;
use crate::random::Random;

/// What a pass came to, as far as the next one depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassOutcome {
    /// Something went.
    pub trimmed: bool,
    /// A consumer, or the bound on bytes, asks for another look soon.
    pub blocked: bool,
}

/// The pace of one log's passes: quick while there is something to do or somebody is in the way, ever slower while not.
#[derive(Clone, Debug)]
pub struct Schedule {
    floor: Duration,
    ceiling: Duration,
    pace: Duration,
}

impl Schedule {
    /// The pace that the limits ask for.
    pub fn new(limits: &Limits) -> Self {
        let floor = limits.gc_floor;
        Self { floor, ceiling: limits.gc_ceiling.max(floor), pace: floor }
    }

    /// How long the first pass waits: anything up to twice the floor, so that the trees of a cluster do not all come at
    /// once after a start.
    pub fn first(&self, random: &Random) -> Duration {
        let floor = u64::try_from(self.floor.as_millis()).unwrap_or(u64::MAX);
        self.floor + Duration::from_millis(random.below(floor.max(1)))
    }

    /// How long the next pass waits.
    pub fn after(&mut self, outcome: PassOutcome) -> Duration {
        let busy = outcome.trimmed || outcome.blocked;
        self.pace = if busy { self.floor } else { (self.pace * 2).min(self.ceiling) };
        self.pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_doubles_while_nothing_happens_and_is_back_at_once() {
        let mut schedule = Schedule::new(&Limits::default());
        let idle = PassOutcome::default();
        let waits: Vec<u64> = (0..9).map(|_| schedule.after(idle).as_secs()).collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        for outcome in
            [PassOutcome { trimmed: true, ..idle }, idle, PassOutcome { blocked: true, ..idle }, idle]
        {
            let wait = schedule.after(outcome).as_secs();
            assert_eq!(wait, if outcome == idle { 60 } else { 30 });
        }
    }

    #[test]
    fn the_trees_of_a_cluster_do_not_come_at_once() {
        let (schedule, random) = (Schedule::new(&Limits::default()), Random::from_seed(1));
        let mut waits: Vec<Duration> = (0..20).map(|_| schedule.first(&random)).collect();
        assert!(waits.iter().all(|wait| (30..60).contains(&wait.as_secs())), "{waits:?}");
        waits.dedup();
        assert!(waits.len() > 15, "{waits:?}");
    }
}
