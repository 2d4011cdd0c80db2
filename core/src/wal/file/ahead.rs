//! [`LogReader`]: a follower that is behind has the next stretches of the log read while it works on one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffers::ReadBuffers;
use super::storage::FileStorage;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Group;
use crate::tasks::{Begun, Threads};

/// Most stretches that are read at a time: one for each core of a small machine.
const DEPTH: usize = 2;

/// A stretch of the log on its way from the disk.
struct Stretch {
    from: Lsn,
    until: Lsn,
    work: Begun<Result<Vec<Arc<Group>>, StorageError>>,
}

/// One follower's way through the groups of a log on the disk.
pub struct LogReader {
    storage: Arc<FileStorage>,
    /// In order.
    ahead: VecDeque<Stretch>,
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
        Self { storage, ahead: VecDeque::new(), buffers: None }
    }

    /// Whole groups from the first that reaches beyond `from`, checksums verified; none if the log ends there. When the
    /// next call goes on behind them, they are being read already, as far as `end`. Cancel-safe.
    ///
    /// # Errors
    /// As [`read`](crate::wal::WalStorage::read).
    pub async fn next(&mut self, from: Lsn, end: Lsn) -> Result<Vec<Arc<Group>>, StorageError> {
        if self.ahead.front().is_none_or(|front| front.from != from) {
            self.ahead.clear();
        }
        self.begin(from, end);
        let Some(front) = self.ahead.front_mut() else { return Ok(Vec::new()) };
        let done = (&mut front.work).await;
        self.ahead.pop_front();
        let done = done.unwrap_or_else(|error| {
            let lost = StorageError::new(StorageErrorKind::Closed, "the read was given up");
            Err(lost.with_source(error))
        });
        if done.is_err() {
            self.ahead.clear();
        }
        done
    }

    /// Has stretches read from `from` on, behind those that are being read.
    fn begin(&mut self, from: Lsn, end: Lsn) {
        let Self { storage, ahead, buffers } = self;
        let buffers = &*buffers.get_or_insert_default();
        let depth = if storage.tasks.threads() == Threads::Spawn { DEPTH } else { 1 };
        let mut from = ahead.back().map_or(from, |last| last.until);
        while ahead.len() < depth && from < end {
            let until = storage.stride(from, storage.limits.read_bytes);
            if until <= from {
                break;
            }
            let (reading, buffers) = (storage.clone(), buffers.clone());
            let read = move || reading.read_stride(from, until, &buffers);
            ahead.push_back(Stretch { from, until, work: storage.tasks.begin_blocking(read) });
            from = until;
        }
    }

    /// Lets go of its memory, until the next call: what follows comes from elsewhere, or not yet.
    pub fn rest(&mut self) {
        self.ahead.clear();
        self.buffers = None;
    }
}
