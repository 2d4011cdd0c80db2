//! [`BlockBuilder`]: encodes records into one buffer, and puts the header in front of them when it is sealed.
//!
//! The buffer starts with room for the largest header that can come, so that sealing copies no record.

use bytes::Bytes;

use super::block::{Block, DEP_BYTES, FIXED_BYTES, FLAG_DEPS, MAGIC, RUN_BYTES, VERSION};
use super::checksum::checksum;
use super::mutation::Mutation;
use super::view;
use crate::causal::VersionVector;
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::limits::{MAX_KNOWN_CLUSTERS, MAX_PARTITIONS};

#[derive(Clone, Copy, Default)]
struct Run {
    count: u32,
    first: Offset,
}

/// A block in the making: of one origin, in HLC order.
pub struct BlockBuilder {
    origin: OriginTag,
    buffer: Vec<u8>,
    start: usize,
    count: u32,
    first_hlc: Hlc,
    last_hlc: Hlc,
    runs: Vec<Run>,
}

impl std::fmt::Debug for BlockBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockBuilder").field("count", &self.count).field("bytes", &self.bytes()).finish()
    }
}

impl BlockBuilder {
    /// An empty block of an origin, with room for about `bytes` of records and for `deps` dependencies.
    pub fn new(origin: OriginTag, partitions: u16, deps: usize, bytes: usize) -> Self {
        let runs = usize::from(partitions.min(MAX_PARTITIONS)) * RUN_BYTES;
        let start = FIXED_BYTES + 2 + runs + 2 + deps * DEP_BYTES;
        let mut buffer = Vec::with_capacity(start + bytes + 4);
        buffer.resize(start, 0);
        Self {
            origin,
            buffer,
            start,
            count: 0,
            first_hlc: Hlc::ZERO,
            last_hlc: Hlc::ZERO,
            runs: vec![Run::default(); usize::from(partitions)],
        }
    }

    /// Appends the record of a mutation. HLCs must not fall, and offsets of a partition must be dense.
    pub fn push(
        &mut self,
        mutation: &Mutation,
        partition: PartitionId,
        offset: Offset,
        hlc: Hlc,
        in_batch: bool,
    ) {
        assert!(hlc >= self.last_hlc, "within a block HLCs do not fall");
        let run = &mut self.runs[partition.index()];
        if run.count == 0 {
            run.first = offset;
        }
        assert_eq!(run.first.advanced(u64::from(run.count)), offset, "within a block offsets are dense");
        run.count += 1;
        if self.count == 0 {
            self.first_hlc = hlc;
        }
        self.count += 1;
        self.last_hlc = hlc;
        view::encode(&mut self.buffer, mutation, partition, hlc, in_batch);
    }

    /// Bytes of the records so far.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// How many records it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Finishes the block: what its writers may have seen, and the incarnation of this log as seed of the checksum.
    pub fn seal(self, deps: &VersionVector, incarnation: Incarnation) -> Block {
        assert!(deps.len() <= MAX_KNOWN_CLUSTERS, "peers over the limit are refused when they are added");
        let mut header = Vec::with_capacity(self.start + deps.len() * 16);
        let flags = if deps.is_empty() { 0 } else { FLAG_DEPS };
        header.extend_from_slice(&MAGIC.to_le_bytes());
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&flags.to_le_bytes());
        header.extend_from_slice(&self.origin.get().to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&self.count.to_le_bytes());
        header.extend_from_slice(&self.first_hlc.get().to_le_bytes());
        header.extend_from_slice(&self.last_hlc.get().to_le_bytes());
        let present = self.runs.iter().filter(|run| run.count > 0).count();
        header.extend_from_slice(
            &u16::try_from(present).expect("partitions are counted in 16 bits").to_le_bytes(),
        );
        for (partition, run) in (0_u16..).zip(&self.runs).filter(|(_, run)| run.count > 0) {
            header.extend_from_slice(&partition.to_le_bytes());
            header.extend_from_slice(&run.count.to_le_bytes());
            header.extend_from_slice(&run.first.get().to_le_bytes());
        }
        if !deps.is_empty() {
            header.extend_from_slice(&u16::try_from(deps.len()).expect("at most 256").to_le_bytes());
            for (origin, hlc) in deps.iter() {
                header.extend_from_slice(&origin.get().to_le_bytes());
                header.extend_from_slice(&hlc.get().to_le_bytes());
            }
        }
        let length = header.len() + self.bytes() + 4;
        let length = u32::try_from(length).expect("a block is bounded by max_record_bytes");
        header[16..20].copy_from_slice(&length.to_le_bytes());
        self.finish(&header, incarnation)
    }

    fn finish(mut self, header: &[u8], incarnation: Incarnation) -> Block {
        if header.len() > self.start {
            // Only a dependency vector outgrows the room; then the records move once.
            let missing = header.len() - self.start;
            self.buffer.splice(0..0, std::iter::repeat_n(0, missing));
            self.start = header.len();
        }
        let block_at = self.start - header.len();
        self.buffer[block_at..self.start].copy_from_slice(header);
        let crc = checksum(incarnation.get(), &[&self.buffer[block_at..]]);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        Block::parse(Bytes::from(self.buffer).slice(block_at..)).expect("a block that was just sealed parses")
    }
}
