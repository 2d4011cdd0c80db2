//! [`Horizon`]: up to which HLC the dead may go, as far as the readers of the log here have a say. Pure.

use crate::id::{Hlc, Lsn};

/// What waits for acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tree) struct Horizon {
    /// Up to where the log was applied when everything up to an HLC was complete.
    waiting: Option<(Lsn, Hlc)>,
}

impl Horizon {
    /// Takes over that everything up to `complete` is applied, at the end `end` of the log, and that every reader of the
    /// log has acknowledged what lies below `acknowledged`. Answers up to where the dead may go.
    ///
    /// A log that is written to all the time is never acknowledged to its end. So an end is remembered, with what was
    /// complete then, until the readers have come so far.
    pub(in crate::tree) fn look(&mut self, complete: Hlc, end: Lsn, acknowledged: Lsn) -> Option<Hlc> {
        if acknowledged >= end {
            self.waiting = None;
            return Some(complete);
        }
        match self.waiting {
            Some((until, _)) if acknowledged < until => None,
            waiting => {
                self.waiting = Some((end, complete));
                // Lower than it was only if a new member is further behind.
                waiting.map(|(_, before)| before.min(complete))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(horizon: &mut Horizon, complete: u64, end: u64, acknowledged: u64) -> Option<u64> {
        horizon.look(Hlc::new(complete), Lsn::new(end), Lsn::new(acknowledged)).map(Hlc::get)
    }

    #[test]
    fn the_dead_go_when_every_reader_has_what_was_complete_also_in_a_log_that_never_rests() {
        let mut horizon = Horizon::default();
        assert_eq!(look(&mut horizon, 10, 100, 100), Some(10), "all is acknowledged");
        assert_eq!(look(&mut horizon, 20, 200, 150), None);
        assert_eq!(look(&mut horizon, 30, 300, 199), None, "the first end still waits");
        assert_eq!(look(&mut horizon, 40, 400, 250), Some(20), "what was complete at 200");
        assert_eq!(look(&mut horizon, 50, 500, 399), None);
        assert_eq!(look(&mut horizon, 15, 500, 400), Some(15), "a member that came since is further behind");
        assert_eq!(look(&mut horizon, 60, 600, 600), Some(60));
    }
}
