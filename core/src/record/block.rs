//! [`Block`]: an immutable run of records of one origin, read in place.

use bytes::Bytes;

use super::checksum::checksum;
use super::error::FormatError;
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
pub(super) const FLAG_DEPS: u16 = 2;

/// The records of one partition in a block: dense offsets from `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionRun {
    /// The partition.
    pub partition: PartitionId,
    /// How many records of it the block holds.
    pub count: u32,
    /// The offset of the first of them.
    pub first: Offset,
}

impl PartitionRun {
    /// The offset after the last record.
    pub fn end(&self) -> Offset {
        self.first.advanced(u64::from(self.count))
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
        if flags & !FLAG_DEPS != 0 {
            return Err(FormatError::Field("a block has a flag that is not known here"));
        }
        if u32_at(&bytes, 16).ok_or(SHORT)? as usize != bytes.len() {
            return Err(FormatError::Field("a block's length is not that of its bytes"));
        }
        let count = u32_at(&bytes, 20).ok_or(SHORT)?;
        let deps_at = Self::check_runs(&bytes, count)?;
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
            bytes,
        })
    }

    /// Looks through the partition table; answers where it ends.
    fn check_runs(bytes: &[u8], count: u32) -> Result<usize, FormatError> {
        let present = u16_at(bytes, FIXED_BYTES).ok_or(SHORT)?;
        if present > MAX_PARTITIONS {
            return Err(FormatError::Field("a block has more partitions than can be"));
        }
        let end = RUNS_AT + usize::from(present) * RUN_BYTES;
        let mut last = None;
        let mut total = 0_u64;
        for run in (Runs { rest: bytes.get(RUNS_AT..end).ok_or(SHORT)? }) {
            let rises = last.is_none_or(|last| last < run.partition);
            let fits = run.first.get().checked_add(u64::from(run.count)).is_some();
            if !rises || !fits || run.count == 0 || run.partition.get() >= MAX_PARTITIONS {
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
        let mut last = self.first_hlc;
        let mut seen = 0_u32;
        for record in self.records() {
            let record = record?;
            record.check()?;
            if record.partition != PartitionId::of(record.key, partitions) {
                return Err(FormatError::Field("a record is not in the partition of its key"));
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
        Runs { rest: &self.bytes[RUNS_AT..RUNS_AT + present * RUN_BYTES] }
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

    /// Bytes of its records, counted from the first one.
    ///
    /// # Panics
    /// When there are no such bytes.
    pub fn record_bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[self.records_at..self.bytes.len() - 4][range]
    }

    /// The records in order. Ends after the first that cannot be read.
    pub fn records(&self) -> Records<'_> {
        Records { rest: &self.bytes[self.records_at..self.bytes.len() - 4] }
    }
}

/// Iterates over the partitions of a block, read in place.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    rest: &'a [u8],
}

impl Iterator for Runs<'_> {
    type Item = PartitionRun;

    #[inline]
    fn next(&mut self) -> Option<PartitionRun> {
        let (run, rest) = self.rest.split_first_chunk::<RUN_BYTES>()?;
        self.rest = rest;
        Some(PartitionRun {
            partition: PartitionId::new(u16_at(run, 0)?),
            count: u32_at(run, 2)?,
            first: Offset::new(u64_at(run, 6)?),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.rest.len() / RUN_BYTES;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Runs<'_> {}

/// Iterates over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl Records<'_> {
    /// Bytes of the records that are still to come.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match RecordView::parse(self.rest) {
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
