//! [`MemDisk`]: a disk in memory that knows what a crash would leave of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::contract::{DirLock, Disk, DiskFile, OpenMode};
use super::failure::DiskFailure;
use super::mem_file::{MemFile, MemHandle, MemVitals};
use super::mem_names::{Change, Files, Names};

/// A disk in memory. Clones are the same disk, seen by the same process.
///
/// Live and durable bytes are kept apart. The end of a process is the end of its handles: [`crash`](Self::crash) and
/// [`kill`](Self::kill) answer the disk for the next one, and from then on everything that the former one holds, this
/// value and its clones and files included, fails.
#[derive(Clone)]
pub struct MemDisk(Arc<Shared>);

struct Shared {
    vitals: Arc<MemVitals>,
    names: Mutex<Names>,
}

impl Default for MemDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemDisk {
    /// An empty disk without a bound.
    pub fn new() -> Self {
        Self::over(Names::default(), Arc::new(Self::vitals(u64::MAX)))
    }

    /// Bounds the bytes of all files together; above it writes fail with `StorageFull`. [`u64::MAX`] lifts the bound.
    /// A removed file counts until its directory is synced.
    pub fn set_quota(&self, bytes: u64) {
        self.0.vitals.quota.store(bytes, Ordering::SeqCst);
    }

    /// The bytes of all files together.
    pub fn used(&self) -> u64 {
        self.0.vitals.used.load(Ordering::SeqCst)
    }

    /// The machine loses power: the disk that is found afterwards. Of what was not synced any part may be there,
    /// decided by the seed: sectors of 512 bytes, lengths, and names.
    #[must_use = "this disk is dead from here on"]
    pub fn crash(&self, seed: u64) -> Self {
        let next = self.kill();
        next.0.names.lock().crash(&mut fastrand::Rng::with_seed(seed));
        next
    }

    /// The process dies and the machine lives: the disk that is found afterwards. Nothing that was written is lost,
    /// and what was not synced is still not synced.
    #[must_use = "this disk is dead from here on"]
    pub fn kill(&self) -> Self {
        self.0.vitals.dead.store(true, Ordering::SeqCst);
        self.copy()
    }

    /// An independent disk in the same state, locks apart: a backup, if nothing is written meanwhile.
    #[must_use]
    pub fn copy(&self) -> Self {
        let names = self.0.names.lock();
        let vitals = Arc::new(Self::vitals(self.0.vitals.quota.load(Ordering::SeqCst)));
        let mut copies = BTreeMap::new();
        let mut file_of = |file: &Arc<MemFile>| {
            let copy = || MemFile::new(file.id, file.content.lock().clone(), vitals.clone());
            copies.entry(file.id).or_insert_with(copy).clone()
        };
        let mut files_of = |files: &Files| -> Files {
            files.iter().map(|(path, file)| (path.clone(), file_of(file))).collect()
        };
        let (live, durable) = (files_of(&names.live), files_of(&names.durable));
        let pending = names.pending.iter().cloned().map(|change| change.map(&mut file_of)).collect();
        let copied = Names {
            dirs: names.dirs.clone(),
            live,
            durable,
            pending,
            locked: BTreeSet::new(),
            next_id: names.next_id,
        };
        Self::over(copied, vitals)
    }

    /// What a failed sync of a file leaves behind: the unsynced sectors read as they were before, and the next sync
    /// succeeds without them.
    pub fn lose_unsynced(&self, path: &Path) {
        if let Some(file) = self.0.names.lock().live.get(path) {
            file.content.lock().lose_unsynced();
        }
    }

    fn over(names: Names, vitals: Arc<MemVitals>) -> Self {
        Self(Arc::new(Shared { vitals, names: Mutex::new(names) }))
    }

    fn vitals(quota: u64) -> MemVitals {
        MemVitals { dead: AtomicBool::new(false), quota: AtomicU64::new(quota), used: AtomicU64::new(0) }
    }

    fn with<T>(
        &self,
        operation: &'static str,
        path: &Path,
        run: impl FnOnce(&mut Names) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut names = self.0.names.lock();
        self.0
            .vitals
            .check()
            .and_then(|()| run(&mut names))
            .map_err(|error| DiskFailure::wrap(operation, path, error))
    }
}

impl Disk for MemDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with("create directory", path, |names| {
            let chain: Vec<&Path> = path.ancestors().filter(|dir| names.dir(dir).is_err()).collect();
            if path.ancestors().any(|dir| names.live.contains_key(dir)) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            names.dirs.extend(chain.into_iter().map(Path::to_owned));
            Ok(())
        })
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.with("open", path, |names| match mode {
            OpenMode::Read | OpenMode::Write => names.file(path),
            OpenMode::CreateNew => names.create(path, &self.0.vitals),
        })?;
        Ok(Arc::new(MemHandle { file, path: path.to_owned(), writable: mode != OpenMode::Read }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.with("list", dir, |names| {
            names.dir(dir)?;
            let below = |path: &&PathBuf| path.starts_with(dir);
            let files = names.live.range(dir.to_owned()..).map(|(path, _)| path).take_while(below);
            let dirs = names.dirs.range(dir.to_owned()..).take_while(below);
            let mut found: Vec<String> = files
                .chain(dirs)
                .filter(|path| path.parent() == Some(dir))
                .filter_map(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            found.sort_unstable();
            Ok(found)
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.with("look up", path, |names| Ok(names.live.contains_key(path) || names.dir(path).is_ok()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with("rename", from, |names| {
            if from.parent() != to.parent() || names.dirs.contains(to) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let file = names.file(from)?;
            if from != to {
                names.change(Change::Rename(from.to_owned(), to.to_owned(), file));
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.with("remove", path, |names| {
            names.file(path)?;
            names.change(Change::Remove(path.to_owned()));
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with("sync directory", dir, |names| {
            names.dir(dir)?;
            for change in std::mem::take(&mut names.pending) {
                if change.path().parent() == Some(dir) {
                    change.apply(&mut names.durable);
                } else {
                    names.pending.push(change);
                }
            }
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        self.with("lock", path, |names| {
            if names.locked.contains(path) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !names.live.contains_key(path) {
                names.create(path, &self.0.vitals)?;
            }
            names.locked.insert(path.to_owned());
            Ok(DirLock::new(path, HeldLock { disk: self.clone(), path: path.to_owned() }))
        })
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.with("ask for the free space of", dir, |_| {
            let bounded = self.0.vitals.quota.load(Ordering::SeqCst) != u64::MAX;
            Ok(bounded.then(|| self.0.vitals.free()))
        })
    }
}

struct HeldLock {
    disk: MemDisk,
    path: PathBuf,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.disk.0.names.lock().locked.remove(&self.path);
    }
}
