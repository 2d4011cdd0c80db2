//! [`Recovery`]: from what is on the disk to a state: the newest snapshot that is intact, then the log above it.
//!
//! Nothing is taken over in silence. A damaged snapshot is logged, and the one before it is tried; one of another log
//! is logged and ignored. But a tree is never opened with less than it held: neither when the log begins above what
//! the snapshot covers, nor when it ends below what the snapshot holds, nor without a log where there are snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use super::snapshot::{PROGRESS_EVERY, SnapshotFile, Snapshots, load};
use super::state::State;
use crate::causal::VersionVector;
use crate::clock::HybridClock;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::{Lsn, OriginTag};
use crate::limits::Limits;
use crate::record::Group;
use crate::tasks::Tasks;
use crate::wal::file::{FileStorage, Manifest, OpenedLog};
use crate::wal::{WalStorage, WriterStart};

/// What a tree continues with.
pub(super) struct Recovered {
    pub(super) storage: Arc<FileStorage>,
    pub(super) state: State,
    pub(super) snapshots: Arc<Snapshots>,
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
}

/// Where a replay begins.
struct Begin {
    state: State,
    observed: VersionVector,
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
        let (known, snapshots, files) = self
            .tasks
            .blocking(move || {
                let known = Manifest::load(disk.as_ref(), &wal)?.unwrap_or(new);
                let (snapshots, files) = Snapshots::find(disk.clone(), dir, known.incarnation)?;
                refuse_snapshots_without_log(disk.as_ref(), &wal, &snapshots)?;
                Ok::<_, StorageError>((known, Arc::new(snapshots), files))
            })
            .await??;
        let begin = self.begin(&snapshots, files, &known).await?;
        let (from, end) = (begin.from, begin.end);
        let this = self;
        let (tasks, dir) = (this.tasks.clone(), this.dir.clone());
        let (opened, mut state, observed) = tasks.blocking(move || this.replay(begin, &known)).await??;
        check_that_nothing_is_lost(&dir, &opened, from, end)?;
        state.next_lsn = opened.next_lsn;
        let marks = state.progress.watermarks.origin(opened.storage.manifest().cluster.tag());
        let start = WriterStart {
            lsn: opened.next_lsn,
            sequence: opened.next_group,
            offsets: marks.map(|marks| marks.iter().map(|(_, mark)| mark.next).collect()).unwrap_or_default(),
            observed,
        };
        let pruned = snapshots.clone();
        tasks.blocking(move || pruned.prune()).await?;
        Ok(Recovered { storage: opened.storage, state, snapshots, start })
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
            match load(&file, own, known.partitions, &self.tasks).await? {
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
                        from: header.covered,
                        end: file.footer.end,
                    });
                }
                Err(fault) => snapshots.pass_over(&file, &fault),
            }
        }
        let state = State::new(own, self.new.partitions);
        Ok(Begin { state, observed: VersionVector::default(), from: Lsn::ZERO, end: Lsn::ZERO })
    }

    fn replay(self, begin: Begin, known: &Manifest) -> Result<(OpenedLog, State, VersionVector), Error> {
        let own = self.new.cluster.tag();
        let Begin { mut state, mut observed, from, .. } = begin;
        let mut told = Instant::now();
        let dir = self.dir.join("wal");
        let opened = FileStorage::open(
            self.disk,
            &dir,
            self.new,
            self.limits,
            self.tasks,
            from,
            &mut |group| {
                state.apply(group, |origin| known.incarnation_of(origin).unwrap_or(known.incarnation));
                observe(group, own, &self.clock, &mut observed);
                if told.elapsed() >= PROGRESS_EVERY {
                    told = Instant::now();
                    tracing::info!(dir = %dir.display(), from = %from, at = %group.next_lsn(), "replaying a log");
                }
            },
        )?;
        Ok((opened, state, observed))
    }
}

/// The clock and the writer have seen what is replayed.
fn observe(group: &Group, own: OriginTag, clock: &HybridClock, observed: &mut VersionVector) {
    for framed in group.blocks() {
        clock.observe(framed.block.last_hlc());
        if framed.block.origin() == own {
            clock.observe(framed.frame.closed);
        } else {
            observed.raise(framed.block.origin(), framed.block.last_hlc());
        }
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

/// The log must reach from what the snapshot covers to what it holds, and further.
fn check_that_nothing_is_lost(dir: &Path, opened: &OpenedLog, from: Lsn, end: Lsn) -> Result<(), Error> {
    let (first, next) = (opened.storage.bounds().first, opened.next_lsn);
    let dir = dir.display();
    if first > from {
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
