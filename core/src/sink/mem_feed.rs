//! [`MemFeed`]: a log in memory that can be read by cursor, for tests of whatever consumes a feed.
//!
//! It commits what it is told, one group a call, and keeps no state of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::causal::{OriginMarks, VersionVector, Watermark};
use crate::error::Error;
use crate::feed::{Batch, Cursor, FeedError, FeedReader, FeedSource, Resolved};
use crate::id::{ClusterId, GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, TreeName};
use crate::record::{Block, BlockBuilder, Frame, FramedBlock, Group, Kind, Mutation};
use crate::tree::{
    Change, ChangeView, Consistency, Located, LogView, MergeMode, Progress, Standing, TreeIdentity,
    decode_block, decode_rows,
};

/// Bytes that one read brings at most, if more than one group is there.
const READ_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
struct State {
    groups: Vec<Arc<Group>>,
    lowest: Lsn,
    end: Lsn,
    tails: OriginMarks,
    hlc: Hlc,
    busy: bool,
    known: Vec<(ClusterId, Incarnation)>,
    foreign: Progress,
}

impl State {
    /// Notes what a block of another origin covers, if that origin is known.
    fn take_foreign(&mut self, block: &Block, partitions: u16) {
        let origin = block.origin();
        let Some((_, incarnation)) = self.known.iter().find(|(name, _)| name.tag() == origin) else { return };
        let marks = self.foreign.watermarks.origin_mut(origin, *incarnation, partitions);
        for run in block.runs() {
            let records = block.records().flatten().filter(|record| record.partition == run.partition);
            marks.advance(run.partition, run.end(), records.last().map_or(Hlc::ZERO, |record| record.hlc));
        }
        self.foreign.frontier.raise(origin, block.last_hlc());
    }

    fn marks(&self, origin: OriginTag, own: OriginTag) -> OriginMarks {
        let none = || OriginMarks::new(self.tails.incarnation(), 0);
        if origin == own {
            return self.tails.clone();
        }
        self.foreign.watermarks.origin(origin).cloned().unwrap_or_else(none)
    }
}

#[derive(Debug)]
struct Shared {
    identity: TreeIdentity,
    state: Mutex<State>,
    committed: watch::Sender<u64>,
}

/// A log in memory. Cheap to clone; clones are the same log.
#[derive(Clone, Debug)]
pub struct MemFeed(Arc<Shared>);

impl MemFeed {
    /// An empty log.
    pub fn new(identity: TreeIdentity) -> Self {
        let state = State {
            groups: Vec::new(),
            lowest: Lsn::ZERO,
            end: Lsn::ZERO,
            tails: OriginMarks::new(identity.incarnation, identity.partitions),
            hlc: Hlc::from_millis(1_000),
            busy: false,
            known: Vec::new(),
            foreign: Progress::default(),
        };
        Self(Arc::new(Shared { identity, state: Mutex::new(state), committed: watch::Sender::new(0) }))
    }

    /// An empty log of tree `orders` in cluster `a`.
    pub fn sample() -> Self {
        Self::new(TreeIdentity {
            cluster: ClusterId::new("a").expect("a name"),
            tree: TreeName::new("orders").expect("a name"),
            incarnation: Incarnation::new(5),
            partitions: 4,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
        })
    }

    /// Everything that is in it, as one batch.
    pub fn whole(&self) -> Batch {
        let (start, end) = (self.cursor(Lsn::ZERO), self.end());
        Batch::new(self.0.state.lock().groups.clone(), start, end)
    }

    /// Commits local writes as one group of one block.
    pub fn push(&self, mutations: &[Mutation]) {
        let identity = &self.0.identity;
        let block = {
            let mut state = self.0.state.lock();
            let mut builder = BlockBuilder::new(identity.origin(), identity.partitions, 0, 256);
            for mutation in mutations {
                state.hlc = state.hlc.next();
                let partition = PartitionId::of(&mutation.key, identity.partitions);
                let offset = state.tails.get(partition).next;
                builder.push(mutation, partition, offset, state.hlc, false);
                let hlc = state.hlc;
                state.tails.advance(partition, offset.next(), hlc);
            }
            builder.seal(&VersionVector::default(), identity.incarnation)
        };
        self.push_blocks(vec![block]);
    }

    /// Commits one local write of a key, with that many bytes of value.
    pub fn put(&self, key: &str, bytes: usize) {
        self.push(&[Mutation::set(key.to_owned(), vec![7; bytes])]);
    }

    /// Another origin of which the log may hold blocks.
    pub fn know(&self, cluster: &ClusterId, incarnation: Incarnation) {
        self.0.state.lock().known.push((cluster.clone(), incarnation));
    }

    /// A promise of another origin has come, without records.
    pub fn promise(&self, origin: OriginTag, closed: Hlc) {
        self.0.state.lock().foreign.frontier.raise(origin, closed);
    }

    /// Commits blocks, of whatever origin, as one group.
    pub fn push_blocks(&self, blocks: Vec<Block>) {
        let (own, partitions) = (self.0.identity.origin(), self.0.identity.partitions);
        let mut state = self.0.state.lock();
        state.hlc = state.hlc.next();
        let frames = u16::try_from(blocks.len()).expect("a test's group is small");
        let framed = (0_u16..).zip(blocks).map(|(index, block)| {
            let closed = if block.origin() == own { state.hlc } else { block.last_hlc() };
            state.take_foreign(&block, partitions);
            let frame = Frame {
                sequence: GroupSequence::new(state.groups.len() as u64),
                index,
                frames,
                length: u32::try_from(block.bytes().len()).expect("a test's block is small"),
                first_lsn: state.end,
                closed,
                skip: 0,
            };
            state.end = state.end.advanced(u64::from(block.count()));
            FramedBlock { frame, block }
        });
        let group = Group::new(framed.collect());
        state.groups.push(Arc::new(group));
        drop(state);
        self.0.committed.send_modify(|count| *count += 1);
    }

    /// Leaves a hole in a partition, as a flush that was given up on does.
    pub fn skip_offset(&self, partition: PartitionId) {
        let mut state = self.0.state.lock();
        let next = state.tails.get(partition).next.next();
        state.tails.advance(partition, next, Hlc::ZERO);
    }

    /// Gives up what lies before a position.
    pub fn trim(&self, before: Lsn) {
        let mut state = self.0.state.lock();
        state.lowest = state.lowest.max(before);
    }

    /// While busy, the log makes no promise: something is on its way into it.
    pub fn set_busy(&self, busy: bool) {
        self.0.state.lock().busy = busy;
    }

    fn cursor(&self, lsn: Lsn) -> Cursor {
        Cursor { incarnation: self.0.identity.incarnation, lsn }
    }
}

impl FeedSource for MemFeed {
    fn feed(&self, from: Cursor) -> Box<dyn FeedReader> {
        Box::new(MemReader { feed: self.clone(), cursor: from, committed: self.0.committed.subscribe() })
    }
}

struct MemReader {
    feed: MemFeed,
    cursor: Cursor,
    committed: watch::Receiver<u64>,
}

impl MemReader {
    fn read(&mut self) -> Result<Option<Batch>, FeedError> {
        let shared = &self.feed.0;
        let state = shared.state.lock();
        if self.cursor.incarnation != shared.identity.incarnation || self.cursor.lsn > state.end {
            return Err(FeedError::Foreign { cursor: self.cursor });
        }
        if self.cursor.lsn < state.lowest {
            return Err(FeedError::FellOff { lowest: state.lowest });
        }
        let mut bytes = 0;
        let unread = state.groups.iter().skip_while(|group| group.next_lsn() <= self.cursor.lsn);
        let groups: Vec<_> = unread
            .take_while(|group| {
                bytes += group.stored_bytes();
                bytes <= READ_BYTES || bytes == group.stored_bytes()
            })
            .cloned()
            .collect();
        let Some(last) = groups.last() else { return Ok(None) };
        let end = Cursor { lsn: last.next_lsn(), ..self.cursor };
        let batch = Batch::new(groups, self.cursor, end);
        self.cursor = end;
        Ok(Some(batch))
    }
}

#[async_trait]
impl FeedReader for MemReader {
    async fn next(&mut self) -> Result<Batch, FeedError> {
        loop {
            self.committed.mark_unchanged();
            if let Some(batch) = self.read()? {
                return Ok(batch);
            }
            self.committed.changed().await.expect("the reader holds the log that sends");
        }
    }

    async fn idle(&mut self) -> Result<Option<Batch>, FeedError> {
        let mut state = self.feed.0.state.lock();
        if state.busy || self.cursor.lsn < state.end {
            return Ok(None);
        }
        state.hlc = state.hlc.next();
        let resolved = Resolved { closed: state.hlc, tails: state.tails.clone() };
        Ok(Some(Batch::idle(self.cursor, resolved)))
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }
}

#[async_trait]
impl LogView for MemFeed {
    fn identity(&self) -> TreeIdentity {
        self.0.identity.clone()
    }

    fn tails(&self) -> OriginMarks {
        self.0.state.lock().tails.clone()
    }

    fn first(&self) -> Cursor {
        self.cursor(self.0.state.lock().lowest)
    }

    fn end(&self) -> Cursor {
        self.cursor(self.0.state.lock().end)
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        let state = self.0.state.lock();
        let after = state.groups.iter().filter(|group| group.first_lsn() >= lsn);
        after.map(|group| group.stored_bytes()).sum()
    }

    fn standing(&self) -> Standing {
        let state = self.0.state.lock();
        Standing { end: self.cursor(state.end), progress: state.foreign.clone() }
    }

    async fn outlook(&self) -> Standing {
        self.standing()
    }

    fn origins(&self) -> Vec<(ClusterId, Incarnation)> {
        self.0.state.lock().known.clone()
    }

    async fn locate(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Result<Located, Error> {
        let state = self.0.state.lock();
        let own = self.0.identity.origin();
        let held_at = |partition| held.map_or(Watermark::default(), |held| held.get(partition));
        let local = |group: &Arc<Group>| -> Vec<Block> {
            let blocks = group.blocks().iter().map(|framed| framed.block.clone());
            blocks.filter(|block| block.origin() == origin).collect()
        };
        for (partition, tail) in state.marks(origin, own).iter() {
            let held = held_at(partition);
            if origin != own && held.next > tail.next {
                continue;
            }
            let below = state.groups.iter().flat_map(local).filter_map(|block| {
                let records = block.records().filter_map(Result::ok);
                let mut records = records.filter(|record| record.partition == partition).map(|r| r.hlc);
                let run = block.run(partition)?;
                let count = held.next.since(run.first).min(u64::from(run.count));
                records.nth(usize::try_from(count.checked_sub(1)?).ok()?)
            });
            let here = Watermark { next: tail.next, hlc: below.last().unwrap_or_default() };
            if held.next > tail.next || (held.next > Offset::ZERO && held.hlc != here.hlc) {
                return Ok(Located::WentBack { partition, held, here });
            }
        }
        let lacks = |group: &&Arc<Group>| {
            let blocks = local(group);
            blocks.iter().flat_map(Block::runs).any(|run| run.end() > held_at(run.partition).next)
        };
        let start = state.groups.iter().find(lacks).map_or(state.end, |group| group.first_lsn());
        if start < state.lowest {
            return Ok(Located::FellOff { lowest: state.lowest });
        }
        Ok(Located::At(self.cursor(start)))
    }
}

/// Nothing loses here: every record was effective.
impl ChangeView for MemFeed {
    fn decode(&self, batch: &Batch, from: Lsn) -> Vec<Change> {
        let mut changes = Vec::new();
        decode_rows(batch, &mut changes);
        for framed in batch.groups().iter().flat_map(|group| group.blocks()) {
            decode_block(framed, self.0.identity.incarnation, batch, from, |_| true, &mut changes);
        }
        changes
    }

    fn removed(&self, change: &Change, after: Option<&[u8]>, limit: usize) -> Vec<Bytes> {
        let Some(end) = change.end_key.as_deref() else { return Vec::new() };
        let state = self.0.state.lock();
        let mut keys = BTreeMap::new();
        for framed in state.groups.iter().flat_map(|group| group.blocks()) {
            for (at, record) in (0..).zip(framed.block.records().flatten()) {
                let inside = record.key >= &change.key[..] && record.key < end;
                let earlier = framed.frame.first_lsn.advanced(at) < change.lsn;
                if inside && (earlier || record.kind == Kind::Set) {
                    // A key that is set again later is left out.
                    keys.insert(Bytes::copy_from_slice(record.key), earlier && record.kind == Kind::Set);
                }
            }
        }
        let removed = keys.into_iter().filter(|(key, live)| *live && after.is_none_or(|after| key > after));
        removed.map(|(key, _)| key).take(limit).collect()
    }

    fn origin_name(&self, origin: OriginTag) -> String {
        if origin == self.0.identity.origin() {
            return self.0.identity.cluster.to_string();
        }
        format!("origin {:016x}", origin.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> MemFeed {
        MemFeed::sample()
    }

    #[tokio::test]
    async fn a_reader_sees_every_group_once_and_then_that_nothing_is_to_come() {
        let log = log();
        let mut reader = log.feed(log.end());
        for key in 0..10 {
            log.put(&format!("k{key}"), 20_000);
        }
        let mut records = 0;
        while records < 10 {
            assert!(reader.idle().await.unwrap().is_none(), "not all was handed out");
            records += reader.next().await.unwrap().records();
        }
        let idle = reader.idle().await.unwrap().unwrap();
        assert_eq!((records, idle.end()), (10, log.end()));
        assert_eq!(idle.resolved().unwrap().tails.covered(), 10);
    }

    #[tokio::test]
    async fn a_receiver_is_found_by_what_it_holds() {
        let log = log();
        for key in 0..10 {
            log.put(&format!("k{key}"), 10);
        }
        let all = log.tails();
        assert_eq!(log.locate(log.0.identity.origin(), Some(&all)).await.unwrap(), Located::At(log.end()));
        log.put("more", 10);
        assert_eq!(
            log.locate(log.0.identity.origin(), Some(&all)).await.unwrap(),
            Located::At(log.cursor(Lsn::new(10)))
        );
        assert_eq!(
            log.locate(log.0.identity.origin(), None).await.unwrap(),
            Located::At(log.cursor(Lsn::ZERO))
        );
        let mut other = all.clone();
        let (partition, mark) = all.iter().find(|(_, mark)| mark.next > Offset::ZERO).unwrap();
        other.advance(partition, mark.next, mark.hlc.next());
        assert!(matches!(
            log.locate(log.0.identity.origin(), Some(&other)).await.unwrap(),
            Located::WentBack { .. }
        ));
        log.trim(Lsn::new(5));
        assert_eq!(
            log.locate(log.0.identity.origin(), None).await.unwrap(),
            Located::FellOff { lowest: Lsn::new(5) }
        );
        assert!(matches!(log.locate(log.0.identity.origin(), Some(&all)).await.unwrap(), Located::At(_)));
    }
}
