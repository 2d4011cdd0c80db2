//! [`LogSelector`]: one follower's way through those records of a log that a filter wants, by whatever means its provider
//! has. The next stretch is on its way while the follower works on one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use futures::future::{BoxFuture, MaybeDone, maybe_done};

use super::filter::Filter;
use super::selection::Selection;
use super::storage::WalStorage;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;

/// Bytes of the log that a reading looks at: what it brings is less, and the position moves over all of it.
const SELECTED_BYTES: usize = 4 * 1024 * 1024;

type Reading = MaybeDone<BoxFuture<'static, Result<Selection, StorageError>>>;

/// One follower's way through those records of a log that a filter wants.
pub struct LogSelector {
    storage: Arc<dyn WalStorage>,
    filter: Arc<Filter>,
    /// What is being read, and where it begins.
    ahead: Option<(Lsn, Reading)>,
}

impl std::fmt::Debug for LogSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSelector").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl LogSelector {
    /// A filtered reader of a log.
    pub fn new(storage: Arc<dyn WalStorage>, filter: Filter) -> Self {
        Self { storage, filter: Arc::new(filter), ahead: None }
    }

    /// What is wanted.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// What is wanted of the next stretch from `from` on, not beyond `end`: nothing, maybe. Reading goes on where the
    /// answer says, and has begun there when this returns; where it says `from`, the log ends. Cancel-safe.
    ///
    /// # Errors
    /// As [`read_filtered`](WalStorage::read_filtered).
    pub async fn next(&mut self, from: Lsn, end: Lsn) -> Result<Selection, StorageError> {
        if self.ahead.as_ref().is_none_or(|(at, _)| *at != from) {
            self.ahead = Some((from, self.read(from, end)));
        }
        // It stays where it is until it is done: whoever waits may be dropped, and come back.
        let done = std::future::poll_fn(|context| {
            let Some((_, reading)) = &mut self.ahead else { return Poll::Ready(None) };
            ready!(Pin::new(&mut *reading).poll(context));
            Poll::Ready(Pin::new(reading).take_output())
        });
        let done = done.await;
        self.ahead = None;
        let lost = || Err(StorageError::new(StorageErrorKind::Closed, "the read was given up"));
        let selection = done.unwrap_or_else(lost)?;
        if (from.next()..end).contains(&selection.next()) {
            self.begin(selection.next(), end).await;
        }
        Ok(selection)
    }

    /// Lets go of its memory, until the next call: what follows comes from elsewhere, or not yet.
    pub fn rest(&mut self) {
        self.ahead = None;
    }

    fn read(&self, from: Lsn, end: Lsn) -> Reading {
        let (storage, filter) = (self.storage.clone(), self.filter.clone());
        let reading = async move { storage.read_filtered((from, end), &filter, SELECTED_BYTES).await };
        maybe_done(Box::pin(reading))
    }

    /// Has a reading begin: a provider starts what it does with the first look at its answer.
    async fn begin(&mut self, from: Lsn, end: Lsn) {
        let mut reading = self.read(from, end);
        let begun = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut reading).poll(context)));
        let _done_or_on_its_way = begun.await;
        self.ahead = Some((from, reading));
    }
}
