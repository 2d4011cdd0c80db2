//! [`Deadlines`]: how many entries have expired at a moment, without looking at each.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;

/// The deadlines of all entries that hold a value.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    entries: BTreeMap<u64, u32>,
    passed: Mutex<Passed>,
}

/// How many deadlines lie at or before a moment: the moment that was asked for last, from where the next count goes
/// on. Clocks may be set back, so it goes both ways.
#[derive(Debug, Default)]
struct Passed {
    until: u64,
    count: u64,
}

impl Deadlines {
    /// An entry expires at a moment.
    pub(super) fn add(&mut self, deadline_ms: u64) {
        *self.entries.entry(deadline_ms).or_default() += 1;
        let passed = self.passed.get_mut();
        passed.count += u64::from(deadline_ms <= passed.until);
    }

    /// An entry that expired at a moment is not there any more.
    pub(super) fn remove(&mut self, deadline_ms: u64) {
        let count = self.entries.get_mut(&deadline_ms).expect("what is removed was added");
        *count -= 1;
        if *count == 0 {
            self.entries.remove(&deadline_ms);
        }
        let passed = self.passed.get_mut();
        passed.count -= u64::from(deadline_ms <= passed.until);
    }

    /// Whether a deadline lies after one moment, and at another or before it.
    pub(super) fn any_between(&self, after: u64, until: u64) -> bool {
        after < until && self.entries.range((Bound::Excluded(after), Bound::Included(until))).next().is_some()
    }

    /// How many entries are expired when the clock says `now`.
    pub(super) fn passed(&self, now: u64) -> u64 {
        if self.entries.is_empty() {
            return 0;
        }
        let mut passed = self.passed.lock();
        let between = |low: u64, high: u64| -> u64 {
            let part = self.entries.range((Bound::Excluded(low), Bound::Included(high)));
            part.map(|(_, count)| u64::from(*count)).sum()
        };
        if now >= passed.until {
            passed.count += between(passed.until, now);
        } else {
            passed.count -= between(now, passed.until);
        }
        passed.until = now;
        passed.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_count_is_exact_whatever_the_clock_does() {
        let random = Random::from_seed(5);
        let (mut deadlines, mut model) = (Deadlines::default(), Vec::new());
        for _ in 0..5_000 {
            match random.below(4) {
                0 | 1 => {
                    let deadline = random.below(50);
                    deadlines.add(deadline);
                    model.push(deadline);
                }
                2 if !model.is_empty() => {
                    let at = usize::try_from(random.below(model.len() as u64)).expect("small");
                    deadlines.remove(model.swap_remove(at));
                }
                _ => {
                    let now = random.below(60);
                    let wanted = model.iter().filter(|deadline| **deadline <= now).count();
                    assert_eq!(deadlines.passed(now), wanted as u64);
                }
            }
        }
    }
}
