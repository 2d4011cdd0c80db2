//! What is wrong with records of a block whose checksum is right: found here, one letter for each. Pure.
//!
//! Such a block is what its origin wrote, so it comes again as it is. A record that cannot be read, whose fields cannot be,
//! or that is over this cluster's limit can never be applied here; the records beside it can. Behind a record that cannot
//! be read nothing in its block can, and where a block does not add up nobody can say which record it is.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tidewire_core::id::{Dot, Hlc, Incarnation, Lsn, Offset, PartitionId};
use tidewire_core::letters::{Fate, Letter, Stretch};
use tidewire_core::record::{Block, Kind, PartitionRun, RecordView};

use crate::late::TOO_LATE;
use crate::refusal::RefusalKind;

/// How many times the peer sends it before it is parked.
pub(crate) const TRIES: u32 = 3;
/// Pages that are being tried again, of all peers; an older one begins anew.
const REMEMBERED: usize = 256;

/// What is wrong, and how that is refused where nothing is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: RefusalKind,
    pub(crate) letter: Letter,
}

/// The faults of a block that can never be applied as it is; none for nearly every block.
pub(crate) fn find(
    block: &Block,
    incarnation: Incarnation,
    partitions: u16,
    max_record_bytes: usize,
) -> Vec<Fault> {
    let malformed = |letter| Fault { kind: RefusalKind::Malformed, letter };
    let sound = block.check(partitions).is_ok();
    let mut walk =
        Walk { block, incarnation, offsets: block.runs().map(|run| (run.partition, run.first)).collect() };
    let (mut faults, mut last) = (Vec::new(), block.first_hlc());
    let mut records = block.records();
    let all = records.left();
    let mut left = all;
    while let Some(record) = records.next() {
        let from = all - left + records.lead();
        let Ok(record) = record else {
            let reason = "it cannot be read, and nothing behind it in its block";
            faults.push(malformed(walk.rest(from..all, last, reason)));
            return faults;
        };
        left = records.left();
        let Some(offset) = walk.pass(&record) else { return vec![malformed(walk.whole())] };
        last = last.max(record.hlc);
        if let Some((kind, reason)) = fault(block, &record, partitions, max_record_bytes) {
            let stretches = vec![Stretch { partition: record.partition, first: offset, count: 1 }];
            faults.push(Fault { kind, letter: walk.letter(stretches, record.hlc, from..all - left, reason) });
        }
    }
    let explained = sound || !faults.is_empty() && walk.is_complete();
    if explained { faults } else { vec![malformed(walk.whole())] }
}

/// The letter of one record that a target has refused; None if the block does not hold it.
pub(crate) fn of_dot(block: &Block, dot: Dot, reason: &str) -> Option<Letter> {
    let Dot { origin, incarnation, partition, offset } = dot;
    if block.origin() != origin {
        return None;
    }
    let mut walk =
        Walk { block, incarnation, offsets: block.runs().map(|run| (run.partition, run.first)).collect() };
    let mut records = block.records();
    let all = records.left();
    let mut left = all;
    while let Some(Ok(record)) = records.next() {
        let from = all - left + records.lead();
        left = records.left();
        if (record.partition, walk.pass(&record)?) == (partition, offset) {
            let stretches = vec![Stretch { partition, first: offset, count: 1 }];
            return Some(walk.letter(stretches, record.hlc, from..all - left, reason.to_owned()));
        }
    }
    None
}

/// A letter for each record of a block, not above `until` and not covered, that comes too late.
pub(crate) fn late(
    block: &Block,
    incarnation: Incarnation,
    until: Hlc,
    covered: impl Fn(PartitionId) -> Offset,
) -> Vec<Letter> {
    let mut walk =
        Walk { block, incarnation, offsets: block.runs().map(|run| (run.partition, run.first)).collect() };
    let mut records = block.records();
    let (all, mut letters) = (records.left(), Vec::new());
    let mut left = all;
    while let Some(Ok(record)) = records.next() {
        let from = all - left + records.lead();
        left = records.left();
        let partition = record.partition;
        let Some(first) = walk.pass(&record) else { break };
        if record.hlc > until {
            break;
        }
        // A mark brings nothing.
        if first >= covered(partition) && record.kind != Kind::Mark {
            let stretches = vec![Stretch { partition, first, count: 1 }];
            letters.push(walk.letter(stretches, record.hlc, from..all - left, TOO_LATE.to_owned()));
        }
    }
    letters
}

fn fault(
    block: &Block,
    record: &RecordView<'_>,
    partitions: u16,
    max_record_bytes: usize,
) -> Option<(RefusalKind, String)> {
    if let Err(error) = record.check_in(block, partitions) {
        return Some((RefusalKind::Malformed, error.to_string()));
    }
    let bytes = record.payload_bytes();
    (bytes > max_record_bytes).then(|| {
        let said = format!(
            "a record of {bytes} bytes, at most {max_record_bytes} are taken: raise max_record_bytes here"
        );
        (RefusalKind::TooLarge, said)
    })
}

/// The offsets of records as they come by.
struct Walk<'a> {
    block: &'a Block,
    incarnation: Incarnation,
    offsets: BTreeMap<PartitionId, Offset>,
}

impl Walk<'_> {
    /// The offset of the next record; None: the block's own table knows of none.
    fn pass(&mut self, record: &RecordView<'_>) -> Option<Offset> {
        let partition = record.partition;
        let end = self.block.run(partition)?.end();
        let next = self.offsets.get_mut(&partition)?;
        let offset = record.offset.unwrap_or(*next);
        *next = offset.next();
        (offset < end).then_some(offset)
    }

    fn is_complete(&self) -> bool {
        let reached = |run: PartitionRun| self.offsets.get(&run.partition) == Some(&run.end());
        self.block.is_filtered() || self.block.runs().all(reached)
    }

    /// Everything that has not come by.
    fn rest(&self, bytes: std::ops::Range<usize>, hlc: Hlc, reason: &str) -> Letter {
        let left = self.block.runs().map(|run| {
            let first = self.offsets.get(&run.partition).copied().unwrap_or(run.first);
            let count = u32::try_from(run.end().since(first)).unwrap_or(u32::MAX);
            Stretch { partition: run.partition, first, count }
        });
        self.letter(left.filter(|stretch| stretch.count > 0).collect(), hlc, bytes, reason.to_owned())
    }

    fn whole(&self) -> Letter {
        let stretch = |run: PartitionRun| Stretch {
            partition: run.partition,
            first: run.first,
            count: u32::try_from(run.end().since(run.first)).unwrap_or(u32::MAX),
        };
        let all = self.block.records().left();
        let reason = "its block does not add up, so none of its records is sure";
        self.letter(
            self.block.runs().map(stretch).collect(),
            self.block.first_hlc(),
            0..all,
            reason.to_owned(),
        )
    }

    fn letter(
        &self,
        stretches: Vec<Stretch>,
        hlc: Hlc,
        bytes: std::ops::Range<usize>,
        reason: String,
    ) -> Letter {
        Letter {
            origin: self.block.origin(),
            incarnation: self.incarnation,
            stretches,
            hlc,
            bytes: Bytes::copy_from_slice(self.block.record_bytes(bytes)),
            reason,
            first_seen_ms: 0,
            lsn: Lsn::ZERO,
            fate: Fate::Parked,
        }
    }
}

/// How often each record was tried.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<BTreeMap<(u64, u64, u16, u64), u32>>);

impl Attempts {
    /// One more; says how many there were with it.
    pub(crate) fn count(&self, dot: Dot) -> u32 {
        let name = (dot.origin.get(), dot.incarnation.get(), dot.partition.get(), dot.offset.get());
        let mut attempts = self.0.lock();
        if attempts.len() >= REMEMBERED && !attempts.contains_key(&name) {
            attempts.pop_first();
        }
        let tries = attempts.entry(name).or_default();
        *tries += 1;
        *tries
    }
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
