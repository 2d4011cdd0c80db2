//! The tree as a [`FeedSource`]: its applied log, by cursor.

use async_trait::async_trait;

use super::core::Tree;
use crate::error::{Error, ErrorKind, StorageErrorKind};
use crate::feed::{Batch, Cursor, FeedError, FeedReader, FeedSource, Resolved};
use crate::id::Lsn;
use crate::latest::Follower;
use crate::wal::WalStorage;

impl FeedSource for Tree {
    fn feed(&self, from: Cursor) -> Box<dyn FeedReader> {
        Box::new(TreeReader { tree: self.clone(), moved: self.0.applied.moved.follow(), cursor: from })
    }
}

/// One reading of a tree's log. Counts what is applied, not what is durable.
struct TreeReader {
    tree: Tree,
    moved: Follower<(Lsn, u64)>,
    cursor: Cursor,
}

impl TreeReader {
    fn check(&self) -> Result<(), FeedError> {
        // A group is in the state a moment before it is announced; a reading may start in between.
        let end = self.tree.0.applied.state.read().next_lsn;
        if self.cursor.incarnation != self.tree.0.identity.incarnation || self.cursor.lsn > end {
            return Err(FeedError::Foreign { cursor: self.cursor });
        }
        let lowest = self.tree.0.storage.bounds().first;
        if self.cursor.lsn < lowest { Err(FeedError::FellOff { lowest }) } else { Ok(()) }
    }
}

#[async_trait]
impl FeedReader for TreeReader {
    async fn next(&mut self) -> Result<Batch, FeedError> {
        loop {
            let end = self.moved.get().0;
            self.check()?;
            if self.cursor.lsn < end {
                let read = self.tree.0.applied.log.read(self.cursor.lsn, self.tree.0.limits.read_bytes).await;
                let mut groups = match read {
                    Ok(groups) => groups,
                    Err(error) if error.kind() == StorageErrorKind::Trimmed => {
                        return Err(FeedError::FellOff { lowest: self.tree.0.storage.bounds().first });
                    }
                    Err(error) => return Err(Error::from(error).into()),
                };
                // The log may be durable beyond what is applied.
                groups.truncate(groups.partition_point(|group| group.next_lsn() <= end));
                if let Some(last) = groups.last() {
                    let start = self.cursor;
                    self.cursor = Cursor { lsn: last.next_lsn(), ..start };
                    return Ok(Batch::new(groups, start, self.cursor));
                }
                let said = format!("the log ends at {}, and {end} is applied", self.cursor.lsn);
                return Err(FeedError::Failed(Error::new(ErrorKind::Corrupt, said)));
            }
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
