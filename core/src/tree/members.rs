//! [`Members`]: whose writes a tree may still get, so whose frontier counts before anything is reaped.
//!
//! The origins that the log has ever known are durable in its manifest. Who else is to write the tree, and who was
//! sealed out of it, the owner of the tree keeps and declares; before that nobody knows, and nothing may be reaped.

use std::collections::{BTreeMap, BTreeSet};

use super::core::Tree;
use crate::id::{ClusterId, OriginTag};

/// What the owner of a tree declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Clusters that take part, whether or not anything of them has come.
    pub joined: BTreeSet<ClusterId>,
    /// Clusters that count no more, though their writes are known. Nothing of them is taken.
    pub sealed: BTreeSet<ClusterId>,
}

impl Tree {
    /// Declares who takes part from now on. What is declared must be durable before, and durable that somebody was sealed
    /// before anything of theirs is given up.
    pub fn declare_members(&self, members: Members) {
        *self.0.members.lock() = Some(members);
    }

    /// The replication set: every cluster whose writes may still come, this one included, by tag. None while it has not
    /// been declared: then nobody knows what may still come.
    pub fn members(&self) -> Option<BTreeMap<OriginTag, ClusterId>> {
        let declared = self.0.members.lock().clone()?;
        let own = self.0.identity.cluster.clone();
        let known =
            self.0.storage.manifest().origins.values().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let others = known.into_iter().chain(declared.joined);
        let counted = others.filter(|name| !declared.sealed.contains(name));
        Some(counted.chain([own]).map(|name| (name.tag(), name)).collect())
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
