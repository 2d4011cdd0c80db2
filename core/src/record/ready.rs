//! [`ReadyGroup`]: a group of another origin on its way into this log.

use super::block::Block;
use crate::id::{Hlc, Incarnation, OriginTag};

/// A group of one origin whose turn has come: not covered here, no gap before it, its dependencies applied here or
/// earlier in the same call.
#[derive(Clone, Debug)]
pub struct ReadyGroup {
    /// Where it was committed.
    pub origin: OriginTag,
    /// The incarnation of that cluster's log.
    pub incarnation: Incarnation,
    /// The HLC up to which the origin is complete once the group is applied.
    pub closed: Hlc,
    /// Its blocks, checked, with how many leading records of each are covered already.
    pub blocks: Vec<(Block, u16)>,
}
