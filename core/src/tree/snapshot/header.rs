//! [`SnapshotHeader`]: what a snapshot says before its entries. Byte by byte: `docs/format.md`.

use bytes::Bytes;

use super::fields::Fields;
use crate::causal::{OriginMarks, VersionVector};
use crate::id::{Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FormatError, checksum};
use crate::tree::image::RangeImage;
use crate::tree::target::Progress;

const WHAT: &str = "the header of a snapshot";
const MAGIC: &[u8; 4] = b"TWP1";
const VERSION: u16 = 3;
/// Before anything was reaped.
const FIRST_VERSION: u16 = 1;
/// Magic, version, zero, length of the whole header: what is read first.
pub(super) const PREFIX_BYTES: usize = 12;

/// Everything of one moment, and then the ranges that were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tree) struct SnapshotHeader {
    /// The log that it belongs to.
    pub(in crate::tree) incarnation: Incarnation,
    /// Which snapshot of that log it is.
    pub(in crate::tree) number: u64,
    /// Every record below is in it.
    pub(in crate::tree) covered: Lsn,
    /// The wall clock when it was begun, in milliseconds since 1970.
    pub(in crate::tree) written_ms: u64,
    /// The clock of the cluster: nothing in the rows is later.
    pub(in crate::tree) clock: Hlc,
    /// Number of partitions.
    pub(in crate::tree) partitions: u16,
    /// What was applied.
    pub(in crate::tree) progress: Progress,
    /// What a local write may have seen.
    pub(in crate::tree) observed: VersionVector,
    /// The ranges that were deleted and still hide what arrives late.
    pub(in crate::tree) ranges: Vec<RangeImage>,
}

impl SnapshotHeader {
    pub(in crate::tree) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let words =
            [self.incarnation.get(), self.number, self.covered.get(), self.written_ms, self.clock.get()];
        put_words(&mut bytes, &words);
        bytes.extend_from_slice(&self.partitions.to_le_bytes());
        put_vector(&mut bytes, &self.progress.frontier);
        put_vector(&mut bytes, &self.observed);
        put_count(&mut bytes, self.progress.watermarks.iter().count());
        for (origin, marks) in self.progress.watermarks.iter() {
            put_words(&mut bytes, &[origin.get(), marks.incarnation().get()]);
            for partition in 0..self.partitions {
                let mark = marks.get(PartitionId::new(partition));
                put_words(&mut bytes, &[mark.next.get(), mark.hlc.get()]);
            }
        }
        put_count(&mut bytes, self.ranges.len());
        for range in &self.ranges {
            put_string(&mut bytes, &range.from);
            put_string(&mut bytes, &range.to);
            let Version { hlc, origin } = range.version;
            put_words(&mut bytes, &[hlc.get(), origin.get(), range.lsn.get()]);
        }
        put_words(&mut bytes, &[self.progress.reaped.get()]);
        let length = u32::try_from(bytes.len() + 4).expect("deleted ranges are bounded in number and length");
        bytes[8..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(self.incarnation.get(), &[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// How long the header is that begins so, its checksum included.
    pub(in crate::tree) fn length(prefix: &[u8]) -> Result<usize, FormatError> {
        let mut fields = Fields::new(WHAT, prefix);
        if fields.bytes(MAGIC.len())? != MAGIC {
            return Err(FormatError::Magic("snapshot"));
        }
        let found = fields.u16()?;
        if !(FIRST_VERSION..=VERSION).contains(&found) {
            return Err(FormatError::Version { what: "snapshot", found, known: VERSION });
        }
        if fields.u16()? != 0 {
            return Err(FormatError::Field("the header of a snapshot has a flag that is not known here"));
        }
        let length = fields.u32()? as usize;
        if length < PREFIX_BYTES + 8 { Err(FormatError::Short(WHAT)) } else { Ok(length) }
    }

    /// Reads the header that some bytes begin with, once all of it is there.
    pub(in crate::tree) fn front(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let Some(prefix) = bytes.get(..PREFIX_BYTES) else { return Ok(None) };
        bytes.get(..Self::length(prefix)?).map(Self::decode).transpose()
    }

    /// Reads a header back, checksum included.
    pub(in crate::tree) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if Self::length(bytes)? != bytes.len() {
            return Err(FormatError::Short(WHAT));
        }
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Short(WHAT))?;
        let mut fields = Fields::new(WHAT, &body[PREFIX_BYTES..]);
        let incarnation = Incarnation::new(fields.u64()?);
        if checksum(incarnation.get(), &[body]) != u32::from_le_bytes(*crc) {
            return Err(FormatError::Checksum(WHAT));
        }
        let number = fields.u64()?;
        let covered = Lsn::new(fields.u64()?);
        let written_ms = fields.u64()?;
        let clock = Hlc::new(fields.u64()?);
        let partitions = fields.u16()?;
        if partitions == 0 || partitions > MAX_PARTITIONS {
            return Err(FormatError::Field(
                "a snapshot of a tree with a number of partitions that cannot be",
            ));
        }
        let frontier = read_vector(&mut fields)?;
        let observed = read_vector(&mut fields)?;
        let mut progress = Progress { frontier, ..Progress::default() };
        for _ in 0..fields.count(16 * (usize::from(partitions) + 1))? {
            let (origin, marks) = read_marks(&mut fields, partitions)?;
            progress.watermarks.insert(origin, marks);
        }
        let count = fields.count(32)?;
        let ranges = (0..count).map(|_| read_range(&mut fields)).collect::<Result<_, _>>()?;
        if bytes[4..6] != FIRST_VERSION.to_le_bytes() {
            progress.reaped = Hlc::new(fields.u64()?);
        }
        fields.finish()?;
        Ok(Self { incarnation, number, covered, written_ms, clock, partitions, progress, observed, ranges })
    }
}

fn put_words(bytes: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("origins and deleted ranges are counted in 32 bits");
    bytes.extend_from_slice(&count.to_le_bytes());
}

fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    put_count(bytes, string.len());
    bytes.extend_from_slice(string);
}

fn put_vector(bytes: &mut Vec<u8>, vector: &VersionVector) {
    put_count(bytes, vector.len());
    for (origin, hlc) in vector.iter() {
        put_words(bytes, &[origin.get(), hlc.get()]);
    }
}

fn read_vector(fields: &mut Fields<'_>) -> Result<VersionVector, FormatError> {
    let count = fields.count(16)?;
    (0..count).map(|_| Ok((OriginTag::new(fields.u64()?), Hlc::new(fields.u64()?)))).collect()
}

fn read_marks(fields: &mut Fields<'_>, partitions: u16) -> Result<(OriginTag, OriginMarks), FormatError> {
    let origin = OriginTag::new(fields.u64()?);
    let mut marks = OriginMarks::new(Incarnation::new(fields.u64()?), partitions);
    for partition in 0..partitions {
        let (next, hlc) = (Offset::new(fields.u64()?), Hlc::new(fields.u64()?));
        marks.advance(PartitionId::new(partition), next, hlc);
    }
    Ok((origin, marks))
}

fn read_range(fields: &mut Fields<'_>) -> Result<RangeImage, FormatError> {
    let from = Bytes::copy_from_slice(fields.string()?);
    let to = Bytes::copy_from_slice(fields.string()?);
    let version = Version { hlc: Hlc::new(fields.u64()?), origin: OriginTag::new(fields.u64()?) };
    let lsn = Lsn::new(fields.u64()?);
    Ok(RangeImage { from, to, version, lsn })
}
