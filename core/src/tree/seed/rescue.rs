//! What was written on an older copy of a log, under numbers that the peers know as other writes: it is written anew
//! before a seed brings those others.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;

use super::join::{Join, Pair};
use super::rules::Rules;
use crate::causal::Watermark;
use crate::error::Error;
use crate::id::{Hlc, PartitionId};
use crate::record::Mutation;
use crate::tree::Tree;
use crate::tree::ranges::RangeTombstones;
use crate::tree::snapshot::SnapshotFile;

/// Writes that are made anew at once.
const AT_ONCE: usize = 32;

impl Tree {
    /// Writes anew what the giver does not have of the writes of this cluster up to `line`, in the partitions that went
    /// back. What was deleted there is not among it: a tombstone is had too.
    pub(super) async fn rescue(
        &self,
        file: &Arc<SnapshotFile>,
        rules: &Rules,
        theirs: &RangeTombstones,
        line: Hlc,
    ) -> Result<u64, Error> {
        let mut join = Join::new(file, &self.interest());
        let mut rewritten = 0;
        let mut mutations = self.lost_ranges(rules, theirs, line);
        loop {
            let mut last = false;
            while mutations.len() < AT_ONCE && !last {
                match join.next(&self.0.applied).map_err(|fault| self.unusable(&fault))? {
                    Some(pair) => mutations.extend(lost(&pair, rules, theirs, line)),
                    None => last = true,
                }
            }
            rewritten += mutations.len() as u64;
            let written = mutations.iter().map(|mutation| {
                let one = std::slice::from_ref(mutation);
                self.0.writer.append(one)
            });
            try_join_all(written).await?;
            mutations.clear();
            if last {
                return Ok(rewritten);
            }
        }
    }

    /// Deleted ranges, as far as they are newer than everything that the giver has of this cluster.
    fn lost_ranges(&self, rules: &Rules, theirs: &RangeTombstones, line: Hlc) -> Vec<Mutation> {
        let known = rules.theirs.watermarks.origin(rules.own);
        let newest = known.and_then(|marks| marks.iter().map(|(_, mark): (_, Watermark)| mark.hlc).max());
        let newest = newest.unwrap_or_default();
        let had: BTreeSet<_> = theirs.iter().map(|(_, _, cut)| cut.version).collect();
        let ranges = self.0.applied.state.read().ranges();
        let lost = ranges.into_iter().filter(|range| {
            let version = range.version;
            version.origin == rules.own
                && version.hlc > newest
                && version.hlc <= line
                && !had.contains(&version)
        });
        lost.map(|range| Mutation::delete_range(range.from, range.to)).collect()
    }
}

fn lost(pair: &Pair, rules: &Rules, theirs: &RangeTombstones, line: Hlc) -> Option<Mutation> {
    let here = pair.here.as_ref()?;
    let partition = PartitionId::of(&pair.key, rules.partitions);
    let version = here.version;
    // What is reaped there was had, and is dead.
    let had = version.hlc <= rules.own_covered(&rules.theirs, partition)
        || pair.row.as_ref().is_some_and(|row| row.version >= version)
        || theirs.covering(&pair.key).is_some_and(|cut| cut.version >= version);
    if version.origin != rules.own || version.hlc > line || had || !rules.gone_back.contains(&partition) {
        return None;
    }
    let key = pair.key.clone();
    let mutation = match &here.value {
        Some(value) => Mutation { deadline_ms: here.deadline_ms, ..Mutation::set(key, value.clone()) },
        None => Mutation::delete(key),
    };
    Some(mutation)
}
