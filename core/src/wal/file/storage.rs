//! [`FileStorage`]: the log provider on files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use super::buffers::ReadBuffers;
use super::filling::Fill;
use super::manifest::Manifest;
use super::opening::Opening;
use super::recovery::Visitor;
use super::segments::Segments;
use super::writing::given_up;
use crate::causal::OriginMarks;
use crate::disk::Disk;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, GroupSequence, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::limits::Limits;
use crate::record::Group;
use crate::tasks::Tasks;
use crate::wal::{Bounds, Completion, Filter, Selection, WalStorage};

/// A filtered reading of so many bytes of the log is done in two halves at a time.
const HALVED_READ: usize = if cfg!(test) { 1_000 } else { 1024 * 1024 };
const GIVEN_UP: &str = "the read was given up";

/// What opening a log gives besides the log.
#[derive(Debug)]
pub struct OpenedLog {
    /// The provider.
    pub storage: Arc<FileStorage>,
    /// The position after the last record.
    pub next_lsn: Lsn,
    /// The number of the next group.
    pub next_group: GroupSequence,
}

/// A log in a directory of segment files.
pub struct FileStorage {
    pub(super) this: Weak<Self>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) limits: Limits,
    pub(super) tasks: Tasks,
    manifest: RwLock<Arc<Manifest>>,
    enrolling: Mutex<()>,
    pub(super) segments: RwLock<Segments>,
    /// One trim at a time.
    pub(super) trimming: Mutex<()>,
}

impl std::fmt::Debug for FileStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStorage").field("dir", &self.dir).finish_non_exhaustive()
    }
}

pub(super) fn failed(what: impl std::fmt::Display, error: io::Error) -> StorageError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { StorageErrorKind::Full } else { StorageErrorKind::Io };
    StorageError::new(kind, what.to_string()).with_source(error)
}

impl FileStorage {
    /// Opens the log of a directory, or creates it as `new` says, and shows every group that reaches beyond `from` to
    /// `visit`, in order: what lies below is known otherwise, from a snapshot. Blocks.
    ///
    /// # Errors
    /// `Corrupt` when something before the torn tail is damaged, `Unsupported` when the log belongs to somebody else.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        new: Manifest,
        limits: Limits,
        tasks: Tasks,
        from: Lsn,
        visit: Visitor<'_>,
    ) -> Result<OpenedLog, StorageError> {
        let found = Manifest::load(disk.as_ref(), dir)?;
        Opening { found, new, limits, from }.run(disk, dir, tasks, visit)
    }

    pub(super) fn assemble(
        (disk, dir): (Arc<dyn Disk>, &Path),
        manifest: Manifest,
        limits: Limits,
        tasks: Tasks,
        segments: Segments,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            disk,
            dir: dir.to_owned(),
            limits,
            tasks,
            manifest: RwLock::new(Arc::new(manifest)),
            enrolling: Mutex::new(()),
            segments: RwLock::new(segments),
            trimming: Mutex::new(()),
        })
    }

    /// Whether the segment that is being written was another one before.
    #[cfg(test)]
    pub(super) fn recycles(&self) -> bool {
        self.segments.read().list.last().is_some_and(|last| last.header.recycled)
    }

    /// Whether the next group goes into room that the file has already.
    #[cfg(test)]
    pub(super) fn has_room(&self) -> bool {
        self.segments.read().list.last().is_some_and(|last| last.file_bytes > last.end())
    }

    /// Whether a filler is at work.
    #[cfg(test)]
    pub(super) fn is_filling(&self) -> bool {
        self.segments.read().filling.is_running()
    }

    /// Where the last group ends in its file.
    #[cfg(test)]
    pub(super) fn active_end(&self) -> u64 {
        self.segments.read().list.last().map_or(0, |last| last.end())
    }

    /// What the log says about itself.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.manifest.read().clone()
    }

    /// Does what blocks where it may; `given_up` is what is said if it never ended.
    async fn beside<T: Send + 'static>(
        &self,
        given_up: &'static str,
        work: impl FnOnce(&Self) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let Some(this) = self.this.upgrade() else {
            return Err(StorageError::new(StorageErrorKind::Closed, "the log is closed"));
        };
        let done = self.tasks.blocking(move || work(&this)).await;
        done.map_err(|error| StorageError::new(StorageErrorKind::Closed, given_up).with_source(error))?
    }

    fn enroll_blocking(&self, origin: ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let guard = self.enrolling.lock();
        let mut manifest = self.manifest().as_ref().clone();
        match manifest.origins.insert(origin.tag(), (origin.clone(), incarnation)) {
            None => {
                manifest.store(self.disk.as_ref(), &self.dir)?;
                *self.manifest.write() = Arc::new(manifest);
            }
            Some(known) if known == (origin.clone(), incarnation) => {}
            // Two links may bring an origin at once, and only one of them says what is known from then on.
            Some((name, known)) => {
                let said = format!("{origin} with incarnation {incarnation} comes after {name} with {known}");
                return Err(StorageError::new(StorageErrorKind::Unsupported, said));
            }
        }
        drop(guard);
        Ok(())
    }
}

#[async_trait]
impl WalStorage for FileStorage {
    fn append(&self, group: Arc<Group>, done: Completion) {
        let written = self.write(&group, &done);
        let fill = matches!(written, Ok(Fill::Due));
        done.complete(written.map(|_| ()));
        if fill {
            self.fill_ahead();
        }
    }

    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        self.beside(GIVEN_UP, move |this| this.read_blocking(from, limit)).await
    }

    async fn read_filtered(
        &self,
        (from, until): (Lsn, Lsn),
        filter: &Filter,
        limit: usize,
    ) -> Result<Selection, StorageError> {
        let until = self.stride(from, limit).min(until);
        let middle = if limit < HALVED_READ { until } else { self.stride(from, limit / 2).min(until) };
        let read = |range| {
            let filter = filter.clone();
            move |this: &Self| this.select(range, &filter, &ReadBuffers::default())
        };
        if until <= middle {
            return self.beside(GIVEN_UP, read((from, until))).await;
        }
        // Two cores sum and parse what one would.
        let halves =
            (self.beside(GIVEN_UP, read((from, middle))), self.beside(GIVEN_UP, read((middle, until))));
        let (first, second) = futures::join!(halves.0, halves.1);
        // What can be read comes before the news of what cannot.
        first.map(|first| match second {
            Ok(second) => first.followed_by(second),
            Err(_) => first,
        })
    }

    fn bounds(&self) -> Bounds {
        self.segments.read().bounds()
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.segments.read().bytes_after(lsn)
    }

    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn {
        let segments = self.segments.read();
        let first = segments.list.iter().find(|segment| segment.may_hold_uncovered(origin, held));
        first.or(segments.list.last()).map_or(Lsn::ZERO, |segment| {
            if first.is_some() { segment.header.first_lsn } else { segment.next_lsn() }
        })
    }

    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset {
        self.segments.read().trimmed_end((origin, partition))
    }

    async fn trim(&self, before: Lsn) -> Result<(), StorageError> {
        self.beside("trimming was given up", move |this| this.trim_blocking(before)).await
    }

    fn reconcile(&self, done: Completion) {
        let cut = if done.fate().is_given_up() { Err(given_up()) } else { self.cut() };
        done.complete(cut);
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let origin = origin.clone();
        self.beside("enrolling was given up", move |this| this.enroll_blocking(origin, incarnation)).await
    }
}
