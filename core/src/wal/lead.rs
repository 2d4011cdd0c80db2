//! Leading: whoever finds the log idle may commit in its own thread, for itself and for all who come meanwhile.
//!
//! The sync then begins and ends on a thread of the runtime: nobody wakes a committer, and those who are answered are
//! woken onto the thread that is awake already. It costs the runtime that thread for the length of a sync, so it is done
//! only while syncs are brief, or by one who writes alone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::committer::Committer;
use super::state::State;
use super::ticket::Ticket;
use super::writer::Shared;
use crate::error::Error;

/// Others are committed for in a caller's thread only while a commit takes less than this: a slow disk leaves time enough to
/// wake a committer, and would hold a thread of the runtime nearly all the time.
pub(super) const BRIEF: Duration = Duration::from_millis(1);
/// A group that has had a leader and been open for so long waits no more for it: the leader's future may be held by
/// somebody who does not poll it.
const PATIENCE: Duration = Duration::from_millis(1);

/// How many commits one who writes alone, and whom nobody follows, leads in a row without giving way. Giving way wakes another
/// thread of the runtime in vain where nothing else can run; never giving way would keep those waiting whom this thread
/// could run. Who was woken by the last commit may wait for this very thread, so then it gives way in any case.
const HASTY: u8 = 3;

/// Records that have their place in the pending group.
pub(super) struct Placed {
    pub(super) ticket: Arc<Ticket>,
    /// How many records the group had then.
    pub(super) records: usize,
    /// What whoever placed them has to do for it.
    pub(super) part: Part,
}

/// What a writer has to do for the group that its records are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// To wait: somebody commits it.
    Waits,
    /// To commit it, once those have had their turn who can run.
    Leads,
    /// To commit it now.
    LeadsAtOnce,
}

impl Placed {
    /// Waits until the group is durable and applied, or has failed.
    pub(super) async fn wait(self, shared: &Arc<Shared>) -> Result<(), Error> {
        if self.part != Part::Waits {
            let leader = Leader(shared);
            if self.part == Part::Leads {
                // Whoever else can run and has something to write comes first: one sync then serves all.
                tokio::task::yield_now().await;
                while shared.expects_more() {
                    tokio::task::yield_now().await;
                }
            }
            shared.lead(self.records);
            drop(leader);
        }
        self.ticket.wait().await
    }
}

/// Leaves what is pending to a committer if the one who was to commit it is dropped.
struct Leader<'a>(&'a Arc<Shared>);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_leader = false;
        self.0.send_for_work(state);
    }
}

impl State {
    fn part_of_leader(&mut self, is_followed: bool) -> Part {
        let hasty = self.company <= 1 && self.is_brief && self.hasty < HASTY && !is_followed;
        self.hasty = if hasty { self.hasty + 1 } else { 0 };
        if hasty { Part::LeadsAtOnce } else { Part::Leads }
    }
}

impl Shared {
    /// Sees to it that somebody commits what is pending: a committer; or, if the log is idle, the caller itself.
    pub(super) fn start(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Part {
        if state.duty.is_on() || !state.has_work(self) {
            return Part::Waits;
        }
        // First of all: a leader that is not polled is noticed by a watch that is awake.
        let was_watched = std::mem::replace(&mut state.watched, true);
        if !was_watched {
            self.stirred.notify_one();
        }
        if state.has_leader && state.repair.is_none() && state.pending.opened().elapsed() < PATIENCE {
            return Part::Waits;
        }
        // What came from elsewhere is much at once, and whoever brought it has more to do meanwhile.
        let may_lead = (state.company <= 1 || state.is_brief)
            && !state.has_leader
            && !state.pending.has_foreign()
            && state.repair.is_none()
            && was_watched;
        if may_lead && self.runner.lends_threads() {
            state.has_leader = true;
            return state.part_of_leader(self.groups.is_followed());
        }
        self.send_for_work(state);
        Part::Waits
    }

    /// Whether a leader does better to let others run first.
    fn expects_more(&self) -> bool {
        let state = self.state.lock();
        state.expects_more() && state.pending.opened().elapsed() < self.limits.linger
    }

    /// Commits in the caller's thread, if the pending group still holds so many records or commits are brief; a committer
    /// does if not, or if no thread can be spared.
    fn lead(self: &Arc<Self>, records: usize) {
        let mut state = self.state.lock();
        state.has_leader = false;
        let fit = (state.is_brief || state.pending.records() == records) && state.repair.is_none();
        let Some(lent) = fit.then(|| self.runner.lend_thread()).flatten() else {
            self.send_for_work(state);
            return;
        };
        let shift = if state.has_work(self) { state.duty.begin() } else { None };
        drop(state);
        if let Some(shift) = shift {
            Committer::drive_once(self, shift);
        }
        drop(lent);
    }
}
