//! [`Names`]: the names of a [`MemDisk`](super::MemDisk), and which of them a crash would keep.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mem_content::MemContent;
use super::mem_file::{MemFile, MemVitals};

pub(super) type Files = BTreeMap<PathBuf, Arc<MemFile>>;

/// Live and durable names. Directories are always both.
#[derive(Default)]
pub(super) struct Names {
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) live: Files,
    pub(super) durable: Files,
    /// What `live` is ahead of `durable`, in order.
    pub(super) pending: Vec<Change>,
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) next_id: u64,
}

/// A change of the names of one directory.
#[derive(Clone)]
pub(super) enum Change {
    Create(PathBuf, Arc<MemFile>),
    Rename(PathBuf, PathBuf, Arc<MemFile>),
    Remove(PathBuf),
}

impl Change {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Create(path, _) | Self::Rename(path, ..) | Self::Remove(path) => path,
        }
    }

    /// The names that it touches.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let (first, second) = match self {
            Self::Create(path, _) | Self::Remove(path) => (path, None),
            Self::Rename(from, to, _) => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    pub(super) fn apply(self, files: &mut Files) {
        match self {
            Self::Create(path, file) => drop(files.insert(path, file)),
            Self::Rename(from, to, file) => {
                files.remove(&from);
                files.insert(to, file);
            }
            Self::Remove(path) => drop(files.remove(&path)),
        }
    }

    pub(super) fn map(self, file_of: &mut impl FnMut(&Arc<MemFile>) -> Arc<MemFile>) -> Self {
        match self {
            Self::Create(path, file) => Self::Create(path, file_of(&file)),
            Self::Rename(from, to, file) => Self::Rename(from, to, file_of(&file)),
            Self::Remove(path) => Self::Remove(path),
        }
    }
}

impl Names {
    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<MemFile>> {
        self.live.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn dir(&self, path: &Path) -> io::Result<()> {
        let there = path.parent().is_none() || path.as_os_str().is_empty() || self.dirs.contains(path);
        if there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    pub(super) fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn create(&mut self, path: &Path, vitals: &Arc<MemVitals>) -> io::Result<Arc<MemFile>> {
        self.dir(path.parent().unwrap_or(Path::new("")))?;
        if self.live.contains_key(path) || self.dirs.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.next_id += 1;
        let file = MemFile::new(self.next_id, MemContent::default(), vitals.clone());
        self.change(Change::Create(path.to_owned(), file.clone()));
        Ok(file)
    }

    /// Lets any of the pending changes happen; one that touches a name of a change that did not happen does not
    /// happen either.
    pub(super) fn crash(&mut self, random: &mut fastrand::Rng) {
        let mut lost = BTreeSet::new();
        for change in std::mem::take(&mut self.pending) {
            if random.bool() || change.paths().any(|path| lost.contains(path)) {
                lost.extend(change.paths().cloned());
            } else {
                change.apply(&mut self.durable);
            }
        }
        for file in self.durable.values() {
            file.crash(random);
        }
        self.live = self.durable.clone();
    }
}
