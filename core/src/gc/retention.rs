//! [`Retention`]: the rule, without any I/O.

use crate::cursors::Consumer;
use crate::id::{Incarnation, Lsn};
use crate::wal::Bounds;

/// What a consumer may ask of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Everything from a position on.
    From(Lsn),
    /// Everything: it has reported no position of this log yet.
    Everything,
    /// Nothing: what it needs next is gone already. It is to be seeded anew.
    FellOff,
}

/// A consumer and its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub consumer: String,
    /// What it may ask for.
    pub claim: Claim,
}

/// Who decides from where on the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody: everything is acknowledged and in snapshots.
    Nobody,
    /// The tree itself: opening it needs the log from there on.
    Checkpoint,
    /// Nobody may any more: everything older than `wal_retention` goes, though a consumer needs it.
    Age,
    /// What cannot be applied here and waits for somebody to decide: dead letters.
    DeadLetters,
    /// A consumer that has not acknowledged more.
    Consumer(String),
}

/// What one log has to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Everything from here on stays.
    pub keep: Lsn,
    /// Who asks for that.
    pub holder: Holder,
    /// Every consumer, by name.
    pub standings: Vec<Standing>,
}

impl Retention {
    /// Decides what a log keeps: everything from the lowest position that the tree or a consumer needs. A consumer that
    /// has fallen off asks for nothing, and one whose position cannot be of this log for everything.
    pub fn decide(
        consumers: Vec<Consumer>,
        checkpoint: Lsn,
        incarnation: Incarnation,
        bounds: &Bounds,
    ) -> Self {
        let standings: Vec<Standing> = consumers
            .into_iter()
            .map(|consumer| Standing {
                claim: claim(&consumer, incarnation, bounds),
                consumer: consumer.name,
            })
            .collect();
        let (mut keep, mut holder) = (bounds.next, Holder::Nobody);
        if checkpoint < keep {
            (keep, holder) = (checkpoint.max(bounds.first), Holder::Checkpoint);
        }
        for standing in &standings {
            let Some(from) = standing.claim.lowest(bounds) else { continue };
            // At the same position the consumer is named: a snapshot would change nothing.
            if from < keep || from == keep && holder == Holder::Checkpoint {
                (keep, holder) = (from, Holder::Consumer(standing.consumer.clone()));
            }
        }
        Self { keep, holder, standings }
    }

    /// The same, but that what lies below `aged` may go though a consumer needs it: the one bound that passes a consumer
    /// by, which learns it by falling off. It never passes the checkpoint.
    #[must_use]
    pub fn aged(self, aged: Lsn, bounds: &Bounds, checkpoint: Lsn) -> Self {
        let aged = aged.min(bounds.next);
        if self.holder == Holder::Checkpoint || aged <= self.keep {
            return self;
        }
        let (keep, holder) = if checkpoint < aged {
            (checkpoint.max(bounds.first), Holder::Checkpoint)
        } else {
            (aged, Holder::Age)
        };
        Self { keep, holder, ..self }
    }

    /// The same, but that everything from what is parked as a dead letter on stays, whatever its age.
    #[must_use]
    pub fn blocked(self, from: Option<Lsn>, bounds: &Bounds) -> Self {
        match from {
            Some(from) if from < self.keep => {
                Self { keep: from.max(bounds.first), holder: Holder::DeadLetters, ..self }
            }
            _ => self,
        }
    }

    /// What the consumers alone would keep.
    pub fn of_consumers(consumers: Vec<Consumer>, incarnation: Incarnation, bounds: &Bounds) -> Self {
        Self::decide(consumers, bounds.next, incarnation, bounds)
    }

    /// Names of the consumers that have fallen off.
    pub fn fell_off(&self) -> Vec<String> {
        let fell_off = self.standings.iter().filter(|standing| standing.claim == Claim::FellOff);
        fell_off.map(|standing| standing.consumer.clone()).collect()
    }
}

impl Claim {
    /// What it is worth once the log holds this.
    #[must_use]
    pub fn after(self, bounds: &Bounds) -> Self {
        match self {
            Self::From(lsn) if lsn < bounds.first => Self::FellOff,
            other => other,
        }
    }

    /// The lowest position that it holds in a log.
    pub fn lowest(self, bounds: &Bounds) -> Option<Lsn> {
        match self {
            Self::From(lsn) => Some(lsn),
            Self::Everything => Some(bounds.first),
            Self::FellOff => None,
        }
    }
}

fn claim(consumer: &Consumer, incarnation: Incarnation, bounds: &Bounds) -> Claim {
    match consumer.stored {
        _ if consumer.fell_off => Claim::FellOff,
        Some(cursor) if cursor.incarnation == incarnation && cursor.lsn < bounds.first => Claim::FellOff,
        Some(cursor) if cursor.incarnation == incarnation && cursor.lsn <= bounds.next => {
            Claim::From(cursor.lsn)
        }
        // Of another life of this log, or above its end: where the consumer stands in this one is not known.
        _ => Claim::Everything,
    }
}
