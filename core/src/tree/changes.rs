//! [`Changes`]: the feed decoded, one change at a time, for whoever wants keys and values.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

use super::core::Tree;
use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind};
use crate::feed::{Batch, Cursor, FeedError, FeedReader, FeedSource};
use crate::id::{Dot, Lsn, Offset, Version};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FramedBlock, Kind};

/// How long a reading that has caught up waits before it says how far everything is complete.
const MARK_PAUSE: Duration = Duration::from_millis(500);

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

/// One effective change: it won when it was applied here. What lost on arrival is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: Kind,
    /// The key: a slice of its batch, so copy what you keep.
    pub key: Bytes,
    /// The value: a slice of its batch, so copy what you keep.
    pub value: Bytes,
    /// Its version.
    pub version: Version,
    /// Its identity.
    pub dot: Dot,
    /// Where reading goes on after it.
    pub cursor: Cursor,
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
                    self.decode(&batch.map_err(refused)?);
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
        (cursor.lsn >= state.next_lsn)
            .then(|| Event::Resolved { frontier: state.progress.frontier.clone(), cursor })
    }

    fn decode(&mut self, batch: &Batch) {
        for framed in batch.groups().iter().flat_map(|group| group.blocks()) {
            self.decode_block(framed);
        }
    }

    fn decode_block(&mut self, framed: &FramedBlock) {
        let block = &framed.block;
        let manifest = self.tree.0.storage.manifest();
        let incarnation = manifest.incarnation_of(block.origin()).unwrap_or(manifest.incarnation);
        let state = self.tree.0.applied.state.read();
        let mut offsets = [Offset::ZERO; MAX_PARTITIONS as usize];
        for run in block.runs() {
            offsets[run.partition.index()] = run.first;
        }
        let mut lsn = framed.frame.first_lsn;
        for (at, record) in block.records().flatten().enumerate() {
            let Some(offset) = offsets.get_mut(record.partition.index()) else { continue };
            let dot =
                Dot { origin: block.origin(), incarnation, partition: record.partition, offset: *offset };
            *offset = offset.next();
            if at < usize::from(framed.frame.skip) {
                continue;
            }
            let version = Version { hlc: record.hlc, origin: block.origin() };
            let effective = state.was_effective(record.key, version, lsn);
            if lsn >= self.from && effective && record.kind != Kind::Mark {
                self.waiting.push_back(Change {
                    kind: record.kind,
                    key: block.bytes().slice_ref(record.key),
                    value: block.bytes().slice_ref(record.value),
                    version,
                    dot,
                    cursor: Cursor { lsn: lsn.next(), ..self.reader.cursor() },
                });
            }
            lsn = lsn.next();
        }
    }
}

fn refused(error: FeedError) -> Error {
    match error {
        FeedError::Failed(error) => error,
        other => Error::new(ErrorKind::Conflict, other.to_string()),
    }
}
