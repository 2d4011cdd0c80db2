//! [`History`]: every write that was asked for, what its caller was told, and the log as it was read so far.
//!
//! Whatever is read from a log is held against it: each record belongs to one write that was asked for, whole, and in
//! the order of its version; everything that was acknowledged is there; what was given up on never comes back; and what
//! was read once reads the same for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::view::View;
use crate::error::Error;
use crate::feed::{FeedError, FeedSource};
use crate::id::{Hlc, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::record::{Kind, Mutation};
use crate::tree::{LogView, Tree};

/// A record as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) lsn: Lsn,
    pub(super) origin: OriginTag,
    pub(super) hlc: Hlc,
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
    pub(super) mutation: Mutation,
}

impl Logged {
    pub(super) fn version(&self) -> Version {
        Version { hlc: self.hlc, origin: self.origin }
    }
}

/// What the caller of a write knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Nothing: it is under way, or its caller went away.
    None,
    Acknowledged(Version),
    /// It was told that the write did not happen.
    Failed,
}

#[derive(Clone, Debug)]
struct Asked {
    mutations: Vec<Mutation>,
    answer: Answer,
}

/// Writes, answers, and the log.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    next: u64,
    /// Those that were not read yet and may still come.
    open: BTreeMap<u64, Asked>,
    /// Everything that was read, what is trimmed by now included.
    log: Vec<Logged>,
    /// What another cluster wrote, group by group, and how many of its records were read.
    foreign: Arc<Vec<Vec<Logged>>>,
    foreign_read: usize,
    pub(super) view: View,
}

impl History {
    /// No writes yet; pages of that other cluster may come.
    pub(super) fn new(foreign: Arc<Vec<Vec<Logged>>>) -> Self {
        Self { foreign, ..Self::default() }
    }

    /// A write is on its way.
    pub(super) fn ask(&mut self, mutations: Vec<Mutation>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Asked { mutations, answer: Answer::None });
        self.next
    }

    /// Its caller was answered.
    pub(super) fn answer(&mut self, number: u64, answer: &Result<Version, Error>) {
        let answer = answer.as_ref().map_or(Answer::Failed, |version| Answer::Acknowledged(*version));
        // Somebody may have read it before its caller was told.
        match (self.open.get_mut(&number), answer) {
            (Some(asked), answer) => asked.answer = answer,
            (None, Answer::Acknowledged(version)) => {
                assert!(self.log.iter().any(|record| record.version() == version), "{version:?} was read");
            }
            (None, _) => {
                panic!("write {number} is in the log, and its caller was told that it did not happen")
            }
        }
    }

    /// The position after everything that was read.
    pub(super) fn end(&self) -> Lsn {
        self.log.last().map_or(Lsn::ZERO, |last| last.lsn.next())
    }

    /// What was read, from a position on.
    pub(super) fn from(&self, lsn: Lsn) -> &[Logged] {
        &self.log[self.log.partition_point(|record| record.lsn < lsn)..]
    }

    /// Reads what is new in the log of a running tree. After an error of the disk nothing is known.
    pub(super) fn catch_up(&mut self, tree: &Tree, read: Vec<Vec<Logged>>) {
        let end = self.end();
        for group in read.into_iter().filter(|group| group.last().is_some_and(|last| last.lsn >= end)) {
            self.take(tree, group);
        }
        let missing = self.acknowledged();
        assert!(missing.is_empty(), "acknowledged, and not in the log: {missing:?}");
        if tree.failure().is_none() {
            // Every failure is repaired: what failed can never come back.
            self.open.retain(|_, asked| asked.answer != Answer::Failed);
        }
    }

    /// Holds the whole log of a tree that was opened after a crash against what is known.
    pub(super) fn reopen(&mut self, tree: &Tree, read: Vec<Vec<Logged>>) {
        let first = tree.bounds().first;
        let again: Vec<&Logged> =
            read.iter().flatten().take_while(|record| record.lsn < self.end()).collect();
        let known: Vec<&Logged> = self.from(first).iter().collect();
        assert_eq!(again, known, "what was read once reads the same for ever");
        self.catch_up(tree, read);
        self.open.clear();
    }

    fn acknowledged(&self) -> Vec<&Asked> {
        self.open.values().filter(|asked| matches!(asked.answer, Answer::Acknowledged(_))).collect()
    }

    fn take(&mut self, tree: &Tree, group: Vec<Logged>) {
        let own = tree.identity().origin();
        for write in group.chunk_by(|a, b| a.version() == b.version()) {
            if write[0].origin == own {
                self.take_own(write)
            } else {
                self.take_foreign(write)
            }
            for record in write {
                assert!(record.lsn >= self.end(), "positions rise: {record:?}");
                self.view.apply(record);
                self.log.push(record.clone());
            }
        }
        let whole = self.foreign.iter().scan(0, |sum, group| {
            *sum += group.len();
            Some(*sum)
        });
        let whole = self.foreign_read == 0
            || whole.take_while(|end| *end <= self.foreign_read).last() == Some(self.foreign_read);
        assert!(whole, "a part of a group of the other cluster is in the log");
    }

    fn take_own(&mut self, write: &[Logged]) {
        let version = write[0].version();
        let mutations: Vec<Mutation> = write.iter().map(|record| shape(&record.mutation)).collect();
        let fits = |asked: &Asked| match asked.answer {
            Answer::Acknowledged(acknowledged) => acknowledged == version,
            Answer::None | Answer::Failed => asked.mutations == mutations,
        };
        // What is acknowledged is known by its version; of alike others any may be the one.
        let known = |asked: &Asked| asked.answer == Answer::Acknowledged(version);
        let found = self.open.iter().find(|(_, asked)| known(asked));
        let found =
            found.or_else(|| self.open.iter().find(|(_, asked)| fits(asked))).map(|(number, _)| *number);
        let asked = found.and_then(|number| self.open.remove(&number));
        let asked =
            asked.unwrap_or_else(|| panic!("nobody asked for this, or it was given up on: {write:?}"));
        assert_eq!(asked.mutations, mutations, "the write is in the log whole and as it was asked for");
        let own = self.log.iter().rev().filter(|record| record.origin == version.origin);
        let mut ends: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        for record in own {
            assert!(record.hlc < version.hlc, "the clock rises: {record:?} before {version:?}");
            let end = ends.entry(record.partition).or_default();
            *end = record.offset.next().max(*end);
            if ends.len() == 4 {
                break;
            }
        }
        for record in write {
            let end = ends.entry(record.partition).or_default();
            assert!(record.offset >= *end, "offsets rise: {record:?}");
            *end = record.offset.next();
        }
    }

    fn take_foreign(&mut self, write: &[Logged]) {
        for record in write {
            let expected = self.foreign.iter().flatten().nth(self.foreign_read).expect("no more was sent");
            assert_eq!(Logged { lsn: record.lsn, ..expected.clone() }, *record, "verbatim and in order");
            self.foreign_read += 1;
        }
    }
}

/// A mutation as its caller asked for it: when it expires, only the clock knew.
pub(super) fn shape(mutation: &Mutation) -> Mutation {
    Mutation { deadline_ms: mutation.deadline_ms.map(|_| 0), ..mutation.clone() }
}

/// The groups of a tree's log from a position to its end. None when the disk did not answer.
pub(super) async fn read_log(tree: &Tree, from: Lsn) -> Option<Vec<Vec<Logged>>> {
    let mut reader = tree.feed(tree.cursor_at(from));
    let mut groups = Vec::new();
    while reader.cursor().lsn < LogView::end(tree).lsn {
        match reader.next().await {
            Ok(batch) => groups.extend(batch.groups().iter().map(|group| records_of(group))),
            Err(FeedError::Failed(error)) => {
                assert_eq!(error.kind(), crate::error::ErrorKind::Unavailable, "{error}");
                return None;
            }
            Err(error) => panic!("from {from}: {error}"),
        }
    }
    Some(groups)
}

/// The records of a group that count.
pub(super) fn records_of(group: &crate::record::Group) -> Vec<Logged> {
    let mut records = Vec::new();
    for framed in group.blocks() {
        let mut offsets: BTreeMap<PartitionId, Offset> =
            framed.block.runs().map(|run| (run.partition, run.first)).collect();
        let mut lsn = framed.frame.first_lsn;
        for (at, record) in framed.block.records().enumerate() {
            let record = record.expect("the log holds whole records");
            let offset = offsets.get_mut(&record.partition).expect("the block names its partitions");
            if at >= usize::from(framed.frame.skip) {
                let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
                records.push(Logged {
                    lsn,
                    origin: framed.block.origin(),
                    hlc: record.hlc,
                    partition: record.partition,
                    offset: *offset,
                    mutation: Mutation {
                        kind: record.kind,
                        key: copy(record.key),
                        end_key: record.end_key.map(copy),
                        value: copy(record.value),
                        deadline_ms: record.deadline_ms,
                    },
                });
                lsn = lsn.next();
            }
            *offset = offset.next();
        }
    }
    assert!(records.iter().all(|record| record.mutation.kind != Kind::Mark), "nothing writes marks yet");
    records
}
