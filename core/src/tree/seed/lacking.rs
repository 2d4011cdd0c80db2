//! What a giver of a seed for more keys has yet to get itself, and which origins it need not wait for any more.
//!
//! What was passed over here while fewer keys were held is covered here, so it comes with the seed or never. A giver that
//! lacks some of it is asked again; whom it is waited for is shown. An origin that was sealed out is not waited for: what the
//! giver has of it is all that there is. If such an origin is let return, another seed brings the rest.

use std::collections::BTreeSet;

use super::book::Owed;
use crate::causal::Watermarks;
use crate::error::{Error, ErrorKind};
use crate::id::{ClusterId, Incarnation, Offset, OriginTag, PartitionId};
use crate::tree::Tree;
use crate::tree::snapshot::SnapshotHeader;

/// Why a seed of a giver is not taken yet: writes that were passed over here, and that the giver does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{giver} has yet to get writes of {origin}, which were passed over here when fewer keys were held (in partition \
     {partition} it has {there}, and {owed} are covered here): it is asked again. If {origin} is gone for good, seal it out \
     here: tidewire peers seal {origin}"
)]
pub struct SeedLack {
    /// Whose seed it is.
    pub giver: String,
    /// Whose writes it lacks.
    pub origin: String,
    /// Where, or in one place of several.
    pub partition: PartitionId,
    /// How many offsets are covered here.
    pub owed: Offset,
    /// How many the giver covers.
    pub there: Offset,
    /// Since when that is known, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What a seed covers, without what it says of another log under this cluster's name.
pub(super) fn covered_by(header: &SnapshotHeader, own: OriginTag, incarnation: Incarnation) -> Watermarks {
    let mut watermarks = Watermarks::default();
    for (origin, marks) in header.progress.watermarks.iter() {
        if origin != own || marks.incarnation() == incarnation {
            watermarks.insert(origin, marks.clone());
        }
    }
    watermarks
}

impl Tree {
    /// Whether the giver of a seed covers what it has to, by what the seed begins with.
    pub(super) fn check_served(&self, header: &SnapshotHeader) -> Result<(), Error> {
        let (own, known) = (self.0.identity.origin(), self.0.identity.incarnation);
        let sealed = self.sealed_origins();
        let mut owed = self.0.seeds.owes(&covered_by(header, own, known));
        owed.retain(|owed| !sealed.contains(&owed.origin));
        let giver = self.giver_of(header);
        let new = self.0.seeds.lacks(&giver, &owed, self.0.clock.wall_millis());
        let Some(first) = owed.first() else { return Ok(()) };
        let lack = self.lack(giver, first, self.0.clock.wall_millis());
        if new {
            tracing::warn!(tree = %self.0.identity.tree, giver = lack.giver, origin = lack.origin, partition = %lack.partition, owed = %lack.owed, there = %lack.there, "the giver of a snapshot for more keys has yet to get writes; it is asked again");
        }
        Err(Error::new(ErrorKind::Unavailable, lack.to_string()))
    }

    /// What the givers that were asked for a seed have yet to get, as far as it is still waited for.
    pub fn seed_lacks(&self) -> Vec<SeedLack> {
        let sealed = self.sealed_origins();
        let lacks = self.0.seeds.lacking().into_iter().filter(|(_, owed, _)| !sealed.contains(&owed.origin));
        lacks.map(|(giver, owed, since_ms)| self.lack(giver, &owed, since_ms)).collect()
    }

    /// Asks for another seed if this cluster, which was sealed out, wrote what no seed has brought since more keys are held.
    /// Durable when it returns; to be called before anything of that cluster is taken again. Says whether that is so.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn let_return(&self, cluster: &ClusterId) -> Result<bool, Error> {
        let (seeds, origin) = (self.0.seeds.clone(), cluster.tag());
        let covered = self.0.applied.state.read().progress.watermarks.clone();
        let wanted = self.0.tasks.blocking(move || seeds.let_return(origin, &covered)).await??;
        if wanted {
            tracing::warn!(tree = %self.0.identity.tree, %cluster, "a snapshot is asked for: what this cluster wrote before it was sealed out may be lacking here");
        }
        Ok(wanted)
    }

    fn lack(&self, giver: String, owed: &Owed, since_ms: u64) -> SeedLack {
        let origin = self.origin_name(owed.origin);
        SeedLack { giver, origin, partition: owed.partition, owed: owed.owed, there: owed.there, since_ms }
    }

    fn sealed_origins(&self) -> BTreeSet<OriginTag> {
        let members = self.0.members.lock();
        members.iter().flat_map(|members| &members.sealed).map(ClusterId::tag).collect()
    }

    /// Who gives a seed, by the incarnation of its log.
    fn giver_of(&self, header: &SnapshotHeader) -> String {
        let manifest = self.0.storage.manifest();
        let found = manifest.origins.values().find(|(_, incarnation)| *incarnation == header.incarnation);
        found.map_or_else(|| "the giver of a snapshot".to_owned(), |(name, _)| name.to_string())
    }
}
