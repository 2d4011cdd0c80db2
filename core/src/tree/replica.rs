//! The tree as the far end of replication: [`ApplyTarget`] and [`LogView`].

use std::time::Duration;

use async_trait::async_trait;

use super::core::Tree;
use super::identity::TreeIdentity;
use super::log_view::{Located, LogView};
use super::state::State;
use super::target::{Applied, ApplyTarget, Progress};
use crate::causal::{OriginMarks, Watermark};
use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, OriginTag};
use crate::record::ReadyGroup;
use crate::wal::WalStorage;

#[async_trait]
impl ApplyTarget for Tree {
    fn identity(&self) -> TreeIdentity {
        self.0.identity.clone()
    }

    fn progress(&self) -> Progress {
        self.0.applied.state.read().progress.clone()
    }

    fn excess_skew(&self, remote: Hlc) -> Option<Duration> {
        self.0.clock.excess_skew(remote)
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), Error> {
        let manifest = self.0.storage.manifest();
        match manifest.origins.get(&origin.tag()) {
            Some((name, known)) if name == origin && *known == incarnation => Ok(()),
            Some((name, _)) if name != origin => Err(Error::new(
                ErrorKind::Conflict,
                format!("clusters {name} and {origin} have the same 64-bit tag; rename one of them"),
            )),
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "the log of {origin} was created anew; positions of its old log do not count in the new one"
                ),
            )),
            None if origin.tag() == self.0.identity.origin() => Err(Error::new(
                ErrorKind::Conflict,
                format!("{origin} has this cluster's own tag; rename one of them"),
            )),
            None => Ok(self.0.storage.enroll(origin, incarnation).await?),
        }
    }

    async fn apply(&self, groups: Vec<ReadyGroup>) -> Result<Applied, Error> {
        let own = self.0.identity.origin();
        if groups.iter().any(|group| group.origin == own) {
            return Err(Error::new(ErrorKind::Refused, "a write came back to its origin"));
        }
        let blocks = groups.iter().flat_map(|group| &group.blocks);
        let records = blocks.map(|(block, skip)| u64::from(block.count()) - u64::from(*skip)).sum();
        self.0.writer.append_foreign(groups).await?;
        Ok(Applied { records })
    }

    fn advance(&self, origin: OriginTag, closed: Hlc) {
        let moved = self.0.applied.state.write().progress.frontier.raise(origin, closed);
        if moved {
            self.0.applied.moved.modify(|(_, count)| *count += 1);
        }
    }
}

#[async_trait]
impl LogView for Tree {
    fn identity(&self) -> TreeIdentity {
        self.0.identity.clone()
    }

    fn tails(&self) -> OriginMarks {
        self.own_marks()
    }

    fn end(&self) -> Cursor {
        self.cursor_at(self.0.applied.state.read().next_lsn)
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.0.storage.bytes_after(lsn)
    }

    async fn locate(&self, held: Option<&OriginMarks>) -> Result<Located, Error> {
        let own = self.0.identity.origin();
        if let Some(gone_back) = self.compare_marks(held).await? {
            return Ok(gone_back);
        }
        let end = self.0.applied.state.read().next_lsn;
        let mut at = self.0.storage.first_uncovered(own, held).min(end);
        while at < end {
            let mut groups = self.0.applied.log.read(at, self.0.limits.read_bytes).await?;
            // The log may be durable beyond what is applied.
            groups.truncate(groups.partition_point(|group| group.next_lsn() <= end));
            for group in &groups {
                let new = group.blocks().iter().filter(|framed| framed.block.origin() == own).any(|framed| {
                    framed.block.runs().iter().any(|run| {
                        run.end()
                            > held.map_or(crate::id::Offset::ZERO, |marks| marks.get(run.partition).next)
                    })
                });
                if new {
                    return Ok(Located::At(self.cursor_at(group.first_lsn())));
                }
            }
            at = groups.last().map(|last| last.next_lsn()).ok_or_else(|| {
                let said = format!("the log ends at {at}, and {end} is applied");
                Error::new(ErrorKind::Corrupt, said)
            })?;
        }
        Ok(Located::At(self.cursor_at(end)))
    }
}

impl Tree {
    pub(super) fn own_marks(&self) -> OriginMarks {
        self.own_marks_of(&self.0.applied.state.read())
    }

    pub(super) fn own_marks_of(&self, state: &State) -> OriginMarks {
        let own = state.progress.watermarks.origin(self.0.identity.origin());
        own.cloned()
            .unwrap_or_else(|| OriginMarks::new(self.0.identity.incarnation, self.0.identity.partitions))
    }

    pub(super) fn cursor_at(&self, lsn: Lsn) -> Cursor {
        Cursor { incarnation: self.0.identity.incarnation, lsn }
    }

    /// The name of an origin, or its tag if it is not known.
    pub fn origin_name(&self, origin: OriginTag) -> String {
        if origin == self.0.identity.origin() {
            return self.0.identity.cluster.to_string();
        }
        let manifest = self.0.storage.manifest();
        manifest
            .origins
            .get(&origin)
            .map_or_else(|| format!("origin {:016x}", origin.get()), |(name, _)| name.to_string())
    }

    /// Looks whether what a receiver holds can come from this log as it is.
    async fn compare_marks(&self, held: Option<&OriginMarks>) -> Result<Option<Located>, Error> {
        let here = self.own_marks();
        let Some(held) = held else { return Ok(None) };
        for (partition, theirs) in held.iter() {
            let ours = here.get(partition);
            if theirs.next > ours.next {
                return Ok(Some(Located::WentBack { partition, held: theirs, here: ours }));
            }
            if theirs.hlc == Hlc::ZERO {
                continue;
            }
            let found = if theirs.next == ours.next {
                Some(ours.hlc)
            } else {
                self.last_hlc_below(partition, theirs).await?
            };
            if found.is_some_and(|hlc| hlc != theirs.hlc) {
                let here = Watermark { next: theirs.next, hlc: found.unwrap_or_default() };
                return Ok(Some(Located::WentBack { partition, held: theirs, here }));
            }
        }
        Ok(None)
    }

    /// The HLC of the last own record of a partition below a position, if the log still holds it.
    async fn last_hlc_below(
        &self,
        partition: crate::id::PartitionId,
        mark: Watermark,
    ) -> Result<Option<Hlc>, Error> {
        let own = self.0.identity.origin();
        // Everything below the record wanted counts as covered: the index then leads to its segment.
        let mut below = OriginMarks::new(self.0.identity.incarnation, self.0.identity.partitions);
        for (other, tail) in self.own_marks().iter() {
            let last = crate::id::Offset::new(mark.next.get().saturating_sub(1));
            below.advance(other, if other == partition { last } else { tail.next }, Hlc::ZERO);
        }
        let mut at = self.0.storage.first_uncovered(own, Some(&below));
        let end = self.0.applied.state.read().next_lsn;
        let mut found = None;
        while at < end {
            let groups = self.0.applied.log.read(at, self.0.limits.read_bytes).await?;
            for framed in
                groups.iter().flat_map(|group| group.blocks()).filter(|framed| framed.block.origin() == own)
            {
                let Some(run) = framed.block.runs().iter().find(|run| run.partition == partition) else {
                    continue;
                };
                if run.first >= mark.next {
                    return Ok(found);
                }
                let wanted = mark.next.min(run.end()).since(run.first);
                let records = framed.block.records().flatten().filter(|record| record.partition == partition);
                let count = usize::try_from(wanted).unwrap_or(usize::MAX);
                found = records.take(count).last().map(|record| record.hlc).or(found);
                if run.end() >= mark.next {
                    return Ok(found);
                }
            }
            match groups.last() {
                Some(last) => at = last.next_lsn(),
                None => break,
            }
        }
        Ok(found)
    }
}
