//! [`FileStorage`]: the log provider on files.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::append::write_group;
use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::recovery::{Recovery, Visitor};
use super::segment::{HEADER_BYTES, SegmentHeader, SegmentNumber};
use crate::causal::OriginMarks;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, GroupSequence, Incarnation, Lsn, OriginTag};
use crate::limits::Limits;
use crate::record::Group;
use crate::tasks::Tasks;
use crate::wal::storage::{Bounds, Completion, WalStorage};

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

/// Segments of a log, and who may add to them.
struct Segments {
    list: Vec<SegmentIndex>,
    next_group: GroupSequence,
    next_number: SegmentNumber,
    /// Raised by every repair: a write that began before one is not taken note of.
    epoch: u64,
}

/// A log in a directory of segment files.
pub struct FileStorage {
    this: Weak<Self>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limits: Limits,
    tasks: Tasks,
    manifest: RwLock<Arc<Manifest>>,
    enrolling: Mutex<()>,
    segments: RwLock<Segments>,
}

impl std::fmt::Debug for FileStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStorage").field("dir", &self.dir).finish_non_exhaustive()
    }
}

fn failed(what: impl std::fmt::Display, error: io::Error) -> StorageError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { StorageErrorKind::Full } else { StorageErrorKind::Io };
    StorageError::new(kind, what.to_string()).with_source(error)
}

fn given_up() -> StorageError {
    StorageError::new(StorageErrorKind::Deadline, "the write landed after it was given up on")
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
        disk.create_dir_all(dir).map_err(|error| failed(dir.display(), error))?;
        let fresh = new.clone();
        let manifest = match Manifest::load(disk.as_ref(), dir)? {
            Some(manifest) => {
                Self::check_pinned(&manifest, &new)?;
                manifest
            }
            None => {
                Self::refuse_segments_without_manifest(disk.as_ref(), dir)?;
                new.store(disk.as_ref(), dir)?;
                new
            }
        };
        let mut manifest = manifest;
        let found = Recovery { disk: disk.as_ref(), dir, manifest: &manifest, from }.run(visit)?;
        if found.segments.is_empty() && manifest.incarnation != fresh.incarnation {
            // Either its creation was cut short, or its segments are gone: it is another log from now on, and peers that
            // know the old one say so.
            tracing::warn!(dir = %dir.display(), "no segment of this log is there: it begins anew under another incarnation");
            fresh.store(disk.as_ref(), dir)?;
            manifest = fresh;
        }
        let next_lsn = found.segments.last().map_or(Lsn::ZERO, |last| last.next_lsn);
        let storage = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            disk,
            dir: dir.to_owned(),
            limits,
            tasks,
            manifest: RwLock::new(Arc::new(manifest)),
            enrolling: Mutex::new(()),
            segments: RwLock::new(Segments {
                next_number: found.highest.map_or(SegmentNumber(1), |number| SegmentNumber(number.0 + 1)),
                list: found.segments,
                next_group: found.next_group,
                epoch: 0,
            }),
        });
        if storage.segments.read().list.is_empty() {
            storage.add_segment()?;
        }
        Ok(OpenedLog { storage, next_lsn, next_group: found.next_group })
    }

    fn refuse_segments_without_manifest(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let names = disk.list(dir).map_err(|error| failed(dir.display(), error))?;
        if names.iter().any(|name| SegmentNumber::from_file_name(name).is_some()) {
            return Err(StorageError::new(
                StorageErrorKind::Corrupt,
                format!(
                    "{} holds segments but no MANIFEST; put the directory of this tree back from a copy",
                    dir.display()
                ),
            ));
        }
        Ok(())
    }

    fn check_pinned(found: &Manifest, wanted: &Manifest) -> Result<(), StorageError> {
        let refuse = |what: &str, pinned: &dyn std::fmt::Display, asked: &dyn std::fmt::Display| {
            Err(StorageError::new(
                StorageErrorKind::Unsupported,
                format!(
                    "tree {:?}: {what} is pinned at {pinned} since the tree was created, and the configuration says {asked}; set it back to {pinned}",
                    found.tree.as_str()
                ),
            ))
        };
        if found.cluster != wanted.cluster {
            return refuse("the cluster id", &found.cluster, &wanted.cluster);
        }
        if found.tree != wanted.tree {
            return refuse("the name", &found.tree, &wanted.tree);
        }
        if found.partitions != wanted.partitions {
            return refuse("partitions", &found.partitions, &wanted.partitions);
        }
        if found.merge != wanted.merge {
            return refuse("merge", &found.merge, &wanted.merge);
        }
        Ok(())
    }

    /// What the log says about itself.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.manifest.read().clone()
    }

    /// Starts a new segment behind the last one; durable when it returns.
    fn add_segment(&self) -> Result<(), StorageError> {
        let (header, epoch) = {
            let mut segments = self.segments.write();
            let number = segments.next_number;
            // A file that cannot be finished keeps its number; it holds no group, and recovery passes over it.
            segments.next_number = SegmentNumber(number.0 + 1);
            let last = segments.list.last();
            let header = SegmentHeader {
                incarnation: self.manifest.read().incarnation,
                number,
                first_lsn: last.map_or(Lsn::ZERO, |last| last.next_lsn),
                first_group: segments.next_group,
                before: last.map(|last| (last.header.number, last.end)),
            };
            (header, segments.epoch)
        };
        let path = self.dir.join(header.number.file_name());
        let file = self
            .create(&path, &header)
            .map_err(|error| failed(format!("{} cannot be created", path.display()), error))?;
        let mut segments = self.segments.write();
        if segments.epoch != epoch {
            // A repair has gone on without it; it names no place in the log that goes on.
            return Err(given_up());
        }
        segments.list.push(SegmentIndex::new(header, file));
        Ok(())
    }

    fn create(&self, path: &Path, header: &SegmentHeader) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, OpenMode::CreateNew)?;
        let made = file
            .write_all_at(&mut [IoSlice::new(&header.encode())], 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.disk.sync_dir(&self.dir));
        if made.is_err() && self.disk.remove(path).is_err() {
            tracing::warn!(path = %path.display(), "a segment that could not be finished is left behind");
        }
        made.map(|()| file)
    }

    /// How large the segment with a number grows before the next one is started.
    fn segment_bytes(&self, number: SegmentNumber) -> u64 {
        let doublings = u32::try_from(number.0.saturating_sub(1).min(32)).expect("at most 32");
        let grown =
            self.limits.segment_bytes_min.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        grown.min(self.limits.segment_bytes_max)
    }

    fn write(&self, group: &Group) -> Result<(), StorageError> {
        let (epoch, full) = {
            let segments = self.segments.read();
            if segments.next_group != group.sequence() {
                let said = format!("group {} came where {} belongs", group.sequence(), segments.next_group);
                return Err(StorageError::new(StorageErrorKind::Io, said));
            }
            let last = segments.list.last().expect("open made the first segment");
            let size = self.segment_bytes(last.header.number);
            (segments.epoch, last.bytes() > 0 && last.end + group.stored_bytes() > size)
        };
        if full {
            self.add_segment()?;
        }
        let (file, at, seed) = {
            let segments = self.segments.read();
            if segments.epoch != epoch {
                return Err(given_up());
            }
            let last = segments.list.last().expect("open made the first segment");
            (last.file.clone(), last.end, last.header.seed())
        };
        write_group(file.as_ref(), group, at, seed)
            .map_err(|error| failed(format!("log of {} cannot be written", self.dir.display()), error))?;
        let mut segments = self.segments.write();
        if segments.epoch != epoch {
            return Err(given_up());
        }
        segments.next_group = group.sequence().next();
        segments.list.last_mut().expect("open made the first segment").push(group);
        Ok(())
    }

    fn read_blocking(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        let (segment, manifest) = {
            let segments = self.segments.read();
            let at = segments.list.partition_point(|segment| segment.next_lsn <= from);
            match segments.list.get(at) {
                Some(segment) => (segment.clone(), self.manifest()),
                None => return Ok(Vec::new()),
            }
        };
        let mut at = segment.position_of(from);
        let mut wanted = limit.max(4 * 1024);
        loop {
            let bytes = self.read_bytes(&segment, at, wanted)?;
            let (groups, used, needed) = self.groups_in(&segment, &manifest, at, &bytes, from)?;
            if !groups.is_empty() {
                return Ok(groups);
            }
            if used == 0 && needed <= wanted {
                return Err(self.damaged_at(&segment, at, "a group is cut short"));
            }
            at += used as u64;
            wanted = wanted.max(needed);
            if at >= segment.end {
                return Ok(Vec::new());
            }
        }
    }

    fn read_bytes(&self, segment: &SegmentIndex, at: u64, wanted: usize) -> Result<Bytes, StorageError> {
        let left = usize::try_from(segment.end - at).unwrap_or(usize::MAX);
        let mut bytes = vec![0; wanted.min(left)];
        let read = segment
            .file
            .read_at(&mut bytes, at)
            .map_err(|error| failed(format!("log of {} cannot be read", self.dir.display()), error))?;
        if read < bytes.len() {
            return Err(self.damaged_at(segment, at + read as u64, "the file has become shorter"));
        }
        Ok(Bytes::from(bytes))
    }

    /// The whole groups in `bytes` that reach beyond `from`; how many bytes were used; how many the next group needs.
    fn groups_in(
        &self,
        segment: &SegmentIndex,
        manifest: &Manifest,
        base: u64,
        bytes: &Bytes,
        from: Lsn,
    ) -> Result<(Vec<Arc<Group>>, usize, usize), StorageError> {
        let mut groups = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match parse_group(&bytes.slice(at..), segment.header.seed(), manifest) {
                Parsed::Group(group, length) => {
                    at += length;
                    if group.next_lsn() > from {
                        groups.push(Arc::new(group));
                    }
                }
                Parsed::Short(needed) => return Ok((groups, at, needed)),
                Parsed::Damaged(error) => {
                    return Err(self.damaged_at(segment, base + at as u64, &error.to_string()));
                }
            }
        }
        Ok((groups, at, 0))
    }

    fn damaged_at(&self, segment: &SegmentIndex, at: u64, what: &str) -> StorageError {
        let path = self.dir.join(segment.header.number.file_name());
        StorageError::new(
            StorageErrorKind::Corrupt,
            format!(
                "{} is damaged at byte {at}: {what}; put the tree's directory back from a copy",
                path.display()
            ),
        )
    }

    fn enroll_blocking(&self, origin: ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let guard = self.enrolling.lock();
        let mut manifest = self.manifest().as_ref().clone();
        if manifest.origins.insert(origin.tag(), (origin.clone(), incarnation)) != Some((origin, incarnation))
        {
            manifest.store(self.disk.as_ref(), &self.dir)?;
            *self.manifest.write() = Arc::new(manifest);
        }
        drop(guard);
        Ok(())
    }

    fn cut(&self) -> Result<(), StorageError> {
        self.segments.write().epoch += 1;
        self.add_segment()
    }
}

#[async_trait]
impl WalStorage for FileStorage {
    fn append(&self, group: Arc<Group>, done: Completion) {
        done.complete(self.write(&group));
    }

    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        let Some(this) = self.this.upgrade() else {
            return Err(StorageError::new(StorageErrorKind::Closed, "the log is closed"));
        };
        let read = self.tasks.blocking(move || this.read_blocking(from, limit)).await;
        read.map_err(|error| {
            StorageError::new(StorageErrorKind::Closed, "the read was given up").with_source(error)
        })?
    }

    fn bounds(&self) -> Bounds {
        let segments = self.segments.read();
        let bytes: u64 = segments.list.iter().map(SegmentIndex::bytes).sum();
        Bounds {
            first: segments.list.first().map_or(Lsn::ZERO, |first| first.header.first_lsn),
            next: segments.list.last().map_or(Lsn::ZERO, |last| last.next_lsn),
            retained_bytes: bytes,
            physical_bytes: bytes + (segments.list.len() * HEADER_BYTES) as u64,
        }
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        let segments = self.segments.read();
        let after = segments.list.iter().rev().take_while(|segment| segment.next_lsn > lsn);
        after
            .map(|segment| {
                if segment.header.first_lsn >= lsn {
                    segment.bytes()
                } else {
                    segment.end - segment.position_of(lsn)
                }
            })
            .sum()
    }

    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn {
        let segments = self.segments.read();
        let first = segments.list.iter().find(|segment| segment.may_hold_uncovered(origin, held));
        first.or(segments.list.last()).map_or(Lsn::ZERO, |segment| {
            if first.is_some() { segment.header.first_lsn } else { segment.next_lsn }
        })
    }

    fn give_up(&self, sequence: GroupSequence) -> bool {
        let mut segments = self.segments.write();
        if segments.next_group > sequence {
            return false;
        }
        segments.epoch += 1;
        true
    }

    fn reconcile(&self, done: Completion) {
        done.complete(self.cut());
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        let Some(this) = self.this.upgrade() else {
            return Err(StorageError::new(StorageErrorKind::Closed, "the log is closed"));
        };
        let origin = origin.clone();
        let stored = self.tasks.blocking(move || this.enroll_blocking(origin, incarnation)).await;
        stored.map_err(|error| {
            StorageError::new(StorageErrorKind::Closed, "enrolling was given up").with_source(error)
        })?
    }
}
