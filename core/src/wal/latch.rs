//! [`Latch`]: why writes fail, and [`Repair`]: what has to be done before they work again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fate::Fate;
use super::ticket::Ticket;
use crate::error::{Error, StorageError};
use crate::id::GroupSequence;

/// How long after a failed repair a write has the next one tried.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// How long after the first failed repair the log tries by itself; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Whether a log takes writes.
#[derive(Clone, Debug)]
pub enum LogState {
    /// It does.
    Working,
    /// A group failed, and the end of the log is being made consistent. Writes fail at once meanwhile.
    Repairing {
        /// What happened.
        cause: Error,
    },
    /// That failed as well. It is tried again, with the next write or by itself.
    Failed {
        /// What happened.
        cause: Error,
        /// How many tries have failed.
        repairs: u32,
        /// How long until the log tries by itself.
        next_try: Duration,
    },
    /// A part has panicked: only a restart helps.
    Broken {
        /// What happened.
        cause: Error,
    },
}

/// Why writes fail.
pub(super) struct Latch {
    pub(super) cause: Error,
    /// Repairs that failed.
    failed: u32,
    tried: Instant,
    /// No repair helps.
    for_good: bool,
}

impl Latch {
    pub(super) fn new(cause: Error) -> Self {
        Self { cause, failed: 0, tried: Instant::now(), for_good: false }
    }

    /// One that only a restart releases.
    pub(super) fn for_good(cause: Error) -> Self {
        Self { for_good: true, ..Self::new(cause) }
    }

    /// Whether a repair may help.
    pub(super) fn is_repairable(&self) -> bool {
        !self.for_good
    }

    /// A repair has failed.
    pub(super) fn repair_failed(&mut self) {
        self.failed += 1;
        self.tried = Instant::now();
    }

    /// How many repairs have failed.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Whether a write that comes now has the repair tried again.
    pub(super) fn write_may_retry(&self) -> bool {
        self.tried.elapsed() >= WRITE_PAUSE
    }

    /// When the repair is tried again by itself.
    pub(super) fn next_try(&self) -> Instant {
        let doublings = self.failed.saturating_sub(1).min(10);
        self.tried + LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(doublings))
    }
}

/// A tail that has to be made consistent before writing goes on.
#[derive(Default)]
pub(super) struct Repair {
    /// Who is told the cause afterwards.
    pub(super) waiting: Vec<Arc<Ticket>>,
    /// The group number to use again; None: it was restored before.
    pub(super) restart: Option<GroupSequence>,
    pub(super) attempt: u64,
    /// When the provider was asked, and what becomes of that.
    pub(super) asked: Option<(Instant, Fate)>,
    pub(super) answer: Option<Result<(), StorageError>>,
}

impl Repair {
    /// The first try after a failure.
    pub(super) fn after(waiting: Vec<Arc<Ticket>>, restart: GroupSequence) -> Self {
        Self { waiting, restart: Some(restart), ..Self::default() }
    }

    /// Whether the provider has been asked for too long.
    pub(super) fn is_late(&self, deadline: Duration) -> bool {
        let asked = self.asked.as_ref().filter(|_| self.answer.is_none());
        asked.is_some_and(|(since, _)| since.elapsed() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn the_pause_before_the_next_try_grows_up_to_a_bound() {
        let mut latch = Latch::new(Error::new(ErrorKind::Unavailable, "failed"));
        let pauses = (0..8).map(|_| {
            latch.repair_failed();
            latch.next_try().duration_since(Instant::now()).as_secs()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 10, 10, 10, 10]);
    }
}
