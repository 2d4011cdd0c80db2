//! [`ReadAhead`]: a follower that is behind has the next stretches of the log read while it works on one.

use std::collections::VecDeque;

use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::tasks::{Begun, Tasks, Threads};
use crate::wal::file::FileStorage;

/// Most stretches that are read at a time: one for each core of a small machine.
const DEPTH: usize = 2;

struct Stretch<T> {
    from: Lsn,
    until: Lsn,
    work: Begun<Result<T, StorageError>>,
}

/// Stretches of a log on their way from the disk, in order.
pub(super) struct ReadAhead<T> {
    stretches: VecDeque<Stretch<T>>,
}

impl<T> Default for ReadAhead<T> {
    fn default() -> Self {
        Self { stretches: VecDeque::new() }
    }
}

impl<T: Send + 'static> ReadAhead<T> {
    /// What `read` made of the stretch at `from`, of about so many bytes; None if the log ends there. Further ones are
    /// begun, up to `end`. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        (storage, tasks): (&FileStorage, &Tasks),
        (from, end): (Lsn, Lsn),
        bytes: usize,
        read: impl Fn(Lsn, Lsn) -> Begun<Result<T, StorageError>>,
    ) -> Result<Option<T>, StorageError> {
        if self.stretches.front().is_none_or(|front| front.from != from) {
            self.clear();
        }
        let depth = if tasks.threads() == Threads::Spawn { DEPTH } else { 1 };
        let mut next = self.stretches.back().map_or(from, |last| last.until);
        while self.stretches.len() < depth && next < end {
            let until = storage.stride(next, bytes);
            if until <= next {
                break;
            }
            self.stretches.push_back(Stretch { from: next, until, work: read(next, until) });
            next = until;
        }
        let Some(front) = self.stretches.front_mut() else { return Ok(None) };
        let done = (&mut front.work).await;
        self.stretches.pop_front();
        let done = done.unwrap_or_else(|error| {
            let lost = StorageError::new(StorageErrorKind::Closed, "the read was given up");
            Err(lost.with_source(error))
        });
        if done.is_err() {
            self.clear();
        }
        done.map(Some)
    }

    /// Forgets what is on its way.
    pub(super) fn clear(&mut self) {
        self.stretches.clear();
    }
}
