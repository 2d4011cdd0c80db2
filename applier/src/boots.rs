//! [`Boots`]: which run of a peer's process speaks for it about one tree, and whether two do. Pure.
//!
//! A new boot id is a restart and takes over. A boot id that was taken over and speaks again proves that two processes
//! are alive with one identity; from then on neither is believed, until the peer is removed and added again.

use std::collections::VecDeque;

use tidewire_core::id::BootId;

/// How many former boot ids are remembered: a copy that comes back after more restarts than this goes unnoticed until
/// the next change.
const REMEMBERED: usize = 64;

/// What a Hello with a boot id means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The first one, or the same run again.
    Known,
    /// A new run in place of another.
    Restarted,
    /// Two runs are alive.
    TwoCopies,
}

/// The runs of one peer.
#[derive(Debug, Default)]
pub(crate) struct Boots {
    current: Option<BootId>,
    former: VecDeque<BootId>,
    split: bool,
}

impl Boots {
    /// Takes note of a Hello.
    pub(crate) fn arrive(&mut self, boot: BootId) -> Arrival {
        self.split |= self.former.contains(&boot);
        if self.split {
            return Arrival::TwoCopies;
        }
        match self.current.replace(boot) {
            Some(before) if before != boot => {
                if self.former.len() == REMEMBERED {
                    self.former.pop_front();
                }
                self.former.push_back(before);
                Arrival::Restarted
            }
            _ => Arrival::Known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: BootId = BootId::new(1);
    const NEW: BootId = BootId::new(2);

    #[test]
    fn a_restart_takes_over_and_may_come_back_as_often_as_it_likes() {
        let mut boots = Boots::default();
        assert_eq!(boots.arrive(OLD), Arrival::Known);
        assert_eq!(boots.arrive(OLD), Arrival::Known);
        assert_eq!(boots.arrive(NEW), Arrival::Restarted);
        assert_eq!(boots.arrive(NEW), Arrival::Known);
    }

    #[test]
    fn f53_a_former_run_that_speaks_again_discredits_both() {
        let mut boots = Boots::default();
        boots.arrive(OLD);
        boots.arrive(NEW);
        assert_eq!(boots.arrive(OLD), Arrival::TwoCopies);
        assert_eq!(boots.arrive(NEW), Arrival::TwoCopies);
        assert_eq!(boots.arrive(BootId::new(3)), Arrival::TwoCopies);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut boots = Boots::default();
        for boot in 1..1_000 {
            assert_ne!(boots.arrive(BootId::new(boot)), Arrival::TwoCopies);
        }
        assert_eq!(boots.former.len(), REMEMBERED);
    }
}
