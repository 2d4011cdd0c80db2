//! [`Committer`]: takes what is pending, has it made durable, applied in order, and answered.
//!
//! What is to be done next is decided by [`State`]; here it is done. Up to as many groups are on their way as the
//! provider takes; they are applied and answered in the order of their numbers, whatever the order of its answers.

use std::sync::Arc;

use tokio::time::Instant;

use super::completion::Completion;
use super::flight::Landed;
use super::latch::Repair;
use super::runner::CommitJob;
use super::state::{State, Step};
use super::ticket::Ticket;
use super::writer::Shared;
use crate::error::{Error, ErrorKind, StorageError};

/// The committing end of a writer, for one shift.
pub(super) struct Committer {
    shared: Arc<Shared>,
    shift: u64,
}

impl CommitJob for Committer {
    fn drive(&self, linger: bool) {
        let watch = PanicWatch(&self.shared);
        loop {
            if linger {
                self.wait_for_company();
            }
            if !self.step() {
                break;
            }
        }
        drop(watch);
    }
}

impl Committer {
    /// Asks the runner for a committer.
    pub(super) fn submit(shared: &Arc<Shared>, shift: u64) {
        shared.runner.submit(Arc::new(Self { shared: shared.clone(), shift }));
    }

    /// Commits one group in the caller's thread, and leaves the rest to a committer.
    pub(super) fn drive_once(shared: &Arc<Shared>, shift: u64) {
        let watch = PanicWatch(shared);
        let committer = Self { shared: shared.clone(), shift };
        // One step hands the group over, the next takes the answer, which a provider that blocks has given by then.
        if committer.step() && committer.step() {
            committer.hand_over();
        }
        drop(watch);
    }

    fn hand_over(&self) {
        let mut state = self.shared.state.lock();
        if !state.duty.resume(self.shift) {
            return;
        }
        if state.has_work(&self.shared) {
            drop(state);
            Self::submit(&self.shared, self.shift);
            return;
        }
        self.rest(&mut state);
    }

    fn rest(&self, state: &mut State) {
        state.duty.end();
        self.shared.changed.notify_waiters();
    }

    /// Does one thing; says whether there may be more.
    fn step(&self) -> bool {
        let step = self.next_step();
        match step {
            Step::Append(group, done) => self.shared.storage.append(group, done),
            Step::Reconcile(done) => {
                self.shared.metrics.repairs.inc();
                self.shared.storage.reconcile(done);
            }
            Step::Apply(landed) => self.apply(&landed),
            Step::Repaired(repair, answer) => Self::repaired(&self.shared, repair, &answer),
            Step::Rest => return false,
        }
        true
    }

    fn next_step(&self) -> Step {
        let mut state = self.shared.state.lock();
        if !state.duty.resume(self.shift) {
            return Step::Rest;
        }
        let step = state.next_step(&self.shared);
        match step {
            Step::Append(..) | Step::Reconcile(_) => state.duty.call(),
            Step::Rest => self.rest(&mut state),
            Step::Apply(_) | Step::Repaired(..) => {}
        }
        step
    }

    fn apply(&self, landed: &Landed) {
        let (shared, group) = (&self.shared, &landed.group);
        shared.groups.apply(group);
        shared.metrics.flush.observe(landed.since.elapsed().as_secs_f64());
        shared.metrics.commit.observe(landed.opened.elapsed().as_secs_f64());
        shared.metrics.groups.inc();
        let local = group.blocks().iter().filter(|framed| framed.block.origin() == shared.origin);
        shared.metrics.committed.inc_by(local.map(|framed| framed.records()).sum());
        shared.state.lock().applied(landed, shared.origin);
        landed.ticket.complete(Ok(()));
        shared.changed.notify_waiters();
    }

    /// The latch goes, or stays; only then are the errors told.
    pub(super) fn repaired(shared: &Shared, repair: Repair, answer: &Result<(), StorageError>) {
        let mut state = shared.state.lock();
        let next = state.next_lsn;
        let (waiting, cause) = state.repaired(repair, answer);
        shared.metrics.latched.set(i64::from(state.latch.is_some()));
        let tries = state.latch.as_ref().map(|latch| latch.failed());
        drop(state);
        match answer {
            Ok(()) => tracing::info!(tree = %shared.tree, %next, "the log works again"),
            Err(error) => {
                shared.metrics.failed_repairs.inc();
                tracing::warn!(tree = %shared.tree, %next, tries, %error, "the log is not repaired yet; tried again by itself");
            }
        }
        tell(&waiting, &cause);
        shared.changed.notify_waiters();
    }

    /// Waits a moment for all who write, if that is more than one and one of them has come: then one sync serves all. It
    /// leaves the processor to them.
    fn wait_for_company(&self) {
        let started = Instant::now();
        while self.shared.state.lock().expects_more() && started.elapsed() < self.shared.limits.linger {
            std::thread::yield_now();
        }
    }
}

/// Tells everybody in some groups why they failed.
pub(super) fn tell(waiting: &[Arc<Ticket>], cause: &Error) {
    for ticket in waiting {
        ticket.complete(Err(cause.clone()));
    }
}

impl Shared {
    /// Where the provider's answer to an append goes.
    pub(super) fn answered(self: &Arc<Self>, attempt: u64) -> Completion {
        let shared = self.clone();
        Completion::new(move |answer| {
            let ok = answer.is_ok();
            let mut state = shared.state.lock();
            if state.flights.answer(attempt, answer) {
                let shift = state.flights.head_is_answered().then(|| state.duty.begin()).flatten();
                drop(state);
                if let Some(shift) = shift {
                    Committer::submit(&shared, shift);
                }
                return;
            }
            drop(state);
            shared.metrics.late.inc();
            tracing::warn!(tree = %shared.tree, ok, "a group given up on was answered late; it stays invisible");
        })
    }

    /// Where the provider's answer to a repair goes.
    pub(super) fn reconciled(self: &Arc<Self>, attempt: u64) -> Completion {
        let shared = self.clone();
        Completion::new(move |answer| {
            let mut state = shared.state.lock();
            if let Some(repair) = state.repair.as_mut().filter(|repair| repair.attempt == attempt) {
                repair.answer = Some(answer);
                let shift = state.duty.begin();
                drop(state);
                if let Some(shift) = shift {
                    Committer::submit(&shared, shift);
                }
            }
        })
    }
}

/// Tells everybody when a committer panics: nobody waits for one that is gone.
struct PanicWatch<'a>(&'a Arc<Shared>);

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = "a committer panicked: what the log holds and what is visible may differ; restart";
            let cause = Error::new(ErrorKind::Unavailable, said);
            self.0.metrics.latched.set(1);
            let waiting = self.0.state.lock().break_down(&cause);
            tell(&waiting, &cause);
            self.0.changed.notify_waiters();
        }
    }
}
