//! [`ApplyTarget`]: where an applier puts what is ready. A tree is one.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::identity::TreeIdentity;
use super::seed::{SeedWish, Staging};
use crate::causal::{VersionVector, Watermarks};
use crate::error::{Error, ErrorKind};
use crate::id::{ClusterId, Hlc, Incarnation, OriginTag};
use crate::letters::Letter;
use crate::record::{Interest, ReadyGroup};

/// What is applied, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Up to which HLC each origin is complete here, as it may be told to others.
    pub frontier: VersionVector,
    /// Which offsets of each origin are covered here.
    pub watermarks: Watermarks,
    /// Up to which HLC the dead are reaped here: what is older and comes now comes too late, because what it would have
    /// lost against may be gone.
    pub reaped: Hlc,
}

/// The dead letters of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parking {
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes there may be.
    pub most_bytes: u64,
    /// How many wait for somebody to decide, by origin.
    pub counts: BTreeMap<OriginTag, u64>,
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

    /// Which keys are held here: peers send no others.
    fn interest(&self) -> Interest {
        Interest::all()
    }

    /// Holds these keys from now on. Called between two calls of [`apply`](Self::apply), and while no seed is joined: what
    /// peers filtered for the keys that were held before is not applied any more after it. Nobody ships from here
    /// meanwhile, for what he told his peer is true no more.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be stored, `Conflict` while something would be lost by it: then nothing has changed.
    /// `Refused` by a target that always holds the same.
    async fn hold(&self, interest: Interest) -> Result<(), Error> {
        if interest == self.interest() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused, "which keys this target holds cannot be changed"))
    }

    /// What is applied now.
    fn progress(&self) -> Progress;

    /// How far each origin is applied for those who wait for it here: what is parked as a dead letter is passed over, so
    /// that one record that can never be applied does not stop all others.
    fn visible(&self) -> VersionVector {
        self.progress().frontier
    }

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

    /// Makes groups durable and visible, in order, but for the records that are parked. Dropping the future does not undo
    /// what was handed over.
    ///
    /// # Errors
    /// `Unavailable` when the log failed or is stopping: nothing of the call was applied, and it may be repeated. An error
    /// whose source is a [`RecordFault`](crate::letters::RecordFault) says that this record is at fault: nothing was applied
    /// either, and after some more attempts it is parked.
    async fn apply(&self, groups: Vec<ReadyGroup>) -> Result<Applied, Error>;

    /// Takes over that an origin is complete up to `closed`, all its records up to there being applied. Not durable by
    /// itself: after a restart the next heartbeat says it again.
    fn advance(&self, origin: OriginTag, closed: Hlc);

    /// Keeps what can never be applied, all or none; durable when it returns. From here on these records are left out of
    /// what is applied, and [`progress`](Self::progress) claims nothing at or above their HLC. Repeating it is harmless.
    ///
    /// # Errors
    /// `TooLarge` when there is no room until somebody makes some; `Refused` by a target that keeps none.
    async fn park(&self, letters: Vec<Letter>) -> Result<(), Error> {
        drop(letters);
        Err(Error::new(ErrorKind::Refused, "this target keeps no dead letters"))
    }

    /// Why these letters cannot be parked, if that is so: `Refused` by a target that keeps none, `TooLarge` when there is no
    /// room.
    fn cannot_park(&self, letters: &[Letter]) -> Option<Error> {
        (!letters.is_empty()).then(|| Error::new(ErrorKind::Refused, "this target keeps no dead letters"))
    }

    /// What is parked; None: it keeps no dead letters.
    fn parking(&self) -> Option<Parking> {
        None
    }

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
