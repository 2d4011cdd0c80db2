//! [`Changes`]: the feed decoded, one change at a time, for whoever wants keys and values.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

use super::change::{Change, ChangeView, decode_block, decode_rows};
use super::core::Tree;
use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind};
use crate::feed::{Batch, Cursor, FeedError, FeedReader, FeedSource, StateRows};
use crate::id::{Lsn, OriginTag, SeedNumber};

/// How long a reading that has caught up waits before it says how far everything is complete.
const MARK_PAUSE: Duration = Duration::from_millis(500);

/// Entries of the state that are looked at under one lock.
const ROWS_AT_ONCE: usize = 4_096;
/// Bytes of them that are handed out at once.
const ROWS_BYTES: u64 = 256 * 1024;

/// Where changes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest change that is retained.
    Beginning,
    /// With the next change.
    Now,
    /// Where another reading was.
    At(Cursor),
}

/// What a reading brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key changed.
    Change(Change),
    /// Everything of each origin up to its HLC has been handed out.
    Resolved {
        /// Up to where, by origin.
        frontier: VersionVector,
        /// Where reading goes on.
        cursor: Cursor,
    },
}

/// A reading of a tree's changes, in the order of this cluster's log.
pub struct Changes {
    tree: Tree,
    reader: Box<dyn FeedReader>,
    /// Records below it were handed out before.
    from: Lsn,
    waiting: VecDeque<Change>,
    marked: bool,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("cursor", &self.reader.cursor()).finish_non_exhaustive()
    }
}

impl Tree {
    /// Reads changes from a start. Each reading is its own.
    pub fn changes(&self, start: Start) -> Changes {
        let cursor = match start {
            Start::Beginning => self.cursor_at(self.size().log.first),
            Start::Now => self.cursor_at(self.0.applied.state.read().next_lsn),
            Start::At(cursor) => cursor,
        };
        Changes {
            tree: self.clone(),
            reader: self.feed(cursor),
            from: cursor.lsn,
            waiting: VecDeque::new(),
            marked: false,
        }
    }
}

impl Changes {
    /// The next event; waits while there is none. Cancel-safe.
    ///
    /// # Errors
    /// `Conflict` when the start is below what the log retains, or of another log; then a new reading has to start.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Ok(Event::Change(change));
            }
            tokio::select! {
                biased;
                batch = self.reader.next() => {
                    self.waiting.extend(self.tree.decode(&batch.map_err(refused)?, self.from));
                    self.marked = false;
                }
                () = tokio::time::sleep(MARK_PAUSE), if !self.marked => {
                    self.marked = true;
                    if let Some(mark) = self.mark() {
                        return Ok(mark);
                    }
                }
            }
        }
    }

    /// The same as a stream; it ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, Error>> + Send {
        futures::stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            let event = reading.next().await;
            let rest = event.is_ok().then_some(reading);
            Some((event, rest))
        })
    }

    /// How far everything is complete, if everything applied has been handed out.
    fn mark(&self) -> Option<Event> {
        let state = self.tree.0.applied.state.read();
        let cursor = self.reader.cursor();
        (cursor.lsn >= state.next_lsn).then(|| Event::Resolved { frontier: state.claimed().frontier, cursor })
    }
}

impl ChangeView for Tree {
    fn decode(&self, batch: &Batch, from: Lsn) -> Vec<Change> {
        let mut changes = Vec::with_capacity(usize::try_from(batch.records()).unwrap_or(0));
        decode_rows(batch, &mut changes);
        let manifest = self.0.storage.manifest();
        for framed in batch.groups().iter().flat_map(|group| group.blocks()) {
            let origin = framed.block.origin();
            let incarnation = manifest.incarnation_of(origin).unwrap_or(manifest.incarnation);
            let state = self.0.applied.state.read();
            let effective = |lsn| !state.superseded.contains(lsn);
            decode_block(framed, incarnation, batch, from, effective, &mut changes);
        }
        changes
    }

    fn removed(&self, change: &Change, after: Option<&[u8]>, limit: usize) -> Vec<Bytes> {
        let Some(end) = change.end_key.as_deref() else { return Vec::new() };
        self.0.applied.settle();
        self.0.applied.state.read().removed(&change.key..end, change.lsn, after, limit)
    }

    fn is_forgotten(&self, change: &Change) -> bool {
        let state = self.0.applied.state.read();
        let reaped = state.progress.reaped;
        change.version.hlc <= reaped
            && state.find(&change.key).is_none_or(|entry| !entry.is_live() && entry.version.hlc <= reaped)
    }

    fn seeded(&self) -> SeedNumber {
        self.0.seeds.joined()
    }

    fn rows(&self, below: Lsn, after: Option<&[u8]>) -> StateRows {
        self.0.applied.settle();
        self.0.applied.state.read().rows(below, after, ROWS_AT_ONCE, ROWS_BYTES)
    }

    fn origin_name(&self, origin: OriginTag) -> String {
        Self::origin_name(self, origin)
    }
}

fn refused(error: FeedError) -> Error {
    match error {
        FeedError::Failed(error) => error,
        other => Error::new(ErrorKind::Conflict, other.to_string()),
    }
}
