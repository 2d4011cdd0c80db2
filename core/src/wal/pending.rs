//! [`Pending`]: the group that is being filled while another is on its way to the disk.

use std::sync::Arc;

use tokio::time::Instant;

use super::ticket::Ticket;
use crate::causal::VersionVector;
use crate::id::{GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::limits::BLOCK_BYTES;
use crate::record::{Block, BlockBuilder, FRAME_BYTES, Frame, FramedBlock, Group, Mutation};

/// A block of another origin, to be written as it is.
#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) block: Block,
    pub(super) closed: Hlc,
    pub(super) skip: u16,
}

/// What a group is made of before it is sealed.
#[derive(Debug)]
pub(super) struct Pending {
    origin: OriginTag,
    partitions: u16,
    builders: Vec<BlockBuilder>,
    foreign: Vec<Foreign>,
    bytes: usize,
    records: usize,
    writers: usize,
    /// Bytes that the last group had, to size the next buffer.
    hint: usize,
    opened: Option<Instant>,
    /// The last block takes no more records: the offsets that follow are not dense with its own.
    block_is_closed: bool,
    pub(super) ticket: Arc<Ticket>,
}

/// What sealing needs besides the records.
pub(super) struct Seal<'a> {
    pub(super) sequence: GroupSequence,
    pub(super) first_lsn: Lsn,
    pub(super) closed: Hlc,
    pub(super) deps: &'a VersionVector,
    pub(super) incarnation: Incarnation,
}

impl Pending {
    pub(super) fn new(origin: OriginTag, partitions: u16, hint: usize) -> Self {
        Self {
            origin,
            partitions,
            builders: Vec::new(),
            foreign: Vec::new(),
            bytes: 0,
            records: 0,
            writers: 0,
            hint: hint.clamp(512, BLOCK_BYTES),
            opened: None,
            block_is_closed: false,
            ticket: Arc::default(),
        }
    }

    /// An empty one to follow this one.
    pub(super) fn successor(&self) -> Self {
        let local: usize = self.builders.iter().map(BlockBuilder::bytes).sum();
        Self::new(self.origin, self.partitions, local.max(self.hint / 2))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// When its first record came.
    pub(super) fn opened(&self) -> Instant {
        self.opened.unwrap_or_else(Instant::now)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many wait for it.
    pub(super) fn writers(&self) -> usize {
        self.writers
    }

    /// Whoever added records last waits for it.
    pub(super) fn add_writer(&mut self) {
        self.writers += 1;
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }

    /// How many frames the group has so far.
    pub(super) fn frames(&self) -> usize {
        self.builders.len() + self.foreign.len()
    }

    /// Adds a local record; the block in the making is closed when it is full.
    pub(super) fn push(
        &mut self,
        mutation: &Mutation,
        at: (PartitionId, Offset),
        hlc: Hlc,
        deps: usize,
        in_batch: bool,
    ) {
        let bytes = mutation.record_bytes();
        let full =
            self.builders.last().is_none_or(|last| last.bytes() + bytes > BLOCK_BYTES && !last.is_empty());
        if std::mem::take(&mut self.block_is_closed) || full {
            let room = if self.builders.is_empty() { self.hint.max(bytes) } else { BLOCK_BYTES.max(bytes) };
            self.builders.push(BlockBuilder::new(self.origin, self.partitions, deps, room));
        }
        let builder = self.builders.last_mut().expect("one was just made if there was none");
        builder.push(mutation, at.0, at.1, hlc, in_batch);
        self.opened.get_or_insert_with(Instant::now);
        self.bytes += bytes;
        self.records += 1;
    }

    /// The next local record begins a block.
    pub(super) fn close_block(&mut self) {
        self.block_is_closed = true;
    }

    /// Adds a block of another origin.
    pub(super) fn push_foreign(&mut self, foreign: Foreign) {
        self.opened.get_or_insert_with(Instant::now);
        self.bytes += foreign.block.bytes().len() + FRAME_BYTES;
        self.records += foreign.block.count() as usize;
        self.foreign.push(foreign);
    }

    /// Whether a block of another origin is among them.
    pub(super) fn has_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Whether a local record is among them.
    pub(super) fn has_local(&self) -> bool {
        !self.builders.is_empty()
    }

    /// Turns it into a group: local blocks first, then the foreign ones in the order they came.
    pub(super) fn seal(self, seal: &Seal<'_>) -> Group {
        let frames = u16::try_from(self.frames()).expect("the bound on frames of a group fits 16 bits");
        let local = self.builders.into_iter().map(|builder| Foreign {
            block: builder.seal(seal.deps, seal.incarnation),
            closed: seal.closed,
            skip: 0,
        });
        let mut next = seal.first_lsn;
        let blocks = (0_u16..).zip(local.chain(self.foreign)).map(|(index, part)| {
            let frame = Frame {
                sequence: seal.sequence,
                index,
                frames,
                length: u32::try_from(part.block.bytes().len()).expect("a block's length fits 32 bits"),
                first_lsn: next,
                closed: part.closed,
                skip: part.skip,
            };
            let framed = FramedBlock { frame, block: part.block };
            next = framed.next_lsn();
            framed
        });
        Group::new(blocks.collect())
    }
}
