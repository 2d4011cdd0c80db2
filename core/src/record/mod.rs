//! What is committed, as bytes: mutations, records, blocks and frames.
//!
//! A block is immutable from its first write: the same bytes on every disk and every link. Its header, and the
//! header of each record, can be read without the values. A frame says where a block lies in one log and never
//! leaves that log. Byte by byte: `docs/format.md`.

mod block;
mod builder;
mod checksum;
mod coverage;
#[cfg(any(test, feature = "test-util"))]
mod decoders;
mod error;
mod frame;
mod group;
mod interest;
mod merge;
mod mutation;
mod ready;
mod view;

#[cfg(test)]
mod tests;

pub use block::FILTERED_RECORD_BYTES;
pub(crate) use block::FIXED_BYTES as BLOCK_HEADER_BYTES;
pub use block::{Block, PartitionRun, Records, Runs};
pub use builder::BlockBuilder;
pub use checksum::checksum;
pub use coverage::Coverage;
#[cfg(any(test, feature = "test-util"))]
pub use decoders::DECODERS;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use decoders::sample_blocks;
pub use error::FormatError;
pub use frame::{FRAME_BYTES, Frame};
pub use group::{FramedBlock, Group};
pub use interest::{Interest, InterestError, Kept};
pub use merge::MergeMode;
pub use mutation::{Kind, Mutation};
pub use ready::ReadyGroup;
pub use view::{RECORD_HEADER_BYTES, RecordView};
