//! [`State`]: everything that a writer decides by, under one lock; and what is to be done next.

use std::sync::Arc;

use tokio::time::Instant;

use super::completion::Completion;
use super::duty::Duty;
use super::fate::Fate;
use super::flight::{Flights, Head, InFlight, Landed};
use super::latch::{Latch, LogState, Repair};
use super::lead::BRIEF;
use super::pending::{Pending, Seal};
use super::ticket::Ticket;
use super::writer::{Shared, WriterStart};
use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::{GroupSequence, Hlc, Lsn, Offset, OriginTag, PartitionId};
use crate::limits::{Limits, MAX_GROUP_FRAMES};
use crate::record::{Group, Mutation};

/// Bytes in flight, beyond one group, as a multiple of those that may be pending.
const FLIGHT_BYTES: u64 = 4;

/// What a committer does next.
pub(super) enum Step {
    Append(Arc<Group>, Completion),
    Reconcile(Completion),
    Apply(Landed),
    Repaired(Repair, Result<(), StorageError>),
    Rest,
}

pub(super) struct State {
    pub(super) next_lsn: Lsn,
    pub(super) next_sequence: GroupSequence,
    offsets: Vec<Offset>,
    pub(super) observed: VersionVector,
    /// The part of `observed` that is applied.
    seen: VersionVector,
    pub(super) pending: Pending,
    pub(super) flights: Flights,
    pub(super) repair: Option<Repair>,
    pub(super) latch: Option<Latch>,
    attempts: u64,
    pub(super) duty: Duty,
    /// How many write, as far as can be known: those whose group was answered last, and those who waited then.
    pub(super) company: usize,
    /// The last group was made durable and applied within [`BRIEF`].
    pub(super) is_brief: bool,
    /// A caller is about to commit what is pending in its own thread.
    pub(super) has_leader: bool,
    /// Commits in a row that were led without giving way.
    pub(super) hasty: u8,
    pub(super) stopping: bool,
    /// The watch ticks.
    pub(super) watched: bool,
    /// Appends and repairs when the watch ticked last.
    seen_attempts: u64,
}

impl State {
    pub(super) fn new(origin: OriginTag, partitions: u16, start: WriterStart) -> Self {
        let mut offsets = start.offsets;
        offsets.resize(usize::from(partitions), Offset::ZERO);
        Self {
            next_lsn: start.lsn,
            next_sequence: start.sequence,
            offsets,
            seen: start.observed.clone(),
            observed: start.observed,
            pending: Pending::new(origin, partitions, 0),
            flights: Flights::default(),
            repair: None,
            latch: None,
            attempts: 0,
            duty: Duty::default(),
            company: 0,
            is_brief: false,
            has_leader: false,
            hasty: 0,
            stopping: false,
            watched: false,
            seen_attempts: 0,
        }
    }

    /// From here on local records have offsets at or above these, in blocks of their own, and depend on all that is named.
    pub(super) fn step_above(&mut self, offsets: &[(PartitionId, Offset)], observed: &VersionVector) {
        for (partition, offset) in offsets {
            if let Some(next) = self.offsets.get_mut(partition.index()) {
                *next = (*next).max(*offset);
            }
        }
        self.pending.close_block();
        self.observed.join(observed);
        self.seen.join(observed);
    }

    /// Gives a record its offset and its place in the pending group.
    pub(super) fn push(&mut self, mutation: &Mutation, hlc: Hlc, in_batch: bool) {
        let partitions = u16::try_from(self.offsets.len()).expect("partitions are counted in 16 bits");
        let partition = PartitionId::of(&mutation.key, partitions);
        let offset = self.offsets[partition.index()];
        self.offsets[partition.index()] = offset.next();
        self.pending.push(mutation, (partition, offset), hlc, self.observed.len(), in_batch);
    }

    pub(super) fn has_room(&self, bytes: usize, frames: usize, limits: &Limits) -> bool {
        let fits = self.pending.bytes() + bytes <= limits.pending_bytes
            && self.pending.records() + frames <= limits.pending_records.max(frames)
            && self.pending.frames() + frames <= MAX_GROUP_FRAMES;
        fits || self.pending.is_empty()
    }

    /// Whether the pending group can be sent on its way now.
    pub(super) fn can_seal(&self, shared: &Shared) -> bool {
        let bytes = self.flights.bytes() + self.pending.bytes() as u64;
        let follows = self.flights.len() < shared.in_flight
            && bytes <= FLIGHT_BYTES * shared.limits.pending_bytes as u64
            && !self.flights.has_failed();
        !self.pending.is_empty() && self.latch.is_none() && (self.flights.is_empty() || follows)
    }

    /// Whether a committer would find something to do.
    pub(super) fn has_work(&self, shared: &Shared) -> bool {
        let repair = self.repair.as_ref().filter(|_| self.flights.is_empty());
        self.flights.head_is_answered()
            || repair.is_some_and(|repair| repair.asked.is_none() || repair.answer.is_some())
            || self.can_seal(shared)
    }

    /// Whether nothing is on its way, and nobody waits for an answer.
    pub(super) fn is_settled(&self) -> bool {
        self.flights.is_empty() && self.pending.is_empty() && self.repair.is_none() && !self.duty.is_on()
    }

    /// What the committer on duty does next: the oldest group first, then a repair, then the pending group.
    pub(super) fn next_step(&mut self, shared: &Arc<Shared>) -> Step {
        match self.flights.head() {
            Head::Landed(landed) => return Step::Apply(landed),
            Head::Failed(error) => self.fail_from(0, shared, &error),
            Head::Open => {}
        }
        if self.flights.is_empty()
            && let Some(mut repair) = self.repair.take()
        {
            if let Some(answer) = repair.answer.take() {
                return Step::Repaired(repair, answer);
            }
            if repair.asked.is_some() {
                self.repair = Some(repair);
                return Step::Rest;
            }
            self.attempts += 1;
            let done = shared.reconciled(self.attempts);
            (repair.attempt, repair.asked) = (self.attempts, Some((Instant::now(), done.fate().clone())));
            self.repair = Some(repair);
            return Step::Reconcile(done);
        }
        if !self.can_seal(shared) {
            return Step::Rest;
        }
        self.attempts += 1;
        let done = shared.answered(self.attempts);
        let group = self.seal(shared, done.fate().clone());
        Step::Append(group, done)
    }

    fn take_pending(&mut self) -> Pending {
        // Whoever was to commit it: the next group has a leader of its own.
        self.has_leader = false;
        let successor = self.pending.successor();
        std::mem::replace(&mut self.pending, successor)
    }

    fn seal(&mut self, shared: &Shared, fate: Fate) -> Arc<Group> {
        let pending = self.take_pending();
        let (ticket, opened, writers) = (pending.ticket.clone(), pending.opened(), pending.writers());
        // Under the lock that gives out positions: later writes get higher HLCs. Without room below the ceiling the
        // last HLC given out is as true.
        let closed = if pending.has_local() {
            shared.clock.tick().unwrap_or_else(|_| shared.clock.last().min(shared.clock.ceiling()))
        } else {
            Hlc::ZERO
        };
        let seal = Seal {
            sequence: self.next_sequence,
            first_lsn: self.next_lsn,
            closed,
            deps: &self.observed,
            incarnation: shared.incarnation,
        };
        let group = Arc::new(pending.seal(&seal));
        self.next_sequence = self.next_sequence.next();
        self.next_lsn = group.next_lsn();
        let (attempt, since) = (self.attempts, Instant::now());
        let group_sent = group.clone();
        self.flights.push(InFlight {
            attempt,
            group,
            ticket,
            writers,
            opened,
            since,
            fate,
            answer: None,
            applying: false,
        });
        group_sent
    }

    /// Whether the pending group is worth waiting with: others write as well, and have not come yet.
    pub(super) fn expects_more(&self) -> bool {
        self.company > 1
            && self.pending.writers() < self.company
            && !self.pending.is_empty()
            && self.flights.is_empty()
            && self.repair.is_none()
            && !self.stopping
    }

    /// The oldest group was applied: what it holds of other origins may be seen from here on.
    pub(super) fn applied(&mut self, landed: &Landed, own: OriginTag) {
        self.is_brief = landed.since.elapsed() < BRIEF;
        self.company = self.flights.applied() + self.pending.writers();
        let foreign = landed.group.blocks().iter().filter(|framed| framed.block.origin() != own);
        for framed in foreign {
            self.seen.raise(framed.block.origin(), framed.block.last_hlc());
            self.observed.raise(framed.block.origin(), framed.block.last_hlc());
        }
    }

    /// Sets the latch: the group at a place, those in flight behind it, and what is pending fail with one cause, once
    /// the tail is repaired. What their positions were is never given out again.
    pub(super) fn fail_from(&mut self, at: usize, shared: &Shared, error: &StorageError) {
        let failed = self.flights.fail_from(at);
        let Some(first) = failed.first().map(|flight| flight.group.clone()) else { return };
        let pending = self.take_pending();
        let in_groups: u64 = failed.iter().map(|flight| flight.group.records()).sum();
        let records = in_groups + pending.records() as u64;
        shared.metrics.failed.inc_by(failed.len() as u64 + u64::from(!pending.is_empty()));
        shared.metrics.failed_records.inc_by(records);
        shared.metrics.latched.set(1);
        tracing::error!(
            tree = %shared.tree,
            first = %first.first_lsn(),
            next = %self.next_lsn,
            groups = failed.len(),
            records,
            %error,
            "a group could not be made durable; its writes fail, and those behind it"
        );
        let advice = match error.kind() {
            StorageErrorKind::Full => {
                "the disk is full: the write did not happen; make room, writes then work again"
            }
            _ => {
                "the log failed: the write did not happen; it is tried again with the next write, and by itself"
            }
        };
        let cause = Error::new(ErrorKind::Unavailable, advice).with_source(error.clone());
        self.latch = Some(Latch::new(cause));
        self.company = 0;
        // What was not applied nobody has seen: no later write depends on it.
        self.observed = self.seen.clone();
        let waiting = failed.into_iter().map(|flight| flight.ticket).chain([pending.ticket]).collect();
        self.repair = Some(Repair::after(waiting, first.sequence()));
    }

    /// A repair was answered: the latch goes or stays. Who is to be told, and what.
    pub(super) fn repaired(
        &mut self,
        repair: Repair,
        answer: &Result<(), StorageError>,
    ) -> (Vec<Arc<Ticket>>, Error) {
        if let Some(sequence) = repair.restart {
            self.next_sequence = sequence;
        }
        let cause = self.latch.as_ref().map_or_else(Error::shutting_down, |latch| latch.cause.clone());
        match (answer, &mut self.latch) {
            (Err(_), Some(latch)) => latch.repair_failed(),
            _ => self.latch = None,
        }
        (repair.waiting, cause)
    }

    /// Why writes fail, if another repair may help and can be begun.
    pub(super) fn repairable(&self) -> Option<&Latch> {
        let free = self.repair.is_none() && !self.stopping && !self.duty.is_exhausted();
        self.latch.as_ref().filter(|latch| free && latch.is_repairable())
    }

    /// Has the repair tried again, if that may help.
    pub(super) fn try_again(&mut self) {
        if self.repairable().is_some() {
            self.repair = Some(Repair::default());
        }
    }

    /// A committer is gone for good: who waits in vain. Only a restart helps.
    pub(super) fn break_down(&mut self, cause: &Error) -> Vec<Arc<Ticket>> {
        let mut waiting = vec![self.take_pending().ticket];
        waiting.extend(self.repair.take().into_iter().flat_map(|repair| repair.waiting));
        waiting.extend(self.flights.fail_from(0).into_iter().map(|flight| flight.ticket));
        self.latch = Some(Latch::for_good(cause.clone()));
        self.duty.dismiss();
        waiting
    }

    /// Fails everything that nothing was made durable for: who is to be told. What is on its way may still land.
    pub(super) fn abandon(&mut self) -> Vec<Arc<Ticket>> {
        self.stopping = true;
        let mut waiting = vec![self.take_pending().ticket];
        if let Some(repair) = &self.repair {
            waiting.extend(repair.waiting.iter().cloned());
        }
        waiting.extend(self.flights.waiting());
        waiting
    }

    /// Whether it takes writes.
    pub(super) fn log_state(&self) -> LogState {
        match &self.latch {
            None => LogState::Working,
            Some(latch) if !latch.is_repairable() => LogState::Broken { cause: latch.cause.clone() },
            Some(latch) if latch.failed() == 0 => LogState::Repairing { cause: latch.cause.clone() },
            Some(latch) => LogState::Failed {
                cause: latch.cause.clone(),
                repairs: latch.failed(),
                next_try: latch.next_try().saturating_duration_since(Instant::now()),
            },
        }
    }

    /// Whether anything happened since the last call, or may still happen.
    pub(super) fn stirs(&mut self) -> bool {
        let before = std::mem::replace(&mut self.seen_attempts, self.attempts);
        before != self.attempts || self.latch.is_some() || !self.is_settled()
    }
}
