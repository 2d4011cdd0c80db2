//! [`LogView`]: what a shipper asks of the log besides its feed.

use async_trait::async_trait;

use super::identity::TreeIdentity;
use super::seed::SeedReader;
use super::target::Progress;
use crate::causal::{OriginMarks, Watermark};
use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{ClusterId, Incarnation, Lsn, OriginTag, PartitionId};
use crate::record::Interest;

/// Where a receiver stands in this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// Shipping goes on here: everything of the origin before it is covered by the receiver.
    At(Cursor),
    /// The receiver holds something else of the origin than this log, or, of the local origin, more: a log has gone back
    /// to an older copy.
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

/// How far a log is applied: its end, and what holds there, all of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The end of the applied log.
    pub end: Cursor,
    /// What is complete and covered of each origin with the log up to that end.
    pub progress: Progress,
}

/// What a shipper asks of a tree's log besides its feed.
#[async_trait]
pub trait LogView: Send + Sync + 'static {
    /// Who this is. Never changes.
    fn identity(&self) -> TreeIdentity;

    /// Which keys are held here. Whoever ships them on says so to his peer first, so he begins anew when it changes.
    fn interest(&self) -> Interest {
        Interest::all()
    }

    /// Where the local origin's applied records end, by partition.
    fn tails(&self) -> OriginMarks;

    /// The first position that the log retains.
    fn first(&self) -> Cursor;

    /// The end of the applied log.
    fn end(&self) -> Cursor;

    /// How many bytes of the log lie between a position and the end.
    fn bytes_after(&self, lsn: Lsn) -> u64;

    /// The end of the applied log with what holds there.
    fn standing(&self) -> Standing;

    /// The same, with the newest promise about the local origin that can be made now.
    async fn outlook(&self) -> Standing;

    /// The other origins whose records the log may hold, and the incarnations of their logs.
    fn origins(&self) -> Vec<(ClusterId, Incarnation)>;

    /// Finds where shipping of an origin goes on for a receiver that covers `held` of it (of the incarnation known here;
    /// None: nothing), and whether the receiver's marks can come from the history of the origin that is known here.
    ///
    /// # Errors
    /// When the log cannot be read.
    async fn locate(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Result<Located, Error>;

    /// The keys of which everything is here; None: there are none. Less than what is held while a seed is wanted for more
    /// keys than before.
    fn whole(&self) -> Option<Interest> {
        Some(self.interest())
    }

    /// Begins a seed for a receiver that the log cannot serve: all that is applied here of the keys that it holds, as of a
    /// position at or above the end of the log at the moment of the call. Whoever asks has what lies behind that end
    /// retained first.
    ///
    /// # Errors
    /// `Unavailable` while the tree takes over a seed itself; `Refused` by a log that gives none, or not of all these keys.
    async fn seed(&self, _interest: &Interest) -> Result<Box<dyn SeedReader>, Error> {
        Err(Error::new(ErrorKind::Refused, "this log gives no seeds"))
    }
}
