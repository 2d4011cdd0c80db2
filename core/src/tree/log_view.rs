//! [`LogView`]: what a shipper asks of the log besides its feed.

use async_trait::async_trait;

use super::identity::TreeIdentity;
use crate::causal::{OriginMarks, Watermark};
use crate::error::Error;
use crate::feed::Cursor;
use crate::id::{Lsn, PartitionId};

/// Where a receiver stands in this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// Shipping goes on here: everything of the local origin before it is covered by the receiver.
    At(Cursor),
    /// The receiver holds more than this log has, or something else: this log has gone back to an older copy.
    WentBack {
        /// In which partition that shows.
        partition: PartitionId,
        /// What the receiver holds there.
        held: Watermark,
        /// What this log has there.
        here: Watermark,
    },
    /// The log no longer holds what the receiver needs next.
    FellOff {
        /// The lowest position that is retained.
        lowest: Lsn,
    },
}

/// What a shipper asks of a tree's log besides its feed.
#[async_trait]
pub trait LogView: Send + Sync + 'static {
    /// Who this is. Never changes.
    fn identity(&self) -> TreeIdentity;

    /// Where the local origin's applied records end, by partition.
    fn tails(&self) -> OriginMarks;

    /// The end of the applied log.
    fn end(&self) -> Cursor;

    /// How many bytes of the log lie between a position and the end.
    fn bytes_after(&self, lsn: Lsn) -> u64;

    /// Finds where shipping of the local origin goes on for a receiver that covers `held` of it (of this incarnation;
    /// None: nothing), and whether the receiver's marks can come from this log at all.
    ///
    /// # Errors
    /// When the log cannot be read.
    async fn locate(&self, held: Option<&OriginMarks>) -> Result<Located, Error>;
}
