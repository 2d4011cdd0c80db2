//! [`FilteredFeed`]: a reading of the tree's log that wants some of the records; and one partition of it, by offset.

use super::change::Change;
use super::core::Tree;
use crate::error::{Error, ErrorKind};
use crate::feed::{Cursor, FeedError, FeedOptions, FilteredBatch};
use crate::id::{Dot, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::latest::Follower;
use crate::record::Kind;
use crate::wal::file::Manifest;
use crate::wal::{LogSelector, PartitionExtent, Selected, Selection, WalStorage};

/// One reading of a tree's log through a filter. Counts what is applied, not what is durable.
pub struct FilteredFeed {
    tree: Tree,
    moved: Follower<(Lsn, u64)>,
    cursor: Cursor,
    /// Of the seeds when it began.
    epoch: u64,
    disk: LogSelector,
}

impl std::fmt::Debug for FilteredFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilteredFeed").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// Records of one partition, and the offset at which reading goes on.
#[derive(Clone, Debug)]
pub struct PartitionPage {
    /// The records, by offset.
    pub records: Selection,
    /// The offset to ask for next; gaps included.
    pub next: Offset,
}

impl Tree {
    /// Starts a reading at a cursor that brings what the options want.
    pub fn feed_with(&self, from: Cursor, options: FeedOptions) -> FilteredFeed {
        FilteredFeed {
            tree: self.clone(),
            moved: self.0.applied.moved.follow(),
            cursor: from,
            epoch: self.0.seeds.epoch(),
            disk: LogSelector::new(self.0.applied.log.storage().clone(), options.filter),
        }
    }

    /// The effective changes of a filtered batch: what lost on arrival is left out.
    pub fn decode_filtered(&self, batch: &FilteredBatch) -> Vec<Change> {
        let (selection, manifest) = (batch.selection(), self.0.storage.manifest());
        let state = self.0.applied.state.read();
        let won = |record: &Selected<'_>| {
            record.record.kind != Kind::Mark && !state.superseded.contains(record.lsn)
        };
        let change = |record: Selected<'_>| change_of(&manifest, selection, &record, batch.end());
        selection.iter().filter(won).map(change).collect()
    }

    /// What the log retains of a partition of an origin, from the index: its first offset, the next one, how many records
    /// and bytes.
    pub fn partition(&self, origin: OriginTag, partition: PartitionId) -> PartitionExtent {
        let extent = self.0.storage.partition((origin, partition));
        let state = self.0.applied.state.read();
        let marks = state.progress.watermarks.origin(origin);
        // What is covered goes further than the last record where there are gaps.
        let covered = marks.map_or(Offset::ZERO, |marks| marks.get(partition).next);
        PartitionExtent { next: extent.next.max(covered), ..extent }
    }

    /// Records of one partition of an origin from an offset on, about `limit` bytes of them.
    ///
    /// # Errors
    /// `Conflict` below what the log retains; `Invalid` for a partition that the tree does not have.
    pub async fn read_partition(
        &self,
        (origin, partition): (OriginTag, PartitionId),
        from: Offset,
        limit: usize,
    ) -> Result<PartitionPage, Error> {
        let partitions = self.0.identity.partitions;
        if partition.get() >= partitions {
            let said = format!(
                "the tree has {partitions} partitions, numbered from 0, and {partition} was asked for"
            );
            return Err(Error::new(ErrorKind::Invalid, said));
        }
        let (end, covered) = {
            let state = self.0.applied.state.read();
            let marks = state.progress.watermarks.origin(origin);
            (state.next_lsn, marks.map_or(Offset::ZERO, |marks| marks.get(partition).next))
        };
        let first = self.0.storage.trimmed_end(origin, partition);
        if from < first {
            let said = format!(
                "the log retains the partition from offset {first} on, and {from} was asked for: take a snapshot and go on from there"
            );
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        let storage = self.0.storage.clone();
        let read = move || storage.read_partition((origin, partition), from, end, limit.max(1));
        let records = self.0.tasks.blocking(read).await??;
        let last = records.iter().last().map(|last| last.offset.next());
        // Nothing more up to what was covered when the reading began: the rest are gaps.
        let next = if records.bytes() >= limit { last.unwrap_or(from) } else { covered.max(from) };
        Ok(PartitionPage { records, next })
    }
}

impl FilteredFeed {
    /// The next stretch of the log with what is wanted of it; waits while there is none. Cancel-safe: a batch is handed out
    /// or the position stays.
    ///
    /// # Errors
    /// The reading is over then; start a new one.
    pub async fn next(&mut self) -> Result<FilteredBatch, FeedError> {
        loop {
            let end = self.moved.get().0;
            self.tree.check_seeds(self.epoch)?;
            self.tree.check_cursor(self.cursor)?;
            if self.cursor.lsn < end {
                let selection = self.select(end).await?;
                self.tree.check_seeds(self.epoch)?;
                let start = self.cursor;
                let next = selection.next();
                if next <= start.lsn || next > end {
                    let said = format!("the log was read from {} to {next}, and {end} is applied", start.lsn);
                    return Err(FeedError::Failed(Error::new(ErrorKind::Corrupt, said)));
                }
                self.cursor = Cursor { lsn: next, ..start };
                return Ok(FilteredBatch::new(selection, start, self.cursor));
            }
            self.disk.rest();
            self.moved.changed().await;
        }
    }

    /// Out of memory, if it is there, else as the log's provider does it.
    async fn select(&mut self, end: Lsn) -> Result<Selection, FeedError> {
        let (inner, from) = (&self.tree.0, self.cursor.lsn);
        if let Some(groups) = inner.applied.log.recent(from, inner.limits.read_bytes) {
            self.disk.rest();
            let selected = Selection::of_groups(&groups, (from, end), self.disk.filter());
            return selected.map_err(|error| self.tree.feed_error(error));
        }
        self.disk.next(from, end).await.map_err(|error| self.tree.feed_error(error))
    }

    /// Where reading goes on.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }
}

fn change_of(manifest: &Manifest, selection: &Selection, selected: &Selected<'_>, end: Cursor) -> Change {
    let (record, origin) = (&selected.record, selected.origin);
    let incarnation = manifest.incarnation_of(origin).unwrap_or(manifest.incarnation);
    Change {
        kind: record.kind,
        key: selection.slice(record.key),
        end_key: record.end_key.map(|end| selection.slice(end)),
        value: selection.slice(record.value),
        deadline_ms: record.deadline_ms,
        version: Version { hlc: record.hlc, origin },
        dot: Some(Dot { origin, incarnation, partition: record.partition, offset: selected.offset }),
        lsn: selected.lsn,
        cursor: Cursor { lsn: selected.lsn.next(), ..end },
    }
}
