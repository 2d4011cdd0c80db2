//! [`LogReader`] and [`LogSelector`]: a follower that is behind has the next stretches of the log read while it works on
//! one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffers::ReadBuffers;
use super::storage::FileStorage;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Group;
use crate::tasks::{Begun, Threads};
use crate::wal::filter::Filter;
use crate::wal::selection::Selection;

/// Most stretches that are read at a time: one for each core of a small machine.
const DEPTH: usize = 2;
/// Bytes of the log that a selection looks at: what it brings is less, and the position moves over all of it.
const SELECTED_BYTES: usize = 2 * 1024 * 1024;

struct Stretch<T> {
    from: Lsn,
    until: Lsn,
    work: Begun<Result<T, StorageError>>,
}

/// Stretches of a log on their way from the disk, in order.
struct ReadAhead<T> {
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
    async fn next(
        &mut self,
        storage: &FileStorage,
        (from, end): (Lsn, Lsn),
        bytes: usize,
        read: impl Fn(Lsn, Lsn) -> Begun<Result<T, StorageError>>,
    ) -> Result<Option<T>, StorageError> {
        if self.stretches.front().is_none_or(|front| front.from != from) {
            self.clear();
        }
        let depth = if storage.tasks.threads() == Threads::Spawn { DEPTH } else { 1 };
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
    fn clear(&mut self) {
        self.stretches.clear();
    }
}

/// One follower's way through the groups of a log on the disk.
pub struct LogReader {
    storage: Arc<FileStorage>,
    ahead: ReadAhead<Vec<Arc<Group>>>,
    /// None while what follows comes from elsewhere.
    buffers: Option<ReadBuffers>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl LogReader {
    /// A reader of a log.
    pub fn new(storage: Arc<FileStorage>) -> Self {
        Self { storage, ahead: ReadAhead::default(), buffers: None }
    }

    /// Whole groups from the first that reaches beyond `from`, checksums verified; none if the log ends there. When the
    /// next call goes on behind them, they are being read already, as far as `end`. Cancel-safe.
    ///
    /// # Errors
    /// As [`read`](crate::wal::WalStorage::read).
    pub async fn next(&mut self, from: Lsn, end: Lsn) -> Result<Vec<Arc<Group>>, StorageError> {
        let Self { storage, ahead, buffers } = self;
        let buffers = &*buffers.get_or_insert_default();
        let begin = |from, until| {
            let (storage, buffers) = (storage.clone(), buffers.clone());
            storage.tasks.clone().begin_blocking(move || storage.read_stride(from, until, &buffers))
        };
        let read = ahead.next(storage, (from, end), storage.limits.read_bytes, begin).await;
        read.map(Option::unwrap_or_default)
    }

    /// Lets go of its memory, until the next call: what follows comes from elsewhere, or not yet.
    pub fn rest(&mut self) {
        self.ahead.clear();
        self.buffers = None;
    }
}

/// One follower's way through those records of a log on the disk that a filter wants.
pub struct LogSelector {
    storage: Arc<FileStorage>,
    filter: Arc<Filter>,
    ahead: ReadAhead<Selection>,
    /// None while what follows comes from elsewhere.
    buffers: Option<ReadBuffers>,
}

impl std::fmt::Debug for LogSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSelector").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl LogSelector {
    /// A filtered reader of a log.
    pub fn new(storage: Arc<FileStorage>, filter: Filter) -> Self {
        Self { storage, filter: Arc::new(filter), ahead: ReadAhead::default(), buffers: None }
    }

    /// What is wanted.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// What is wanted of the next stretch from `from` on, not beyond `end`: nothing, maybe; reading goes on where the
    /// answer says. None if the log ends there. Cancel-safe.
    ///
    /// # Errors
    /// As [`read`](crate::wal::WalStorage::read).
    pub async fn next(&mut self, from: Lsn, end: Lsn) -> Result<Option<Selection>, StorageError> {
        let Self { storage, filter, ahead, buffers } = self;
        let buffers = &*buffers.get_or_insert_default();
        let begin = |from, until: Lsn| {
            let (storage, buffers, filter) = (storage.clone(), buffers.clone(), filter.clone());
            let tasks = storage.tasks.clone();
            tasks.begin_blocking(move || storage.select((from, until.min(end)), &filter, &buffers))
        };
        ahead.next(storage, (from, end), SELECTED_BYTES, begin).await
    }

    /// Lets go of its memory, until the next call: what follows comes from elsewhere, or not yet.
    pub fn rest(&mut self) {
        self.ahead.clear();
        self.buffers = None;
    }
}
