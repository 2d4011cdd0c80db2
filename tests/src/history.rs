//! [`History`]: everything that a site's log holds, in order, read as any consumer reads it.

use std::time::Duration;

use bytes::Bytes;
use tidewire::Tree;
use tidewire_core::causal::VersionVector;
use tidewire_core::feed::{Cursor, FeedSource};
use tidewire_core::id::{Dot, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use tidewire_core::record::{FramedBlock, Kind};
use tidewire_core::tree::LogView;

/// One record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies in this log.
    pub lsn: Lsn,
    /// Who it is, everywhere.
    pub dot: Dot,
    /// When and where it was committed.
    pub version: Version,
    /// What it does.
    pub kind: Kind,
    /// Its key, or the first of a range.
    pub key: Bytes,
    /// The key after the last of a range.
    pub end_key: Option<Bytes>,
    /// What was set; None for a delete.
    pub value: Option<Bytes>,
    /// When that expires.
    pub deadline_ms: Option<u64>,
}

impl Entry {
    /// Whether it says anything about a key.
    pub fn is_about(&self, key: &[u8]) -> bool {
        match &self.end_key {
            Some(end) => self.key <= key && key < &end[..],
            None => self.key == key,
        }
    }
}

/// What a log holds.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Its records.
    pub entries: Vec<Entry>,
    /// Where each of its groups ends.
    pub ends: Vec<Lsn>,
    blocks: Vec<(OriginTag, Bytes)>,
    /// What each block depends on, and how many entries appear with it or before it.
    deps: Vec<(usize, OriginTag, VersionVector)>,
}

impl History {
    /// Reads the log of a tree from its first record to its end.
    pub async fn of(tree: &Tree) -> Self {
        let mut history = Self::default();
        let end = tree.end();
        let mut reader = tree.feed(Cursor { lsn: Lsn::ZERO, ..end });
        while reader.cursor().lsn < end.lsn {
            // Behind the last record there may be positions that were given up on: nothing comes of them.
            let read = tokio::time::timeout(Duration::from_millis(100), reader.next()).await;
            let Ok(batch) = read else { break };
            for group in batch.expect("a log that is being written can be read").groups() {
                history.ends.push(group.next_lsn());
                let before = history.deps.len();
                group.blocks().iter().for_each(|framed| history.take(framed, end.incarnation));
                // A group appears at once, whatever its blocks' order.
                let with = history.entries.len();
                history.deps[before..].iter_mut().for_each(|(entries, ..)| *entries = with);
            }
        }
        history
    }

    /// The blocks of an origin, byte for byte, in the order of this log.
    pub fn blocks_of(&self, origin: OriginTag) -> Vec<Bytes> {
        self.blocks.iter().filter(|(of, _)| *of == origin).map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The records of an origin.
    pub fn of_origin(&self, origin: OriginTag) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.version.origin == origin)
    }

    /// The blocks in the order of this log: how many entries appear with each or before it, its origin, what
    /// it depends on.
    pub(crate) fn deps(&self) -> &[(usize, OriginTag, VersionVector)] {
        &self.deps
    }

    fn take(&mut self, framed: &FramedBlock, incarnation: Incarnation) {
        let block = &framed.block;
        let origin = block.origin();
        self.blocks.push((origin, block.bytes().clone()));
        self.deps.push((self.entries.len(), origin, block.deps()));
        let mut next: std::collections::BTreeMap<PartitionId, Offset> =
            block.runs().map(|run| (run.partition, run.first)).collect();
        let skip = u64::from(framed.frame.skip);
        for (index, record) in (0..).zip(block.records()) {
            let record = record.expect("what is in a log was checked");
            let offset = next.get_mut(&record.partition).expect("a run for each partition");
            *offset = record.offset.unwrap_or(*offset);
            let dot = Dot { origin, incarnation, partition: record.partition, offset: *offset };
            *offset = offset.next();
            // A mark is no write: it says what was left out before it.
            if index < skip || record.kind == Kind::Mark {
                continue;
            }
            self.entries.push(Entry {
                lsn: framed.frame.first_lsn.advanced(index - skip),
                dot,
                version: Version { hlc: record.hlc, origin },
                kind: record.kind,
                key: Bytes::copy_from_slice(record.key),
                end_key: record.end_key.map(Bytes::copy_from_slice),
                deadline_ms: record.deadline_ms,
                value: (record.kind == Kind::Set).then(|| Bytes::copy_from_slice(record.value)),
            });
        }
    }
}
