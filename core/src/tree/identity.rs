//! [`TreeIdentity`]: what two clusters must agree on before a tree is replicated between them.

use crate::id::{ClusterId, Incarnation, OriginTag, TreeName};
use crate::record::MergeMode;

/// Whether a write waits at a receiver for what its writer may have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// It waits.
    #[default]
    Causal,
    /// It does not; everything else holds.
    Eventual,
}

/// One cluster's copy of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The tree.
    pub tree: TreeName,
    /// The incarnation of this cluster's log of the tree.
    pub incarnation: Incarnation,
    /// Number of partitions, pinned at creation.
    pub partitions: u16,
    /// How concurrent writes are merged, pinned at creation.
    pub merge: MergeMode,
    /// Whether writes wait for their dependencies here.
    pub consistency: Consistency,
}

impl TreeIdentity {
    /// How this cluster appears in bytes.
    pub fn origin(&self) -> OriginTag {
        self.cluster.tag()
    }
}
