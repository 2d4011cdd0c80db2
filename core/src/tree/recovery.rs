//! [`Recovery`]: from what is on the disk to a state: the newest snapshot that is intact, then the log above it.
//!
//! Nothing is taken over in silence. A damaged snapshot is logged, and the one before it is tried; one of another log
//! is logged and ignored. But a tree is never opened with less than it held: neither when the log begins above what
//! the snapshot covers, nor when it ends below what the snapshot holds, nor without a log where there are snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use super::replay::{Replay, Replayed};
use super::seed::{SeedBook, SeedRecord};
use super::snapshot::{SnapshotFile, Snapshots, load};
use super::state::State;
use crate::causal::VersionVector;
use crate::clock::HybridClock;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::{Incarnation, Lsn};
use crate::letters::TreeLetters;
use crate::limits::Limits;
use crate::record::Interest;
use crate::tasks::Tasks;
use crate::wal::file::{FileStorage, Manifest, OpenedLog, Opening};
use crate::wal::{WalStorage, WriterStart};

/// What a tree continues with.
pub(super) struct Recovered {
    pub(super) storage: Arc<FileStorage>,
    pub(super) state: State,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) seeds: Arc<SeedBook>,
    pub(super) start: WriterStart,
}

/// What recovery needs.
pub(super) struct Recovery {
    pub(super) disk: Arc<dyn Disk>,
    /// The tree's own directory.
    pub(super) dir: PathBuf,
    /// What a new log would say about itself.
    pub(super) new: Manifest,
    pub(super) limits: Limits,
    pub(super) tasks: Tasks,
    pub(super) clock: Arc<HybridClock>,
    pub(super) letters: Option<Arc<TreeLetters>>,
    /// Which keys are to be held.
    pub(super) interest: Interest,
}

/// Where a replay begins.
struct Begin {
    state: State,
    observed: VersionVector,
    /// Which snapshot it begins with.
    number: Option<u64>,
    /// What the log must still have: from here, and up to there.
    from: Lsn,
    end: Lsn,
}

impl Recovery {
    /// Reads everything.
    ///
    /// # Errors
    /// `Corrupt` for damage and loss, with the way out; `Refused` when something that is pinned has changed.
    pub(super) async fn run(self) -> Result<Recovered, Error> {
        let (disk, wal, new) = (self.disk.clone(), self.dir.join("wal"), self.new.clone());
        let dir = self.dir.join("snapshots");
        let tree_dir = self.dir.clone();
        let (found, known, snapshots, files, seeds) = self
            .tasks
            .blocking(move || {
                let found = Manifest::load(disk.as_ref(), &wal)?;
                let known = found.clone().unwrap_or(new);
                let (snapshots, files) = Snapshots::find(disk.clone(), dir, known.incarnation)?;
                refuse_snapshots_without_log(disk.as_ref(), &wal, &snapshots)?;
                // What a crash left of a tree whose log was never made belongs to nothing.
                let seeds = match &found {
                    Some(found) => SeedRecord::load(disk.as_ref(), &tree_dir, found.incarnation)?,
                    None => SeedRecord::default(),
                };
                Ok::<_, StorageError>((found, known, Arc::new(snapshots), files, seeds))
            })
            .await??;
        let begin = self.begin(&snapshots, files, &known).await?;
        let seeds = self.settle_seeds(seeds, &snapshots, begin.number, known.incarnation).await?;
        let seeds = self.settle_interest(seeds, found.is_none(), known.incarnation).await?;
        let (from, end) = (begin.from, begin.end);
        let disk_of_seeds = self.disk.clone();
        let this = self;
        let (tasks, dir) = (this.tasks.clone(), this.dir.clone());
        let (opened, mut state, observed) =
            tasks.blocking(move || this.replay(begin, found, known)).await??;
        check_that_nothing_is_lost(&dir, &opened, &snapshots, from, end)?;
        state.next_lsn = opened.next_lsn;
        let marks = state.progress.watermarks.origin(opened.storage.manifest().cluster.tag());
        let start = WriterStart {
            lsn: opened.next_lsn,
            sequence: opened.next_group,
            offsets: marks.map(|marks| marks.iter().map(|(_, mark)| mark.next).collect()).unwrap_or_default(),
            observed,
        };
        let (pruned, first, base) = (snapshots.clone(), opened.storage.bounds().first, seeds.base);
        let prune = move || {
            pruned.drop_below(base.unwrap_or_default());
            pruned.drop_before(first);
            pruned.prune();
        };
        tasks.blocking(prune).await?;
        let incarnation = opened.storage.manifest().incarnation;
        let seeds =
            Arc::new(SeedBook::new(disk_of_seeds, dir, incarnation, seeds).owing(&state.progress.watermarks));
        Ok(Recovered { storage: opened.storage, state, snapshots, seeds, start })
    }

    /// The state of the newest snapshot that can be used, or an empty one.
    async fn begin(
        &self,
        snapshots: &Snapshots,
        files: Vec<SnapshotFile>,
        known: &Manifest,
    ) -> Result<Begin, Error> {
        let own = self.new.cluster.tag();
        for file in files.into_iter().map(Arc::new) {
            match load(&file, own, known.partitions, &self.interest, &self.tasks).await? {
                Ok(state) => {
                    let header = &file.header;
                    self.clock.observe(header.clock);
                    tracing::info!(
                        path = %snapshots.path(header.number).display(),
                        covered = %header.covered,
                        entries = file.footer.entries,
                        "snapshot loaded"
                    );
                    return Ok(Begin {
                        state,
                        observed: header.observed.clone(),
                        number: Some(header.number),
                        from: header.covered,
                        end: file.footer.end,
                    });
                }
                Err(fault) => snapshots.pass_over(&file, &fault),
            }
        }
        let mut state = State::new(own, self.new.partitions);
        state.interest = self.interest.clone();
        Ok(Begin { state, observed: VersionVector::default(), number: None, from: Lsn::ZERO, end: Lsn::ZERO })
    }

    /// Completes a seed whose snapshot is what the tree begins with, and gives up one that is not. What lies before the
    /// last seed is no beginning: the log does not lead from there to here.
    async fn settle_seeds(
        &self,
        mut record: SeedRecord,
        snapshots: &Arc<Snapshots>,
        number: Option<u64>,
        incarnation: Incarnation,
    ) -> Result<SeedRecord, Error> {
        let pending = record.pending.as_ref().map(|(pending, _)| *pending);
        if pending.is_some() && pending == number {
            record.settle();
        }
        let given_up = record.pending.take().map(|(pending, _)| pending);
        if given_up.is_some_and(|number| snapshots.unread() == Some(number)) {
            refuse_without_what_could_not_be_read(snapshots)?;
        }
        if let Some(base) = record.base.filter(|base| number.is_none_or(|number| number < *base)) {
            refuse_without_what_could_not_be_read(snapshots)?;
            let said = format!(
                "{}: snapshot {base} holds what this tree was seeded with, and neither it nor a later one can be used (the log lines above name those that were tried): put the directory of this tree back from a copy, or remove it whole and let the peers seed it",
                snapshots.dir().display()
            );
            return Err(Error::new(ErrorKind::Corrupt, said));
        }
        if pending.is_none() {
            return Ok(record);
        }
        let (snapshots, disk, dir) = (snapshots.clone(), self.disk.clone(), self.dir.clone());
        let stored = self.tasks.blocking(move || {
            if let Some(number) = given_up {
                snapshots.take_back(number).map_err(|error| {
                    let said = format!("{}: snapshot {number} cannot be removed", snapshots.dir().display());
                    StorageError::new(StorageErrorKind::Io, said).with_source(error)
                })?;
            }
            record.store(disk.as_ref(), &dir, incarnation)?;
            snapshots.drop_below(record.base.unwrap_or_default());
            Ok::<_, StorageError>(record)
        });
        Ok(stored.await??)
    }

    /// Takes over which keys are held from now on; durable before anything follows from it.
    async fn settle_interest(
        &self,
        mut record: SeedRecord,
        new: bool,
        incarnation: Incarnation,
    ) -> Result<SeedRecord, Error> {
        let before = record.held.clone();
        if !record.hold(&self.interest, new) {
            return Ok(record);
        }
        let (disk, dir, tree) = (self.disk.clone(), self.dir.clone(), self.new.tree.clone());
        let stored = self.tasks.blocking(move || {
            disk.create_dir_all(&dir).map_err(|error| {
                let said = format!("{} cannot be made", dir.display());
                StorageError::new(StorageErrorKind::Io, said).with_source(error)
            })?;
            record.store(disk.as_ref(), &dir, incarnation)?;
            Ok::<_, StorageError>(record)
        });
        let record = stored.await??;
        if !new {
            let seeded = record.widening.is_some();
            tracing::warn!(%tree, %before, now = %record.held, seeded, "other keys are held than before");
        }
        Ok(record)
    }

    fn replay(
        self,
        begin: Begin,
        found: Option<Manifest>,
        known: Manifest,
    ) -> Result<(OpenedLog, State, VersionVector), Error> {
        let dir = self.dir.join("wal");
        // What was left out when it came is left out again.
        let mut state = begin.state;
        state.parked = self.letters.as_ref().map(|letters| letters.parked()).unwrap_or_default();
        let replayed = Replayed {
            state,
            observed: begin.observed,
            own: self.new.cluster.tag(),
            known,
            clock: self.clock,
            dir: dir.clone(),
            from: begin.from,
            told: Instant::now(),
        };
        let mut replay = Replay::new(replayed, self.tasks.clone());
        let opening = Opening { found, new: self.new, limits: self.limits, from: begin.from };
        let opened = opening.run(self.disk, &dir, self.tasks, &mut |group| replay.push(group))?;
        let mut replayed = replay.finish().ok_or_else(|| {
            let said =
                format!("{}: applying the log came to a stop; the log lines above say why", dir.display());
            Error::new(ErrorKind::Corrupt, said)
        })?;
        for letter in self.letters.iter().flat_map(|letters| letters.replayed()) {
            replayed.state.apply_letter(&letter);
        }
        Ok((opened, replayed.state, replayed.observed))
    }
}

fn refuse_snapshots_without_log(
    disk: &dyn Disk,
    wal: &Path,
    snapshots: &Snapshots,
) -> Result<(), StorageError> {
    if !snapshots.found_any() || Manifest::has_segments(disk, wal)? {
        return Ok(());
    }
    Err(StorageError::new(
        StorageErrorKind::Corrupt,
        format!(
            "{} has no segment, but {} has snapshots: the log of this tree is gone; put the directory of this tree back from a copy, or remove it whole and let the peers send their writes again",
            wal.display(),
            snapshots.dir().display()
        ),
    ))
}

/// What the system could not read may be whole: that is no loss yet, and nothing is to follow from it.
fn refuse_without_what_could_not_be_read(snapshots: &Snapshots) -> Result<(), Error> {
    let Some(number) = snapshots.unread() else { return Ok(()) };
    let said = format!(
        "{}: the system could not read it (the log lines above say why), and without it writes are missing: look after the disk, then start again; if it stays unreadable, put the directory of this tree back from a copy, or remove it whole and let the peers send their writes again",
        snapshots.path(number).display()
    );
    Err(Error::new(ErrorKind::Unavailable, said))
}

/// The log must reach from what the snapshot covers to what it holds, and further.
fn check_that_nothing_is_lost(
    dir: &Path,
    opened: &OpenedLog,
    snapshots: &Snapshots,
    from: Lsn,
    end: Lsn,
) -> Result<(), Error> {
    let (first, next) = (opened.storage.bounds().first, opened.next_lsn);
    let dir = dir.display();
    if first > from {
        refuse_without_what_could_not_be_read(snapshots)?;
        let said = format!(
            "{dir}: the log begins at {first}, and no snapshot that reaches up to there can be used (the log lines above name those that were tried): writes are lost here; put the directory of this tree back from a copy, or remove it and let the peers send their writes again"
        );
        return Err(Error::new(ErrorKind::Corrupt, said));
    }
    if next < end {
        let said = format!(
            "{dir}: the log ends at {next}, and the newest snapshot holds writes up to {end}: the log has lost its end, or was put back from an older copy than the snapshots; put back both from one copy, or move the newest file of snapshots/ away to go on with what the log holds: then those writes are lost here, and peers that have them will say that this cluster has gone back"
        );
        return Err(Error::new(ErrorKind::Corrupt, said));
    }
    Ok(())
}
