//! [`ApplyTarget`]: where an applier puts what is ready. A tree is one.

use std::time::Duration;

use async_trait::async_trait;

use super::identity::TreeIdentity;
use super::seed::{SeedWish, Staging};
use crate::causal::{VersionVector, Watermarks};
use crate::error::{Error, ErrorKind};
use crate::id::{ClusterId, Hlc, Incarnation, OriginTag};
use crate::record::ReadyGroup;

/// What is applied, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Up to which HLC each origin is complete here.
    pub frontier: VersionVector,
    /// Which offsets of each origin are covered here.
    pub watermarks: Watermarks,
    /// Up to which HLC the dead are reaped here: what is older and comes now comes too late, because what it would have
    /// lost against may be gone.
    pub reaped: Hlc,
}

/// What a call of [`ApplyTarget::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records that were new here.
    pub records: u64,
}

/// Where an applier puts what is ready.
///
/// An implementer keeps these duties: `apply` is all or nothing and in the order given; what it has answered for
/// survives a crash and is in [`Progress`]; progress never goes back; readers see a prefix of each origin's history.
/// One applier calls it for a tree, one call of `apply` at a time.
#[async_trait]
pub trait ApplyTarget: Send + Sync + 'static {
    /// Who this is. Never changes.
    fn identity(&self) -> TreeIdentity;

    /// What is applied now.
    fn progress(&self) -> Progress;

    /// How far a remote HLC is ahead of the wall clock here, if that is more than is accepted.
    fn excess_skew(&self, remote: Hlc) -> Option<Duration>;

    /// This cluster's wall clock in milliseconds, if it has one.
    fn wall_millis(&self) -> Option<u64> {
        None
    }

    /// Makes an origin known before its first group is applied; durable when it returns. Repeating it is harmless.
    ///
    /// # Errors
    /// `Conflict` when the origin is known with another incarnation, or another name has the same tag.
    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), Error>;

    /// Makes groups durable and visible, in order. Dropping the future does not undo what was handed over.
    ///
    /// # Errors
    /// `Unavailable` when the log failed or is stopping: nothing of the call was applied, and it may be repeated.
    async fn apply(&self, groups: Vec<ReadyGroup>) -> Result<Applied, Error>;

    /// Takes over that an origin is complete up to `closed`, all its records up to there being applied. Not durable by
    /// itself: after a restart the next heartbeat says it again.
    fn advance(&self, origin: OriginTag, closed: Hlc);

    /// Whether it can take seeds at all.
    fn takes_seeds(&self) -> bool {
        false
    }

    /// The seed that is wanted, whatever the logs of the peers hold.
    fn seed_wish(&self) -> Option<SeedWish> {
        None
    }

    /// Begins to take a seed. From here on it is wanted until one is finished, also after a crash.
    ///
    /// # Errors
    /// `Busy` while another one comes in; `Unavailable` when it cannot be kept; `Refused` by a target that takes none.
    async fn stage(&self) -> Result<Box<dyn Staging>, Error> {
        Err(Error::new(ErrorKind::Refused, "this target takes no seeds"))
    }
}
