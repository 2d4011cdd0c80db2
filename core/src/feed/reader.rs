//! [`FeedSource`] and [`FeedReader`]: a log that can be read by cursor, and one reading of it.

use async_trait::async_trait;

use super::batch::Batch;
use super::cursor::Cursor;
use crate::error::Error;
use crate::id::Lsn;

/// Why a feed ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FeedError {
    /// The log no longer holds the cursor's position.
    #[error("the log begins at {lowest}, after the cursor: take a snapshot and continue from there")]
    FellOff {
        /// The lowest position that is retained.
        lowest: Lsn,
    },
    /// The cursor belongs to another log, or lies beyond the end of this one.
    #[error("cursor {cursor} is not of this log; start from a snapshot or from the beginning")]
    Foreign {
        /// The cursor.
        cursor: Cursor,
    },
    /// The tree has taken over a seed since the reading began: what came that way is not in the log, and what lies behind
    /// it may not be taken for all that there is.
    #[error("this tree has been seeded from another cluster since: start a new reading")]
    Seeded,
    /// The log could not be read.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// One consumer's way through a log.
#[async_trait]
pub trait FeedReader: Send {
    /// The next groups, as many as a read brings; waits while there are none. Cancel-safe: a batch is handed out or the
    /// position stays.
    ///
    /// # Errors
    /// The reading is over then; start a new one.
    async fn next(&mut self) -> Result<Batch, FeedError>;

    /// Progress without records: if everything applied has been handed out and nothing is on its way into the log, a
    /// batch that says so, else None. Cancel-safe.
    ///
    /// # Errors
    /// When the clock has no durable ceiling to promise below.
    async fn idle(&mut self) -> Result<Option<Batch>, FeedError>;

    /// Where reading goes on.
    fn cursor(&self) -> Cursor;
}

/// A log that can be read by cursor: a tree.
pub trait FeedSource: Send + Sync + 'static {
    /// Starts a reading at a cursor.
    fn feed(&self, from: Cursor) -> Box<dyn FeedReader>;
}
