//! [`Duty`]: which committer is at work. One at a time, and never one that hangs in the provider for good.

/// Committers that may hang in a provider before the log stops sending more after them: each costs a thread.
const MAX_STUCK: usize = 2;

/// Who commits. A committer belongs to a shift; one that hangs is relieved by a new shift, and finds nothing to do when
/// it comes back.
#[derive(Debug, Default)]
pub(super) struct Duty {
    shift: u64,
    on: bool,
    calling: bool,
    stuck: usize,
}

impl Duty {
    /// Whether a committer is at work, or on its way.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Begins work, unless somebody is at it: the shift.
    pub(super) fn begin(&mut self) -> Option<u64> {
        (!std::mem::replace(&mut self.on, true)).then_some(self.shift)
    }

    /// The committer of the present shift goes into the provider.
    pub(super) fn call(&mut self) {
        self.calling = true;
    }

    /// A committer is back at the state. False: it was relieved meanwhile, and leaves without touching anything.
    pub(super) fn resume(&mut self, shift: u64) -> bool {
        if shift != self.shift {
            self.stuck = self.stuck.saturating_sub(1);
            return false;
        }
        self.calling = false;
        true
    }

    /// The committer of the present shift has nothing to do.
    pub(super) fn end(&mut self) {
        self.on = false;
    }

    /// The provider's answer is overdue: whoever waits inside the provider is no longer counted on.
    pub(super) fn relieve(&mut self) {
        if self.calling {
            self.shift += 1;
            self.stuck += 1;
            (self.calling, self.on) = (false, false);
        }
    }

    /// Nobody works any more.
    pub(super) fn dismiss(&mut self) {
        self.shift += 1;
        (self.calling, self.on) = (false, false);
    }

    /// Whether so many hang already that another call would only add to them.
    pub(super) fn is_exhausted(&self) -> bool {
        self.stuck >= MAX_STUCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_committer_at_a_time_and_a_relieved_one_touches_nothing() {
        let mut duty = Duty::default();
        let first = duty.begin().expect("nobody is at work");
        assert_eq!(duty.begin(), None);
        duty.relieve();
        assert!(duty.is_on(), "it does not hang in the provider: it will look by itself");
        duty.call();
        duty.relieve();
        let second = duty.begin().expect("the first one was relieved");
        assert!(duty.resume(second) && !duty.resume(first) && duty.is_on());
        duty.end();
        assert!(duty.begin().is_some());
    }

    #[test]
    fn no_more_than_two_are_sent_after_each_other_into_a_provider_that_hangs() {
        let mut duty = Duty::default();
        let shifts = [(); 2].map(|()| {
            assert!(!duty.is_exhausted());
            let shift = duty.begin().expect("free");
            duty.call();
            duty.relieve();
            shift
        });
        assert!(duty.is_exhausted());
        assert!(!duty.resume(shifts[0]) && !duty.is_exhausted(), "one came back");
    }
}
