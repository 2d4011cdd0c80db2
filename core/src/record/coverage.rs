//! [`Coverage`]: what was left out of a stream for the sake of an interest, until it is said; and the blocks that say it.
//!
//! A filtered block is the one place where bytes are made anew: it covers ranges of offsets, and each of its records
//! carries its own. What covers and holds nothing, a *cover*, has a mark as its one record, so that it has a place in a log.
//! Byte by byte: `docs/format.md`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::block::{Block, DEP_BYTES, FILTERED_RUN_BYTES, FLAG_DEPS, FLAG_FILTERED, MAGIC, VERSION};
use super::checksum::checksum;
use super::interest::Interest;
use super::mutation::{Kind, Mutation};
use super::view;
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::limits::MAX_PARTITIONS;

/// What is covered of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: Offset,
    end: Offset,
    /// The HLC of the last record below the end; zero: not known.
    last: Hlc,
}

/// Ranges of offsets of one origin that a receiver is to cover without their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    ranges: BTreeMap<PartitionId, Range>,
    /// The HLC of the last record in them.
    last: Hlc,
}

impl Coverage {
    /// What a block covers.
    pub fn of(block: &Block) -> Self {
        let mut coverage = Self::default();
        coverage.add(block);
        coverage
    }

    /// Adds what a block covers, which lies behind what was added before.
    pub fn add(&mut self, block: &Block) {
        let mut last = [Hlc::ZERO; MAX_PARTITIONS as usize];
        if !block.is_filtered() {
            for record in block.records().flatten() {
                last.get_mut(record.partition.index()).into_iter().for_each(|last| *last = record.hlc);
            }
        }
        for run in block.runs() {
            let last = if block.is_filtered() { run.last } else { last[run.partition.index()] };
            self.put(run.partition, Range { first: run.first, end: run.end(), last });
        }
        self.last = self.last.max(block.last_hlc());
    }

    fn put(&mut self, partition: PartitionId, behind: Range) {
        let range = self.ranges.entry(partition).or_insert(behind);
        range.first = range.first.min(behind.first);
        if behind.end >= range.end {
            (range.end, range.last) = (behind.end, behind.last);
        }
        self.last = self.last.max(behind.last);
    }

    /// Adds what lies behind it.
    pub fn join(&mut self, other: &Self) {
        other.ranges.iter().for_each(|(partition, range)| self.put(*partition, *range));
        self.last = self.last.max(other.last);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// A block that covers it and holds nothing.
    ///
    /// # Panics
    /// When it is empty.
    pub fn cover(&self, origin: OriginTag, incarnation: Incarnation) -> Block {
        let (partition, range) = self.ranges.first_key_value().expect("there is something to cover");
        let mark = Mutation { kind: Kind::Mark, ..Mutation::set(Bytes::new(), Bytes::new()) };
        let mut record = Vec::new();
        view::encode(&mut record, &mark, *partition, self.last, false);
        let offset = Offset::new(range.end.get().saturating_sub(1));
        Parts { origin, last: self.last, records: vec![(*partition, offset, self.last, &record)], deps: &[] }
            .seal(&self.ranges, incarnation)
    }

    /// What an interest keeps of a block, which is some of it, behind what was left out before: a block that covers both.
    pub fn filter(&self, block: &Block, interest: &Interest, incarnation: Incarnation) -> Block {
        let mut all = self.clone();
        all.add(block);
        let mut next: BTreeMap<PartitionId, Offset> =
            block.runs().map(|run| (run.partition, run.first)).collect();
        let mut kept = Vec::new();
        let mut records = block.records();
        let whole = records.left();
        loop {
            let from = whole - records.left() + records.lead();
            let Some(Ok(record)) = records.next() else { break };
            let counted = next.entry(record.partition).or_default();
            let offset = record.offset.unwrap_or(*counted);
            *counted = offset.next();
            if interest.wants(&record) {
                let bytes = block.record_bytes(from..whole - records.left());
                kept.push((record.partition, offset, record.hlc, bytes));
            }
        }
        let last = kept.last().map_or(Hlc::ZERO, |(_, _, hlc, _)| *hlc);
        Parts { origin: block.origin(), last, records: kept, deps: block.deps_bytes() }
            .seal(&all.ranges, incarnation)
    }
}

/// What a filtered block is made of.
struct Parts<'a> {
    origin: OriginTag,
    last: Hlc,
    records: Vec<(PartitionId, Offset, Hlc, &'a [u8])>,
    /// As they are encoded; empty if there are none.
    deps: &'a [u8],
}

impl Parts<'_> {
    fn seal(self, ranges: &BTreeMap<PartitionId, Range>, incarnation: Incarnation) -> Block {
        let first = self.records.first().map_or(Hlc::ZERO, |(_, _, hlc, _)| *hlc);
        let bytes: usize = self.records.iter().map(|(_, _, _, bytes)| bytes.len() + 8).sum();
        let mut block =
            Vec::with_capacity(64 + ranges.len() * FILTERED_RUN_BYTES + self.deps.len() + DEP_BYTES + bytes);
        let flags = FLAG_FILTERED | if self.deps.is_empty() { 0 } else { FLAG_DEPS };
        let count =
            |number: usize| u32::try_from(number).expect("a part of a block has fewer records than it");
        block.extend_from_slice(&MAGIC.to_le_bytes());
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&flags.to_le_bytes());
        block.extend_from_slice(&self.origin.get().to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&count(self.records.len()).to_le_bytes());
        block.extend_from_slice(&first.get().to_le_bytes());
        block.extend_from_slice(&self.last.get().to_le_bytes());
        let partitions = u16::try_from(ranges.len()).expect("partitions are counted in 16 bits");
        block.extend_from_slice(&partitions.to_le_bytes());
        for (partition, range) in ranges {
            let of_it = self.records.iter().filter(|(of, ..)| of == partition).count();
            block.extend_from_slice(&partition.get().to_le_bytes());
            block.extend_from_slice(&count(of_it).to_le_bytes());
            for number in [range.first.get(), range.end.get(), range.last.get()] {
                block.extend_from_slice(&number.to_le_bytes());
            }
        }
        block.extend_from_slice(self.deps);
        for (_, offset, _, bytes) in &self.records {
            block.extend_from_slice(&offset.get().to_le_bytes());
            block.extend_from_slice(bytes);
        }
        let length = u32::try_from(block.len() + 4).expect("a block's length fits 32 bits");
        block[16..20].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(incarnation.get(), &[&block]);
        block.extend_from_slice(&crc.to_le_bytes());
        Block::parse(Bytes::from(block)).expect("a block that was just sealed parses")
    }
}
