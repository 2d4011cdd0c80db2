//! [`Block`]: an immutable run of records of one origin, read in place.

use bytes::Bytes;

use super::checksum::checksum;
use super::error::FormatError;
use super::mutation::Kind;
use super::view::RecordView;
use crate::causal::VersionVector;
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::limits::{MAX_KNOWN_CLUSTERS, MAX_PARTITIONS};

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"TWB1");
pub(super) const VERSION: u16 = 1;
/// What every block begins with.
pub(crate) const FIXED_BYTES: usize = 40;
pub(super) const RUN_BYTES: usize = 14;
const RUNS_AT: usize = FIXED_BYTES + 2;
pub(super) const DEP_BYTES: usize = 16;
/// Bytes of a partition in the table of a filtered block: where its range ends, too, and when.
pub(super) const FILTERED_RUN_BYTES: usize = RUN_BYTES + 16;
pub(super) const FLAG_DEPS: u16 = 2;
pub(super) const FLAG_FILTERED: u16 = 4;
/// Bytes of the offset in front of each record of a filtered block.
pub const FILTERED_RECORD_BYTES: usize = 8;

/// The records of one partition in a block: dense offsets from `first`; of a filtered block some of a range, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionRun {
    /// The partition.
    pub partition: PartitionId,
    /// How many records of it the block holds.
    pub count: u32,
    /// The offset of the first of them; of a filtered block where its range begins.
    pub first: Offset,
    end: Offset,
    /// Of a filtered block the HLC of the last record that it covers of the partition, though it may not hold that one. Zero:
    /// not known, or the block is not filtered.
    pub last: Hlc,
}

impl PartitionRun {
    /// Where what the block covers of the partition ends: the offset after the last record.
    pub fn end(&self) -> Offset {
        self.end
    }
}

/// A block whose header has been read. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    bytes: Bytes,
    origin: OriginTag,
    count: u32,
    first_hlc: Hlc,
    last_hlc: Hlc,
    deps_at: usize,
    records_at: usize,
    filtered: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

const SHORT: FormatError = FormatError::Short("a block");

impl Block {
    /// Reads the header of exactly one block. Touches no record and no checksum.
    ///
    /// # Errors
    /// When the bytes are not one whole block of version 1.
    pub fn parse(bytes: Bytes) -> Result<Self, FormatError> {
        if u32_at(&bytes, 0).ok_or(SHORT)? != MAGIC {
            return Err(FormatError::Magic("block"));
        }
        let found = u16_at(&bytes, 4).ok_or(SHORT)?;
        if found != VERSION {
            return Err(FormatError::Version { what: "block", found, known: VERSION });
        }
        let flags = u16_at(&bytes, 6).ok_or(SHORT)?;
        if flags & !(FLAG_DEPS | FLAG_FILTERED) != 0 {
            return Err(FormatError::Field("a block has a flag that is not known here"));
        }
        if u32_at(&bytes, 16).ok_or(SHORT)? as usize != bytes.len() {
            return Err(FormatError::Field("a block's length is not that of its bytes"));
        }
        let count = u32_at(&bytes, 20).ok_or(SHORT)?;
        let filtered = flags & FLAG_FILTERED != 0;
        let deps_at = Self::check_runs(&bytes, count, filtered)?;
        let mut records_at = deps_at;
        if flags & FLAG_DEPS != 0 {
            let entries = usize::from(u16_at(&bytes, deps_at).ok_or(SHORT)?);
            if entries > MAX_KNOWN_CLUSTERS {
                return Err(FormatError::Field("a block depends on more clusters than can be known"));
            }
            records_at += 2 + entries * DEP_BYTES;
        }
        if records_at + 4 > bytes.len() {
            return Err(SHORT);
        }
        Ok(Self {
            origin: OriginTag::new(u64_at(&bytes, 8).ok_or(SHORT)?),
            count,
            first_hlc: Hlc::new(u64_at(&bytes, 24).ok_or(SHORT)?),
            last_hlc: Hlc::new(u64_at(&bytes, 32).ok_or(SHORT)?),
            deps_at,
            records_at,
            filtered,
            bytes,
        })
    }

    /// Looks through the partition table; answers where it ends.
    fn check_runs(bytes: &[u8], count: u32, filtered: bool) -> Result<usize, FormatError> {
        let present = u16_at(bytes, FIXED_BYTES).ok_or(SHORT)?;
        if present > MAX_PARTITIONS {
            return Err(FormatError::Field("a block has more partitions than can be"));
        }
        let end = RUNS_AT + usize::from(present) * run_bytes(filtered);
        let mut last = None;
        let mut total = 0_u64;
        for run in (Runs { rest: bytes.get(RUNS_AT..end).ok_or(SHORT)?, filtered }) {
            let rises = last.is_none_or(|last| last < run.partition);
            let counted = run.first.get().checked_add(u64::from(run.count));
            let fits = counted.is_some_and(|counted| counted <= run.end.get() && run.first < run.end);
            if !rises || !fits || run.partition.get() >= MAX_PARTITIONS {
                return Err(FormatError::Field("a block's partition table is out of order"));
            }
            total += u64::from(run.count);
            last = Some(run.partition);
        }
        if total != u64::from(count) || count == 0 {
            return Err(FormatError::Field("a block's partition table does not add up"));
        }
        Ok(end)
    }

    /// Compares the checksum, seeded with the incarnation of the origin's log.
    ///
    /// # Errors
    /// `Checksum` when it does not match.
    pub fn verify(&self, incarnation: Incarnation) -> Result<(), FormatError> {
        let end = self.bytes.len() - 4;
        if checksum(incarnation.get(), &[&self.bytes[..end]]) == self.stored_crc() {
            return Ok(());
        }
        Err(FormatError::Checksum("a block"))
    }

    /// Reads every record and compares it with its kind and with the header: keys and ranges, order of HLCs, counts of
    /// partitions, partitions of keys. For blocks that come from elsewhere.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self, partitions: u16) -> Result<(), FormatError> {
        let mut counts = [0_u32; MAX_PARTITIONS as usize];
        let mut reached = [Offset::ZERO; MAX_PARTITIONS as usize];
        let mut last = self.first_hlc;
        let mut seen = 0_u32;
        for record in self.records() {
            let record = record?;
            record.check_in(self, partitions)?;
            if let Some(offset) = record.offset {
                let covers = |run: PartitionRun| {
                    let in_time =
                        run.last == Hlc::ZERO || record.hlc <= run.last || record.kind == Kind::Mark;
                    (run.first..run.end).contains(&offset) && in_time
                };
                let reached = &mut reached[record.partition.index()];
                if offset < *reached || !self.run(record.partition).is_some_and(covers) {
                    return Err(FormatError::Field("a record lies outside of what its block covers"));
                }
                *reached = offset.next();
            }
            if record.hlc < last || (seen == 0 && record.hlc != self.first_hlc) {
                return Err(FormatError::Field("records are not in the order of their clock"));
            }
            last = record.hlc;
            seen += 1;
            counts[record.partition.index()] += 1;
        }
        let adds_up = self.runs().all(|run| counts[run.partition.index()] == run.count);
        if !adds_up || seen != self.count || last != self.last_hlc {
            return Err(FormatError::Field("a block's records do not fit its header"));
        }
        Ok(())
    }

    /// The checksum as it is stored.
    pub fn stored_crc(&self) -> u32 {
        u32_at(&self.bytes, self.bytes.len() - 4).expect("parse saw the end of the block")
    }

    /// The bytes, as they are on every disk and link.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Where its records were first committed.
    pub fn origin(&self) -> OriginTag {
        self.origin
    }

    /// How many records it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The HLC of the first record.
    pub fn first_hlc(&self) -> Hlc {
        self.first_hlc
    }

    /// The HLC of the last record.
    pub fn last_hlc(&self) -> Hlc {
        self.last_hlc
    }

    /// The partitions that occur, in order, with their offsets.
    pub fn runs(&self) -> Runs<'_> {
        let present = usize::from(u16_at(&self.bytes, FIXED_BYTES).expect("parse saw the partition table"));
        let end = RUNS_AT + present * run_bytes(self.filtered);
        Runs { rest: &self.bytes[RUNS_AT..end], filtered: self.filtered }
    }

    /// The records of one partition, if there are any.
    pub fn run(&self, partition: PartitionId) -> Option<PartitionRun> {
        self.runs().find(|run| run.partition == partition)
    }

    /// What its writers may have seen of other origins.
    pub fn deps(&self) -> VersionVector {
        let entries = &self.bytes[self.deps_at..self.records_at];
        let pairs = entries.get(2..).unwrap_or_default().chunks_exact(DEP_BYTES);
        pairs
            .map(|pair| {
                let word = |at| u64_at(pair, at).expect("chunks have the length of a pair");
                (OriginTag::new(word(0)), Hlc::new(word(8)))
            })
            .collect()
    }

    /// The same as it is encoded; empty if there is nothing.
    pub(super) fn deps_bytes(&self) -> &[u8] {
        &self.bytes[self.deps_at..self.records_at]
    }

    /// Whether records were left out of it: it covers ranges, and each record says its own offset.
    pub fn is_filtered(&self) -> bool {
        self.filtered
    }

    /// Whether it covers and holds nothing: a mark alone.
    pub fn is_cover(&self) -> bool {
        let mut records = self.records();
        self.filtered && records.all(|record| record.is_ok_and(|record| record.kind == Kind::Mark))
    }

    /// Bytes of its records, counted from the first one.
    ///
    /// # Panics
    /// When there are no such bytes.
    pub fn record_bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[self.records_at..self.bytes.len() - 4][range]
    }

    /// The records in order. Ends after the first that cannot be read.
    pub fn records(&self) -> Records<'_> {
        Records { rest: &self.bytes[self.records_at..self.bytes.len() - 4], filtered: self.filtered }
    }
}

/// Iterates over the partitions of a block, read in place.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    rest: &'a [u8],
    filtered: bool,
}

const fn run_bytes(filtered: bool) -> usize {
    if filtered { FILTERED_RUN_BYTES } else { RUN_BYTES }
}

impl Iterator for Runs<'_> {
    type Item = PartitionRun;

    #[inline]
    fn next(&mut self) -> Option<PartitionRun> {
        let (run, rest) = self.rest.split_first_chunk::<RUN_BYTES>()?;
        let (count, first) = (u32_at(run, 2)?, u64_at(run, 6)?);
        let counted = first.saturating_add(u64::from(count));
        let (end, last) = if self.filtered { (u64_at(rest, 0)?, u64_at(rest, 8)?) } else { (counted, 0) };
        self.rest = if self.filtered { &rest[FILTERED_RUN_BYTES - RUN_BYTES..] } else { rest };
        Some(PartitionRun {
            partition: PartitionId::new(u16_at(run, 0)?),
            count,
            first: Offset::new(first),
            end: Offset::new(end),
            last: Hlc::new(last),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.rest.len() / run_bytes(self.filtered);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Runs<'_> {}

/// Iterates over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    filtered: bool,
}

impl<'a> Records<'a> {
    /// Bytes of the records that are still to come.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Bytes in front of each record that are not part of it: its offset, in a filtered block.
    pub fn lead(&self) -> usize {
        if self.filtered { FILTERED_RECORD_BYTES } else { 0 }
    }

    fn read(&self) -> Result<(RecordView<'a>, usize), FormatError> {
        if !self.filtered {
            return RecordView::parse(self.rest);
        }
        let offset = u64_at(self.rest, 0).ok_or(FormatError::Short("a record"))?;
        let (record, length) = RecordView::parse(&self.rest[FILTERED_RECORD_BYTES..])?;
        Ok((RecordView { offset: Some(Offset::new(offset)), ..record }, FILTERED_RECORD_BYTES + length))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.read() {
            Ok((record, length)) => {
                self.rest = &self.rest[length..];
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}
