//! [`Theirs`]: what a staged seed says besides its rows, once every row of it has been checked.

use std::sync::Arc;

use super::lacking::covered_by;
use super::late::LateRows;
use super::rules::comes_too_late;
use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind};
use crate::id::{Hlc, Incarnation, Lsn, OriginTag, Version};
use crate::record::FormatError;
use crate::tree::Tree;
use crate::tree::image::RangeImage;
use crate::tree::ranges::RangeTombstones;
use crate::tree::snapshot::{EntryView, SnapshotFault, SnapshotFile, SnapshotHeader, SnapshotName};
use crate::tree::target::Progress;

/// What a seed holds besides its rows.
pub(super) struct Theirs {
    pub(super) progress: Progress,
    pub(super) observed: VersionVector,
    pub(super) ranges: Vec<RangeImage>,
    pub(super) cuts: RangeTombstones,
    /// The highest HLC of anything in it.
    pub(super) newest: Hlc,
    pub(super) rows: u64,
    /// The first row that comes too late, and how many do.
    late: Option<(Version, u64)>,
}

impl Tree {
    /// Reads the staged seed through: everything in it is checked before anything is taken over.
    pub(super) async fn survey(&self) -> Result<(Arc<SnapshotFile>, Theirs), Error> {
        let (disk, dir) = (self.0.seeds.disk.clone(), self.seed_dir());
        let (own, known) = (self.0.identity.origin(), self.0.identity.incarnation);
        let applied = self.0.applied.clone();
        let surveyed = self.0.tasks.blocking(move || {
            // Nothing is reaped while a seed is wanted, and no page is applied: it stays what it is.
            let mine = applied.state.read().progress.clone();
            let late = |row: &EntryView<'_>| {
                row.value.is_some()
                    && comes_too_late(&mine, own, row.version)
                    && applied.state.read().find(row.key).is_none()
            };
            let file = SnapshotFile::open(disk.as_ref(), &dir, SnapshotName::new(0))?;
            let mut theirs = Theirs::of(&file.header, own, known);
            theirs.read_through(&file, own, late)?;
            Ok::<_, SnapshotFault>((Arc::new(file), theirs))
        });
        let (file, theirs) = surveyed.await?.map_err(|fault| self.unusable(&fault))?;
        self.check(&file.header, &theirs)?;
        Ok((file, theirs))
    }

    /// What can be said of a seed by what it begins with.
    pub(super) fn check_header(&self, header: &SnapshotHeader) -> Result<(), Error> {
        if header.partitions != self.0.identity.partitions {
            let said = "a seed of a tree with another number of partitions";
            return Err(Error::new(ErrorKind::Corrupt, said));
        }
        let manifest = self.0.storage.manifest();
        let (own, incarnation) = (self.0.identity.origin(), self.0.identity.incarnation);
        for (origin, marks) in covered_by(header, own, incarnation).iter() {
            let known = manifest.incarnation_of(origin);
            if known.is_some_and(|known| known != marks.incarnation()) {
                let name = self.origin_name(origin);
                let said = format!(
                    "the giver of a seed knows another log of {name} than this cluster: it was created anew under the old name"
                );
                return Err(Error::new(ErrorKind::Conflict, said));
            }
        }
        self.check_served(header)?;
        self.check_clock(header.clock)
    }

    fn check(&self, header: &SnapshotHeader, theirs: &Theirs) -> Result<(), Error> {
        self.check_header(header)?;
        if let Some((first, rows)) = theirs.late {
            let reaped = self.0.applied.state.read().progress.reaped;
            let late = LateRows { origin: self.origin_name(first.origin), rows, reaped };
            let said = format!("a seed of {} is not taken", self.0.identity.tree);
            return Err(Error::new(ErrorKind::Conflict, said).with_source(late));
        }
        self.check_clock(theirs.newest)
    }

    fn check_clock(&self, newest: Hlc) -> Result<(), Error> {
        match self.0.clock.excess_skew(newest) {
            None => Ok(()),
            Some(ahead) => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "a seed is {} ms ahead of the clock of this cluster, more than is accepted: synchronise the clocks",
                    ahead.as_millis()
                ),
            )),
        }
    }
}

impl Theirs {
    /// What the header says, without what it says of another log under this cluster's name.
    fn of(header: &SnapshotHeader, own: OriginTag, incarnation: Incarnation) -> Self {
        let watermarks = covered_by(header, own, incarnation);
        let ranges: Vec<RangeImage> =
            header.ranges.iter().map(|range| RangeImage { lsn: Lsn::ZERO, ..range.clone() }).collect();
        let mut cuts = RangeTombstones::default();
        for range in &ranges {
            range.add_to(&mut cuts);
        }
        let mut observed = header.observed.clone();
        for (origin, marks) in header.progress.watermarks.iter() {
            // Of records, never of promises: whoever waits for it must be sure that it comes.
            let newest = marks.iter().map(|(_, mark)| mark.hlc).max().unwrap_or_default();
            observed.raise(origin, newest);
        }
        Self {
            progress: Progress { watermarks, ..header.progress.clone() },
            observed,
            ranges,
            cuts,
            newest: header.clock,
            rows: 0,
            late: None,
        }
    }

    /// Checks every row, and takes note of what they show of every origin, and which come too late.
    fn read_through(
        &mut self,
        file: &SnapshotFile,
        own: OriginTag,
        is_late: impl Fn(&EntryView<'_>) -> bool,
    ) -> Result<(), SnapshotFault> {
        let mut last: Option<Vec<u8>> = None;
        for index in 0..file.chunks() {
            file.read(index..index + 1, |chunk| {
                for entry in chunk.entries() {
                    let entry = entry?;
                    if last.as_deref().is_some_and(|last| last >= entry.key) {
                        return Err(FormatError::Field("the rows of a seed are not in key order").into());
                    }
                    last = Some(entry.key.to_vec());
                    self.observed.raise(entry.version.origin, entry.version.hlc);
                    self.newest = self.newest.max(entry.version.hlc);
                    self.rows += 1;
                    if is_late(&entry) {
                        self.late.get_or_insert((entry.version, 0)).1 += 1;
                    }
                }
                Ok(())
            })?;
        }
        for range in &self.ranges {
            self.observed.raise(range.version.origin, range.version.hlc);
            self.newest = self.newest.max(range.version.hlc);
        }
        self.observed = self.observed.iter().filter(|(origin, _)| *origin != own).collect();
        Ok(())
    }
}
