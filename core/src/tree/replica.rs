//! The tree as the far end of replication: [`ApplyTarget`] and [`LogView`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::core::Tree;
use super::identity::TreeIdentity;
use super::log_view::{Located, LogView, Standing};
use super::seed::{SeedReader, SeedWish, Staging};
use super::state::State;
use super::target::{Applied, ApplyTarget, Parking, Progress};
use crate::causal::{OriginMarks, VersionVector, Watermark};
use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::letters::Letter;
use crate::limits::MAX_KNOWN_CLUSTERS;
use crate::record::{Block, Group, Interest, Kind, PartitionRun, ReadyGroup, RecordView};
use crate::wal::WalStorage;

#[async_trait]
impl ApplyTarget for Tree {
    fn identity(&self) -> TreeIdentity {
        self.0.identity.clone()
    }

    fn interest(&self) -> Interest {
        Self::interest(self)
    }

    async fn hold(&self, interest: Interest) -> Result<(), Error> {
        Self::hold(self, interest).await
    }

    fn progress(&self) -> Progress {
        self.0.applied.state.read().claimed()
    }

    fn visible(&self) -> VersionVector {
        self.0.applied.state.read().progress.frontier.clone()
    }

    async fn park(&self, letters: Vec<Letter>) -> Result<(), Error> {
        self.park_letters(letters).await
    }

    fn cannot_park(&self, letters: &[Letter]) -> Option<Error> {
        Self::cannot_park(self, letters)
    }

    fn parking(&self) -> Option<Parking> {
        Self::parking(self)
    }

    fn excess_skew(&self, remote: Hlc) -> Option<Duration> {
        self.0.clock.excess_skew(remote)
    }

    fn wall_millis(&self) -> Option<u64> {
        Some(self.0.clock.wall_millis())
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
            None if manifest.origins.len() + 1 >= MAX_KNOWN_CLUSTERS => {
                let said = format!(
                    "{origin} would be more than the {MAX_KNOWN_CLUSTERS} clusters that can be known"
                );
                Err(Error::new(ErrorKind::Conflict, said))
            }
            None => Ok(self.0.storage.enroll(origin, incarnation).await?),
        }
    }

    async fn apply(&self, groups: Vec<ReadyGroup>) -> Result<Applied, Error> {
        let own = self.0.identity.origin();
        if groups.iter().any(|group| group.origin == own) {
            return Err(Error::new(ErrorKind::Refused, "a write came back to its origin"));
        }
        let records =
            blocks_of(&groups).map(|(block, skip)| u64::from(block.count()) - u64::from(*skip)).sum();
        if self.0.applied.state.read().is_unsettled() && blocks_of(&groups).any(deletes_a_range) {
            self.0.applied.settle();
        }
        self.0.writer.append_foreign(groups).await?;
        Ok(Applied { records })
    }

    fn advance(&self, origin: OriginTag, closed: Hlc) {
        let moved = self.0.applied.state.write().progress.frontier.raise(origin, closed);
        if moved {
            self.0.applied.moved.modify(|(_, count)| *count += 1);
        }
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn seed_wish(&self) -> Option<SeedWish> {
        Self::seed_wish(self)
    }

    async fn stage(&self) -> Result<Box<dyn Staging>, Error> {
        self.stage_seed().await
    }
}

#[async_trait]
impl LogView for Tree {
    fn identity(&self) -> TreeIdentity {
        self.0.identity.clone()
    }

    fn interest(&self) -> Interest {
        Self::interest(self)
    }

    fn tails(&self) -> OriginMarks {
        self.own_marks()
    }

    fn first(&self) -> Cursor {
        self.cursor_at(self.0.storage.bounds().first)
    }

    fn end(&self) -> Cursor {
        self.cursor_at(self.0.applied.state.read().next_lsn)
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.0.storage.bytes_after(lsn)
    }

    fn standing(&self) -> Standing {
        // One look: a promise that is newer than the marks beside it would claim what is not handed out yet.
        let state = self.0.applied.state.read();
        Standing { end: self.cursor_at(state.next_lsn), progress: state.claimed() }
    }

    async fn outlook(&self) -> Standing {
        // Before the look at the log: what is written after it has a higher HLC.
        let closed = self.0.writer.local_promise().await;
        let mut standing = self.standing();
        standing.progress.frontier.raise(self.0.identity.origin(), closed.unwrap_or(Hlc::ZERO));
        standing
    }

    fn origins(&self) -> Vec<(ClusterId, Incarnation)> {
        self.0.storage.manifest().origins.values().cloned().collect()
    }

    async fn locate(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Result<Located, Error> {
        if let Some(gone_back) = self.compare_marks(origin, held).await? {
            return Ok(gone_back);
        }
        if self.lacks_trimmed(origin, held) {
            return Ok(Located::FellOff { lowest: self.0.storage.bounds().first });
        }
        let end = self.0.applied.state.read().next_lsn;
        let mut at = self.0.storage.first_uncovered(origin, held).min(end);
        while at < end {
            let mut groups = self.0.applied.log.read(at, self.0.limits.read_bytes).await?;
            // The log may be durable beyond what is applied.
            groups.truncate(groups.partition_point(|group| group.next_lsn() <= end));
            let lacks = |run: PartitionRun| {
                run.end() > held.map_or(Offset::ZERO, |marks| marks.get(run.partition).next)
            };
            let new = |group: &&Arc<Group>| {
                let blocks = group.blocks().iter().map(|framed| &framed.block);
                blocks.filter(|block| block.origin() == origin).flat_map(Block::runs).any(lacks)
            };
            if let Some(group) = groups.iter().find(new) {
                return Ok(Located::At(self.cursor_at(group.first_lsn())));
            }
            at = groups.last().map(|last| last.next_lsn()).ok_or_else(|| {
                let said = format!("the log ends at {at}, and {end} is applied");
                Error::new(ErrorKind::Corrupt, said)
            })?;
        }
        Ok(Located::At(self.cursor_at(end)))
    }

    fn whole(&self) -> Option<Interest> {
        self.0.seeds.whole()
    }

    async fn seed(&self, interest: &Interest) -> Result<Box<dyn SeedReader>, Error> {
        Ok(Box::new(self.give_seed(interest)?))
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

    /// Whether a receiver lacks a record of an origin that this log has let go of, or never held because it came with a
    /// seed: it cannot be covered from here.
    fn lacks_trimmed(&self, origin: OriginTag, held: Option<&OriginMarks>) -> bool {
        (0..self.0.identity.partitions).map(PartitionId::new).any(|partition| {
            let next = held.map_or(Offset::ZERO, |marks| marks.get(partition).next);
            let gone = self.0.storage.trimmed_end(origin, partition);
            gone.max(self.0.seeds.floor(origin, partition).next) > next
        })
    }

    /// The marks of an origin, none if nothing of it is applied here.
    fn marks_of(&self, origin: OriginTag) -> Option<OriginMarks> {
        let state = self.0.applied.state.read();
        state.progress.watermarks.origin(origin).cloned()
    }

    async fn compare_marks(
        &self,
        origin: OriginTag,
        held: Option<&OriginMarks>,
    ) -> Result<Option<Located>, Error> {
        let first = self.differences(origin, held).await?.into_iter().next();
        Ok(first.map(|(partition, held, here)| Located::WentBack { partition, held, here }))
    }

    /// Looks whether what a receiver holds of an origin is what is known of it here; if not, in which partitions, what it
    /// holds there, and what is here. Of another origin than this cluster it may well hold more.
    pub(super) async fn differences(
        &self,
        origin: OriginTag,
        held: Option<&OriginMarks>,
    ) -> Result<Vec<(PartitionId, Watermark, Watermark)>, Error> {
        let own = origin == self.0.identity.origin();
        let here = if own { Some(self.own_marks()) } else { self.marks_of(origin) };
        let Some((held, here)) = held.zip(here) else { return Ok(Vec::new()) };
        let (mut differences, mut unsure) = (Vec::new(), Vec::new());
        for (partition, theirs) in held.iter() {
            let ours = here.get(partition);
            // What came with a seed does not lie in the log; there the mark itself is what can be compared.
            let floor = self.0.seeds.floor(origin, partition);
            // An HLC of zero is one that is not known: the record there was left out, or cannot be read.
            let same =
                |mark: Watermark| theirs.next == mark.next && theirs.hlc != mark.hlc && mark.hlc != Hlc::ZERO;
            let other = (same(ours) || same(floor)) && theirs.hlc != Hlc::ZERO;
            if own && theirs.next > ours.next || other {
                differences.push((partition, theirs, ours));
            } else if theirs.next < ours.next && theirs.next > floor.next && theirs.hlc != Hlc::ZERO {
                unsure.push((partition, theirs));
            }
        }
        for (partition, theirs, hlc) in self.last_hlcs_below(origin, &here, unsure).await? {
            if hlc != theirs.hlc {
                differences.push((partition, theirs, Watermark { next: theirs.next, hlc }));
            }
        }
        differences.sort_unstable_by_key(|(partition, ..)| *partition);
        Ok(differences)
    }

    /// The HLC of an origin's last record below each of some marks, as far as the log still holds it. One pass.
    async fn last_hlcs_below(
        &self,
        origin: OriginTag,
        here: &OriginMarks,
        mut wanted: Vec<(PartitionId, Watermark)>,
    ) -> Result<Vec<(PartitionId, Watermark, Hlc)>, Error> {
        // Everything below the records wanted counts as covered: the index then leads to their segment.
        let mut below = OriginMarks::new(here.incarnation(), self.0.identity.partitions);
        for (partition, tail) in here.iter() {
            let mark = wanted.iter().find(|(of, _)| *of == partition);
            let last = mark.map_or(tail.next, |(_, mark)| Offset::new(mark.next.get().saturating_sub(1)));
            below.advance(partition, last, Hlc::ZERO);
        }
        let mut at = self.0.storage.first_uncovered(origin, Some(&below));
        let end = self.0.applied.state.read().next_lsn;
        let mut found: BTreeMap<PartitionId, (Watermark, Hlc)> = BTreeMap::new();
        while at < end && !wanted.is_empty() {
            let groups = self.0.applied.log.read(at, self.0.limits.read_bytes).await?;
            let blocks = groups.iter().flat_map(|group| group.blocks()).map(|framed| &framed.block);
            for block in blocks.filter(|block| block.origin() == origin) {
                wanted.retain(|(partition, mark)| {
                    let Some(run) = block.run(*partition) else {
                        return true;
                    };
                    let seeded = run.end() <= self.0.seeds.floor(origin, *partition).next;
                    if let Some(hlc) = last_hlc_in(block, &run, mark.next).filter(|_| !seeded) {
                        found.insert(*partition, (*mark, hlc));
                    }
                    run.end() < mark.next
                });
            }
            match groups.last() {
                Some(last) => at = last.next_lsn(),
                None => break,
            }
        }
        Ok(found.into_iter().map(|(partition, (mark, hlc))| (partition, mark, hlc)).collect())
    }
}

/// The HLC of the last record of a run below a position; none if the run begins above it, or that record was left out.
fn last_hlc_in(block: &Block, run: &PartitionRun, below: Offset) -> Option<Hlc> {
    if block.is_filtered() {
        if below == run.end() && run.last != Hlc::ZERO {
            return Some(run.last);
        }
        let mut records = block.records().flatten();
        let at = |record: &RecordView<'_>| record.partition == run.partition && record.kind != Kind::Mark;
        let last = records.find(|record| at(record) && record.offset.is_some_and(|own| own.next() == below));
        return last.map(|record| record.hlc);
    }
    let count = usize::try_from(below.min(run.end()).since(run.first)).unwrap_or(usize::MAX);
    let records = block.records().flatten().filter(|record| record.partition == run.partition);
    records.take(count).last().map(|record| record.hlc)
}

fn blocks_of(groups: &[ReadyGroup]) -> impl Iterator<Item = &(Block, u16)> {
    groups.iter().flat_map(|group| &group.blocks)
}

fn deletes_a_range((block, _): &(Block, u16)) -> bool {
    block.records().flatten().any(|record| record.kind == Kind::DeleteRange)
}
