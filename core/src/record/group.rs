//! [`Group`]: what one write and one sync made durable, all or nothing.

use super::block::Block;
use super::frame::Frame;
use crate::id::{GroupSequence, Lsn};

/// A block with its place in this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramedBlock {
    /// Where it lies.
    pub frame: Frame,
    /// What was committed.
    pub block: Block,
}

impl FramedBlock {
    /// How many records of the block count here.
    pub fn records(&self) -> u64 {
        u64::from(self.block.count()) - u64::from(self.frame.skip)
    }

    /// The LSN after the block's last record.
    pub fn next_lsn(&self) -> Lsn {
        self.frame.first_lsn.advanced(self.records())
    }
}

/// A whole group, as read from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    blocks: Vec<FramedBlock>,
    stored_bytes: u64,
}

impl Group {
    /// A group of its blocks, in order. There is at least one.
    pub fn new(blocks: Vec<FramedBlock>) -> Self {
        assert!(!blocks.is_empty(), "a group has at least one block");
        let stored_bytes =
            blocks.iter().map(|framed| (super::FRAME_BYTES + framed.block.bytes().len()) as u64).sum();
        Self { blocks, stored_bytes }
    }

    /// Its number.
    pub fn sequence(&self) -> GroupSequence {
        self.blocks[0].frame.sequence
    }

    /// The LSN of its first record.
    pub fn first_lsn(&self) -> Lsn {
        self.blocks[0].frame.first_lsn
    }

    /// The LSN after its last record.
    pub fn next_lsn(&self) -> Lsn {
        self.blocks[self.blocks.len() - 1].next_lsn()
    }

    /// Its blocks in order.
    pub fn blocks(&self) -> &[FramedBlock] {
        &self.blocks
    }

    /// Bytes it takes in the log, frames included.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// How many records it holds.
    pub fn records(&self) -> u64 {
        self.blocks.iter().map(FramedBlock::records).sum()
    }
}
