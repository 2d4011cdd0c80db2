//! [`Committer`]: takes what is pending, has it made durable, applied, and answered. One group at a time.
//!
//! A failure sets a latch: the failed group and everything pending behind it fail with one cause, the provider makes
//! the tail consistent, and only then are the errors told. If even that fails the latch stays, and the next write that
//! comes half a second later has it tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pending::Seal;
use super::runner::CommitJob;
use super::storage::Completion;
use super::ticket::Ticket;
use super::writer::{Shared, State};
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::{GroupSequence, OriginTag};
use crate::record::Group;

/// How long after a failed repair the next one is tried.
const REPAIR_PAUSE: Duration = Duration::from_millis(500);

/// A group that was handed to the provider.
pub(super) struct InFlight {
    attempt: u64,
    group: Arc<Group>,
    ticket: Arc<Ticket>,
    opened: Instant,
    since: Instant,
    answer: Option<Result<(), StorageError>>,
    /// The committer has left; whoever brings the answer sends it back to work.
    left: bool,
    /// It is durable and being applied: promises about the log still wait for it.
    applying: bool,
}

impl InFlight {
    /// Whether a record of an origin is in it.
    pub(super) fn holds(&self, origin: OriginTag) -> bool {
        self.group.blocks().iter().any(|framed| framed.block.origin() == origin)
    }
}

/// Why writes fail.
pub(super) struct Latch {
    pub(super) cause: Error,
    tried: Instant,
}

impl Latch {
    pub(super) fn repair_is_due(&self) -> bool {
        self.tried.elapsed() >= REPAIR_PAUSE
    }
}

/// A tail that has to be made consistent before writing goes on.
pub(super) struct Repair {
    /// Who is told the cause afterwards.
    waiting: Vec<Arc<Ticket>>,
    /// The group number to use again; None: it was restored before.
    restart: Option<GroupSequence>,
    asked: Option<Instant>,
    attempt: u64,
    answer: Option<Result<(), StorageError>>,
    left: bool,
}

impl Repair {
    fn new(waiting: Vec<Arc<Ticket>>, restart: Option<GroupSequence>) -> Self {
        Self { waiting, restart, asked: None, attempt: 0, answer: None, left: false }
    }

    /// Another try after one that failed.
    pub(super) fn again() -> Self {
        Self::new(Vec::new(), None)
    }
}

/// What a committer does next.
enum Step {
    Append(u64, Arc<Group>),
    Reconcile(u64),
    Answer(InFlight, Result<(), StorageError>),
    Repaired(Repair, Result<(), StorageError>),
    Rest,
}

/// The committing end of a writer.
pub(super) struct Committer(Arc<Shared>);

impl CommitJob for Committer {
    fn drive(&self, linger: bool) {
        loop {
            if linger {
                self.wait_for_company();
            }
            if !self.step() {
                return;
            }
        }
    }
}

impl Committer {
    /// Asks the runner for a committer.
    pub(super) fn submit(shared: &Arc<Shared>) {
        shared.runner.submit(Arc::new(Self(shared.clone())));
    }

    /// Commits one group in the caller's thread, and leaves the rest to a committer.
    pub(super) fn drive_once(shared: &Arc<Shared>) {
        let committer = Self(shared.clone());
        // One step hands the group over, the next takes the answer, which a provider that blocks has given by then.
        let goes_on = committer.step() && committer.step();
        if !goes_on {
            return;
        }
        let mut state = shared.state.lock();
        let rests = state.in_flight.is_none() && state.repair.is_none() && state.pending.is_empty();
        if rests {
            state.committing = false;
            drop(state);
            shared.changed.notify_waiters();
        } else {
            drop(state);
            Self::submit(shared);
        }
    }

    /// Does one thing; says whether there may be more.
    fn step(&self) -> bool {
        let step = self.next_step();
        match step {
            Step::Append(attempt, group) => {
                let shared = self.0.clone();
                let done = Completion::new(move |answer| Self::answered(&shared, attempt, answer));
                self.0.storage.append(group, done);
                self.stays(attempt)
            }
            Step::Reconcile(attempt) => {
                let shared = self.0.clone();
                let done = Completion::new(move |answer| Self::reconciled(&shared, attempt, answer));
                self.0.storage.reconcile(done);
                self.stays_for_repair(attempt)
            }
            Step::Answer(flight, answer) => {
                self.finish(flight, answer);
                true
            }
            Step::Repaired(repair, answer) => {
                Self::repaired(&self.0, repair, answer);
                true
            }
            Step::Rest => false,
        }
    }

    fn next_step(&self) -> Step {
        let mut state = self.0.state.lock();
        let state = &mut *state;
        if let Some(mut flight) = state.in_flight.take() {
            if let Some(answer) = flight.answer.take() {
                state.in_flight = Some(flight.while_applying());
                return Step::Answer(flight, answer);
            }
            state.in_flight = Some(flight);
            return Step::Rest;
        }
        if let Some(mut repair) = state.repair.take() {
            if let Some(answer) = repair.answer.take() {
                return Step::Repaired(repair, answer);
            }
            let ask = repair.asked.is_none();
            if ask {
                repair.asked = Some(Instant::now());
                state.attempts += 1;
                repair.attempt = state.attempts;
            }
            let attempt = repair.attempt;
            state.repair = Some(repair);
            return if ask { Step::Reconcile(attempt) } else { Step::Rest };
        }
        if state.pending.is_empty() || state.latch.is_some() {
            state.committing = false;
            self.0.changed.notify_waiters();
            return Step::Rest;
        }
        let group = self.seal(state);
        Step::Append(state.attempts, group)
    }

    fn seal(&self, state: &mut State) -> Arc<Group> {
        let successor = state.pending.successor();
        let pending = std::mem::replace(&mut state.pending, successor);
        state.company = pending.records();
        let (ticket, opened) = (pending.ticket.clone(), pending.opened());
        // Under the lock that gives out positions: later writes get higher HLCs. Without room below the ceiling the
        // last HLC given out is as true.
        let closed = if pending.has_local() {
            self.0.clock.tick().unwrap_or_else(|_| self.0.clock.last().min(self.0.clock.ceiling()))
        } else {
            crate::id::Hlc::ZERO
        };
        let seal = Seal {
            sequence: state.next_sequence,
            first_lsn: state.next_lsn,
            closed,
            deps: &state.observed,
            incarnation: self.0.incarnation,
        };
        let group = Arc::new(pending.seal(&seal));
        state.next_sequence = state.next_sequence.next();
        state.next_lsn = group.next_lsn();
        state.attempts += 1;
        state.in_flight = Some(InFlight {
            attempt: state.attempts,
            group: group.clone(),
            ticket,
            opened,
            since: Instant::now(),
            answer: None,
            left: false,
            applying: false,
        });
        group
    }

    /// Whether the answer to an append is there already; if not, whoever brings it will call for a committer.
    fn stays(&self, attempt: u64) -> bool {
        let mut state = self.0.state.lock();
        match &mut state.in_flight {
            Some(flight) if flight.attempt == attempt => {
                flight.left = flight.answer.is_none();
                !flight.left
            }
            // Given up on meanwhile: another committer is at work.
            _ => false,
        }
    }

    fn stays_for_repair(&self, attempt: u64) -> bool {
        let mut state = self.0.state.lock();
        match &mut state.repair {
            Some(repair) if repair.attempt == attempt => {
                repair.left = repair.answer.is_none();
                !repair.left
            }
            _ => false,
        }
    }

    fn answered(shared: &Arc<Shared>, attempt: u64, answer: Result<(), StorageError>) {
        let mut state = shared.state.lock();
        match &mut state.in_flight {
            Some(flight) if flight.attempt == attempt => {
                flight.answer = Some(answer);
                let left = flight.left;
                drop(state);
                if left {
                    Self::submit(shared);
                }
            }
            _ => {
                shared.metrics.late.inc();
                tracing::warn!(tree = %shared.tree, ok = answer.is_ok(), "a group given up on was answered late; it stays invisible");
            }
        }
    }

    fn reconciled(shared: &Arc<Shared>, attempt: u64, answer: Result<(), StorageError>) {
        let mut state = shared.state.lock();
        if let Some(repair) = state.repair.as_mut().filter(|repair| repair.attempt == attempt) {
            repair.answer = Some(answer);
            let left = repair.left;
            drop(state);
            if left {
                Self::submit(shared);
            }
        }
    }

    fn finish(&self, flight: InFlight, answer: Result<(), StorageError>) {
        match answer {
            Ok(()) => {
                self.0.groups.apply(&flight.group);
                self.0.metrics.flush.observe(flight.since.elapsed().as_secs_f64());
                self.0.metrics.commit.observe(flight.opened.elapsed().as_secs_f64());
                self.0.metrics.groups.inc();
                let local =
                    flight.group.blocks().iter().filter(|framed| framed.block.origin() == self.0.origin);
                self.0.metrics.committed.inc_by(local.map(|framed| framed.records()).sum());
                {
                    let mut state = self.0.state.lock();
                    state.in_flight = None;
                    state.saw(&flight.group, self.0.origin);
                }
                flight.ticket.complete(Ok(()));
                self.0.changed.notify_waiters();
            }
            Err(error) => {
                let mut state = self.0.state.lock();
                state.in_flight = None;
                Self::latch(&self.0, &mut state, flight, &error);
            }
        }
    }

    /// Sets the latch: the failed group and what is pending behind it fail with one cause, once the tail is repaired.
    fn latch(shared: &Arc<Shared>, state: &mut State, flight: InFlight, error: &StorageError) {
        let (first, next) = (flight.group.first_lsn(), state.next_lsn);
        shared.metrics.failed.inc();
        tracing::error!(tree = %shared.tree, %first, %next, %error, "a group could not be made durable; its writes fail");
        let advice = match error.kind() {
            StorageErrorKind::Full => {
                "the disk is full: the write did not happen; make room, writes then work again"
            }
            _ => "the log failed: the write did not happen; it is tried again with the next write",
        };
        let cause = Error::new(ErrorKind::Unavailable, advice).with_source(error.clone());
        state.latch = Some(Latch { cause, tried: Instant::now() });
        let successor = state.pending.successor();
        let pending = std::mem::replace(&mut state.pending, successor);
        state.company = 0;
        // What was not applied nobody has seen: no later write depends on it.
        state.observed = state.seen.clone();
        state.repair = Some(Repair::new(vec![flight.ticket, pending.ticket], Some(flight.group.sequence())));
    }

    fn repaired(shared: &Arc<Shared>, repair: Repair, answer: Result<(), StorageError>) {
        let mut state = shared.state.lock();
        if let Some(sequence) = repair.restart {
            state.next_sequence = sequence;
        }
        let cause = state.latch.as_ref().map(|latch| latch.cause.clone());
        match answer {
            Ok(()) => {
                state.latch = None;
                tracing::info!(tree = %shared.tree, next = %state.next_lsn, "the log works again");
            }
            Err(error) => {
                tracing::warn!(tree = %shared.tree, %error, "the log is not repaired yet; tried again with a later write");
                if let Some(latch) = &mut state.latch {
                    latch.tried = Instant::now();
                }
            }
        }
        drop(state);
        let cause = cause.unwrap_or_else(Error::shutting_down);
        for ticket in repair.waiting {
            ticket.complete(Err(cause.clone()));
        }
        shared.changed.notify_waiters();
    }

    /// Gives up on a group, or on a repair, that is past its deadline.
    pub(super) fn expire(shared: &Arc<Shared>) {
        let mut state = shared.state.lock();
        let deadline = shared.limits.commit_deadline;
        let error = || {
            let said = format!("the disk did not answer within {} s", deadline.as_secs_f64());
            StorageError::new(StorageErrorKind::Deadline, said)
        };
        let hung = |repair: &mut Repair| {
            repair.answer.is_none() && repair.asked.is_some_and(|asked| asked.elapsed() >= deadline)
        };
        if let Some(repair) = state.repair.take_if(hung) {
            // Whoever hangs in it finds another attempt, or none, when it returns.
            state.committing = false;
            drop(state);
            Self::repaired(shared, repair, Err(error()));
            return;
        }
        let late = |flight: &InFlight| {
            flight.answer.is_none() && !flight.applying && flight.since.elapsed() >= deadline
        };
        let given_up =
            |flight: &mut InFlight| late(flight) && shared.storage.give_up(flight.group.sequence());
        let Some(flight) = state.in_flight.take_if(given_up) else { return };
        Self::latch(shared, &mut state, flight, &error());
        drop(state);
        Self::submit(shared);
    }

    /// Answers everybody that nothing was made durable for, and takes no more writes.
    pub(super) fn abandon(shared: &Arc<Shared>, cause: &Error) {
        let mut state = shared.state.lock();
        state.stopping = true;
        let successor = state.pending.successor();
        let mut tickets = vec![std::mem::replace(&mut state.pending, successor).ticket];
        if let Some(repair) = &state.repair {
            tickets.extend(repair.waiting.iter().cloned());
        }
        // What is on its way may still land: its writers learn that the cluster stops, not what became of it.
        tickets.extend(
            state.in_flight.iter().filter(|flight| !flight.applying).map(|flight| flight.ticket.clone()),
        );
        drop(state);
        for ticket in tickets {
            ticket.complete(Err(cause.clone()));
        }
        shared.changed.notify_waiters();
    }

    /// Waits a moment for as many records as the last group had, if that was more than one: then one sync serves all.
    fn wait_for_company(&self) {
        let started = Instant::now();
        loop {
            {
                let state = self.0.state.lock();
                let wanted = state.company > 1 && state.pending.records() < state.company;
                if !wanted || state.in_flight.is_some() || state.repair.is_some() || state.stopping {
                    return;
                }
            }
            if started.elapsed() >= self.0.limits.linger {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl InFlight {
    /// What stands in its place while it is being applied.
    fn while_applying(&self) -> Self {
        Self {
            attempt: self.attempt,
            group: self.group.clone(),
            ticket: self.ticket.clone(),
            opened: self.opened,
            since: self.since,
            answer: None,
            left: false,
            applying: true,
        }
    }
}
