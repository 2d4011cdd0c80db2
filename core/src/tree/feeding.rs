//! The tree as a [`FeedSource`]: its applied log, by cursor.

use std::sync::Arc;

use async_trait::async_trait;

use super::core::Tree;
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::feed::{Batch, Cursor, FeedError, FeedReader, FeedSource, Resolved};
use crate::id::Lsn;
use crate::latest::Follower;
use crate::record::Group;
use crate::wal::WalStorage;
use crate::wal::file::LogReader;

impl FeedSource for Tree {
    fn feed(&self, from: Cursor) -> Box<dyn FeedReader> {
        Box::new(TreeReader {
            tree: self.clone(),
            moved: self.0.applied.moved.follow(),
            cursor: from,
            disk: LogReader::new(self.0.storage.clone()),
            epoch: self.0.seeds.epoch(),
        })
    }
}

/// One reading of a tree's log. Counts what is applied, not what is durable.
struct TreeReader {
    tree: Tree,
    moved: Follower<(Lsn, u64)>,
    cursor: Cursor,
    disk: LogReader,
    /// What the log lacked when the reading began.
    epoch: u64,
}

impl Tree {
    /// Whether a reading can go on at a cursor.
    pub(super) fn check_cursor(&self, cursor: Cursor) -> Result<(), FeedError> {
        // A group is in the state a moment before it is announced; a reading may start in between.
        let end = self.0.applied.state.read().next_lsn;
        if cursor.incarnation != self.0.identity.incarnation || cursor.lsn > end {
            return Err(FeedError::Foreign { cursor });
        }
        let lowest = self.0.storage.bounds().first;
        if cursor.lsn < lowest { Err(FeedError::FellOff { lowest }) } else { Ok(()) }
    }

    /// Whether the log lacks no more than when a reading began: what is read afterwards may lie behind what it lacks.
    pub(super) fn check_seeds(&self, epoch: u64) -> Result<(), FeedError> {
        if self.0.seeds.epoch() == epoch { Ok(()) } else { Err(FeedError::Seeded) }
    }

    /// What a reading that failed says to whoever reads.
    pub(super) fn feed_error(&self, error: StorageError) -> FeedError {
        if error.kind() == StorageErrorKind::Trimmed {
            return FeedError::FellOff { lowest: self.0.storage.bounds().first };
        }
        FeedError::Failed(Error::from(error))
    }
}

impl TreeReader {
    /// Groups from the cursor on: out of memory, if it is there, else from the disk, with more on its way.
    async fn read(&mut self, end: Lsn) -> Result<Vec<Arc<Group>>, FeedError> {
        let (inner, from) = (&self.tree.0, self.cursor.lsn);
        if let Some(groups) = inner.applied.log.recent(from, inner.limits.read_bytes) {
            self.disk.rest();
            return Ok(groups);
        }
        self.disk.next(from, end).await.map_err(|error| self.tree.feed_error(error))
    }
}

#[async_trait]
impl FeedReader for TreeReader {
    async fn next(&mut self) -> Result<Batch, FeedError> {
        loop {
            let end = self.moved.get().0;
            self.tree.check_seeds(self.epoch)?;
            self.tree.check_cursor(self.cursor)?;
            if self.cursor.lsn < end {
                let mut groups = self.read(end).await?;
                // The log may be durable beyond what is applied.
                groups.truncate(groups.partition_point(|group| group.next_lsn() <= end));
                self.tree.check_seeds(self.epoch)?;
                if let Some(last) = groups.last() {
                    let start = self.cursor;
                    self.cursor = Cursor { lsn: last.next_lsn(), ..start };
                    return Ok(Batch::new(groups, start, self.cursor));
                }
                let said = format!("the log ends at {}, and {end} is applied", self.cursor.lsn);
                return Err(FeedError::Failed(Error::new(ErrorKind::Corrupt, said)));
            }
            self.disk.rest();
            self.moved.changed().await;
        }
    }

    async fn idle(&mut self) -> Result<Option<Batch>, FeedError> {
        let (end, tails) = {
            let state = self.tree.0.applied.state.read();
            (state.next_lsn, self.tree.own_marks_of(&state))
        };
        if self.cursor.lsn < end {
            return Ok(None);
        }
        // Nothing was applied between the two looks if the writer stands where the applied log ended: then the promise
        // is about these tails and no others.
        let Some((closed, next)) = self.tree.0.writer.resolved().await? else { return Ok(None) };
        self.tree.check_seeds(self.epoch)?;
        let unchanged = self.tree.0.applied.state.read().next_lsn == end && next >= end;
        if !unchanged {
            return Ok(None);
        }
        Ok(Some(Batch::idle(self.cursor, Resolved { closed, tails })))
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }
}
