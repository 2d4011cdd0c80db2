//! [`InFlight`]: a group on its way, and [`Flights`]: all of them, in the order in which they are acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fate::Fate;
use super::ticket::Ticket;
use crate::error::StorageError;
use crate::id::OriginTag;
use crate::record::Group;

/// A group that was handed to the provider.
pub(super) struct InFlight {
    pub(super) attempt: u64,
    pub(super) group: Arc<Group>,
    pub(super) ticket: Arc<Ticket>,
    /// How many wait for it.
    pub(super) writers: usize,
    /// When its first record came.
    pub(super) opened: Instant,
    /// When it was handed over.
    pub(super) since: Instant,
    pub(super) fate: Fate,
    pub(super) answer: Option<Result<(), StorageError>>,
    /// It is durable and being applied: promises about the log still wait for it.
    pub(super) applying: bool,
}

/// What is durable and to be applied.
pub(super) struct Landed {
    pub(super) group: Arc<Group>,
    pub(super) ticket: Arc<Ticket>,
    pub(super) opened: Instant,
    pub(super) since: Instant,
}

/// What the oldest group in flight calls for.
pub(super) enum Head {
    /// To apply it.
    Landed(Landed),
    /// To fail it, and what is behind it.
    Failed(StorageError),
    /// Nothing yet.
    Open,
}

/// The groups without an answer, or with one that waits for those before it.
#[derive(Default)]
pub(super) struct Flights {
    list: VecDeque<InFlight>,
    bytes: u64,
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of all groups in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a record of an origin is in one of them.
    pub(super) fn holds(&self, origin: OriginTag) -> bool {
        let mut blocks = self.list.iter().flat_map(|flight| flight.group.blocks());
        blocks.any(|framed| framed.block.origin() == origin)
    }

    /// Whether one has failed, and only waits for those before it.
    pub(super) fn has_failed(&self) -> bool {
        self.list.iter().any(|flight| matches!(flight.answer, Some(Err(_))))
    }

    pub(super) fn push(&mut self, flight: InFlight) {
        self.bytes += flight.group.stored_bytes();
        self.list.push_back(flight);
    }

    /// Takes note of an answer. False: nobody waits for it any more.
    pub(super) fn answer(&mut self, attempt: u64, answer: Result<(), StorageError>) -> bool {
        let Some(flight) = self.list.iter_mut().find(|flight| flight.attempt == attempt) else {
            return false;
        };
        if flight.applying {
            return false;
        }
        flight.answer.get_or_insert(answer);
        true
    }

    /// Whether the oldest one can be dealt with.
    pub(super) fn head_is_answered(&self) -> bool {
        self.list.front().is_some_and(|head| head.answer.is_some())
    }

    /// Takes the answer of the oldest one. What has landed stays until [`applied`](Self::applied).
    pub(super) fn head(&mut self) -> Head {
        let Some(head) = self.list.front_mut() else { return Head::Open };
        match head.answer.take() {
            None => Head::Open,
            Some(Err(error)) => Head::Failed(error),
            Some(Ok(())) => {
                head.applying = true;
                Head::Landed(Landed {
                    group: head.group.clone(),
                    ticket: head.ticket.clone(),
                    opened: head.opened,
                    since: head.since,
                })
            }
        }
    }

    /// The oldest one has been applied. How many waited for it.
    pub(super) fn applied(&mut self) -> usize {
        let Some(head) = self.list.pop_front() else { return 0 };
        self.bytes -= head.group.stored_bytes();
        head.writers
    }

    /// Gives up on the first one that is late. Its place; None if none is, or has landed all the same.
    pub(super) fn give_up_late(&mut self, deadline: Duration) -> Option<usize> {
        for (at, flight) in self.list.iter_mut().enumerate() {
            if flight.applying || flight.answer.is_some() || flight.since.elapsed() < deadline {
                continue;
            }
            if flight.fate.give_up() {
                return Some(at);
            }
            // It is durable, and only the answer is late.
            flight.answer = Some(Ok(()));
        }
        None
    }

    /// Takes out the one at a place and all behind it, and gives up on them.
    pub(super) fn fail_from(&mut self, at: usize) -> Vec<InFlight> {
        let failed = self.list.split_off(at);
        for flight in &failed {
            flight.fate.give_up();
            self.bytes -= flight.group.stored_bytes();
        }
        failed.into()
    }

    /// Who waits for groups of which nobody knows yet whether they become durable.
    pub(super) fn waiting(&self) -> Vec<Arc<Ticket>> {
        let open = self.list.iter().filter(|flight| !flight.applying);
        open.map(|flight| flight.ticket.clone()).collect()
    }
}
