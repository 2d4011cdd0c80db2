//! [`Snapshots`]: the snapshots of a tree on its disk, which of them are kept, and what the log may forget for them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::file::{SnapshotFault, SnapshotFile};
use super::footer::SnapshotFooter;
use super::header::SnapshotHeader;
use super::name::SnapshotName;
use super::writer::SnapshotWriter;
use crate::disk::Disk;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{Incarnation, Lsn};

/// How many are kept.
const KEPT: usize = 2;

/// One snapshot that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its number; later ones are higher.
    pub number: u64,
    /// Opening by it replays the log from here.
    pub covered: Lsn,
    /// No entry in it lies here or above.
    pub end: Lsn,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The wall clock when it was begun, in milliseconds since 1970.
    pub written_ms: u64,
}

impl SnapshotInfo {
    pub(in crate::tree) fn of(header: &SnapshotHeader, footer: &SnapshotFooter, bytes: u64) -> Self {
        Self {
            number: header.number,
            covered: header.covered,
            end: footer.end,
            entries: footer.entries,
            bytes,
            written_ms: header.written_ms,
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// The usable ones, oldest first.
    usable: Vec<SnapshotInfo>,
    /// Those that are damaged, or could not be read. They go when two newer ones are there.
    damaged: Vec<SnapshotName>,
    /// The newest of those that the system could not read: what is in them may be whole.
    unread: Option<SnapshotName>,
    /// The number of the next one.
    next: u64,
}

/// The snapshots of one tree.
pub(in crate::tree) struct Snapshots {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    found_any: bool,
    kept: Mutex<Kept>,
    /// Held by whoever writes one.
    pub(in crate::tree) writing: tokio::sync::Mutex<()>,
}

impl Snapshots {
    /// Looks which snapshots of a log are there, and removes what a crash left of one that was being written. Answers
    /// the usable ones as well, newest first. A damaged one is logged and passed over, one of another log too. Blocks.
    pub(in crate::tree) fn find(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        incarnation: Incarnation,
    ) -> Result<(Self, Vec<SnapshotFile>), StorageError> {
        let listed = if disk.exists(&dir).map_err(|error| unreadable(&dir, error))? {
            disk.list(&dir).map_err(|error| unreadable(&dir, error))?
        } else {
            Vec::new()
        };
        let mut kept = Kept::default();
        let mut files = Vec::new();
        for name in listed.iter().filter_map(|name| SnapshotName::of_file(name)) {
            kept.next = name.number().saturating_add(1);
            match SnapshotFile::open(disk.as_ref(), &dir, name) {
                Ok(file) if file.header.incarnation == incarnation => {
                    kept.usable.push(SnapshotInfo::of(&file.header, &file.footer, file.bytes));
                    files.push(file);
                }
                Ok(_) => tracing::warn!(
                    path = %dir.join(name.file()).display(),
                    "a snapshot of another log is not used: the log was created anew since; remove the file"
                ),
                Err(fault) => kept.pass_over(&dir, name, &fault),
            }
        }
        files.reverse();
        let found_any = listed.iter().any(|name| SnapshotName::of_file(name).is_some());
        let (kept, writing) = (Mutex::new(kept), tokio::sync::Mutex::default());
        let snapshots = Self { disk, dir, found_any, kept, writing };
        snapshots.remove_all(listed.iter().filter(|name| SnapshotName::is_temporary(name)).cloned());
        Ok((snapshots, files))
    }

    /// Takes note that a snapshot which looked usable is not.
    pub(in crate::tree) fn pass_over(&self, file: &SnapshotFile, fault: &SnapshotFault) {
        let mut kept = self.kept.lock();
        kept.usable.retain(|info| info.number != file.name.number());
        kept.pass_over(&self.dir, file.name, fault);
    }

    /// The newest that the system could not read, and that may be whole.
    pub(in crate::tree) fn unread(&self) -> Option<u64> {
        self.kept.lock().unread.map(SnapshotName::number)
    }

    /// Whether there was a file of a snapshot when they were looked for, usable or not.
    pub(in crate::tree) fn found_any(&self) -> bool {
        self.found_any
    }

    /// The path of a snapshot.
    pub(in crate::tree) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(SnapshotName::new(number).file())
    }

    /// Where they lie.
    pub(in crate::tree) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The newest usable one.
    pub(in crate::tree) fn newest(&self) -> Option<SnapshotInfo> {
        self.kept.lock().usable.last().copied()
    }

    /// Below this the log is not needed: even if the newest snapshot turns out to be damaged, the one before it and the
    /// log above this position give the whole state. Zero unless there are two.
    pub(in crate::tree) fn checkpoint(&self) -> Lsn {
        let kept = self.kept.lock();
        kept.usable.iter().rev().nth(KEPT - 1).map_or(Lsn::ZERO, |older| older.covered)
    }

    /// The number of the next snapshot. A number is given out once.
    pub(in crate::tree) fn next_number(&self) -> u64 {
        let mut kept = self.kept.lock();
        let number = kept.next;
        kept.next += 1;
        number
    }

    /// Begins a file. Blocks.
    pub(in crate::tree) fn begin(
        &self,
        header: &SnapshotHeader,
        chunk_bytes: usize,
    ) -> io::Result<SnapshotWriter> {
        SnapshotWriter::create(self.disk.clone(), &self.dir, header, chunk_bytes)
    }

    /// Takes note of a snapshot that is durable, and removes those that are not needed any more. Blocks.
    pub(in crate::tree) fn add(&self, info: SnapshotInfo) {
        self.kept.lock().usable.push(info);
        self.prune();
    }

    /// Removes all but the newest two, and the damaged ones that are older than these. Blocks.
    pub(in crate::tree) fn prune(&self) {
        let superfluous: Vec<String> = {
            let mut kept = self.kept.lock();
            let excess = kept.usable.len().saturating_sub(KEPT);
            let mut names: Vec<SnapshotName> =
                kept.usable.drain(..excess).map(|info| SnapshotName::new(info.number)).collect();
            if let [older, _] = kept.usable[..] {
                names.extend(kept.damaged.extract_if(.., |name| name.number() < older.number));
            }
            names.into_iter().map(SnapshotName::file).collect()
        };
        self.remove_all(superfluous);
    }

    /// Removes those from which the log does not lead here, because it begins above them now: they were to go before,
    /// and counted as usable they would stand in for one that is. Blocks.
    pub(in crate::tree) fn drop_before(&self, log: Lsn) {
        let older: Vec<SnapshotInfo> =
            self.kept.lock().usable.extract_if(.., |info| info.covered < log).collect();
        self.remove_all(older.into_iter().map(|info| SnapshotName::new(info.number).file()));
    }

    /// Removes what was begun under a number. Blocks.
    pub(super) fn discard(&self, number: u64) {
        let temporary = SnapshotName::new(number).temporary();
        if self.disk.exists(&self.dir.join(&temporary)).unwrap_or(true) {
            self.remove_all([temporary]);
        }
    }

    /// Removes those with lower numbers: the log does not lead from them to the present state any more. Blocks.
    pub(in crate::tree) fn drop_below(&self, number: u64) {
        let lower: Vec<String> = {
            let mut kept = self.kept.lock();
            let all = kept.usable.iter().map(|info| SnapshotName::new(info.number));
            let all = all.chain(kept.damaged.iter().copied()).filter(|name| name.number() < number);
            let lower = all.map(SnapshotName::file).collect();
            kept.usable.retain(|info| info.number >= number);
            kept.damaged.retain(|name| name.number() >= number);
            lower
        };
        self.remove_all(lower);
    }

    /// Removes one snapshot, finished or begun; durable when it returns. Blocks.
    pub(in crate::tree) fn take_back(&self, number: u64) -> io::Result<()> {
        let name = SnapshotName::new(number);
        if !self.disk.exists(&self.dir)? {
            return Ok(());
        }
        self.kept.lock().usable.retain(|info| info.number != number);
        for path in [name.temporary(), name.file()].map(|file| self.dir.join(file)) {
            if self.disk.exists(&path)? {
                self.disk.remove(&path)?;
            }
        }
        self.disk.sync_dir(&self.dir)
    }

    /// A file that stays is found again at the next start.
    fn remove_all(&self, names: impl IntoIterator<Item = String>) {
        let mut removed = false;
        for name in names {
            let path = self.dir.join(name);
            match self.disk.remove(&path) {
                Ok(()) => removed = true,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a snapshot that is not needed stays")
                }
            }
        }
        if removed && let Err(error) = self.disk.sync_dir(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "removed snapshots may be back after a crash");
        }
    }

    /// Bytes that are free where they lie, if the disk knows. Blocks.
    pub(super) fn available(&self) -> Option<u64> {
        self.disk.available(self.dir.parent()?).ok().flatten()
    }
}

impl Kept {
    fn pass_over(&mut self, dir: &Path, name: SnapshotName, fault: &SnapshotFault) {
        let path = dir.join(name.file());
        let source = std::error::Error::source(fault).map(ToString::to_string);
        tracing::error!(path = %path.display(), %fault, source, "a snapshot cannot be used, the one before it is tried");
        if let SnapshotFault::Io(_) = fault {
            self.unread = self.unread.max(Some(name));
        }
        // What a newer program wrote is its own.
        if !fault.is_newer() {
            self.damaged.push(name);
        }
    }
}

fn unreadable(dir: &Path, error: io::Error) -> StorageError {
    StorageError::new(StorageErrorKind::Io, format!("{} cannot be listed", dir.display())).with_source(error)
}
