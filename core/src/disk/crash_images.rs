//! [`CrashImages`]: for tests, a disk that keeps what it held before each change, so that a crash can be tried at each.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::contract::{DirLock, Disk, DiskFile, OpenMode};
use super::mem_disk::MemDisk;

/// What is noted with each image.
type Note<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// A disk in memory that is copied before each change: a write, a sync, a new length, a new, renamed or removed file, a
/// synced directory. Each image is a disk of its own, on which any part of what was not synced may have survived:
/// [`MemDisk::crash`] of it, with as many seeds as there is patience for.
pub struct CrashImages<T> {
    inner: Arc<dyn Disk>,
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    disk: MemDisk,
    on: AtomicBool,
    note: Note<T>,
    taken: Mutex<Vec<(MemDisk, T)>>,
}

impl<T: Send + 'static> CrashImages<T> {
    /// Copies nothing until [`record`](Self::record). `note` is asked for what is to be kept beside each image.
    pub fn new(disk: &MemDisk, note: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::over(Arc::new(disk.clone()), disk, note)
    }

    /// The same for a disk that stands on one in memory, one with faults for instance.
    pub fn over(inner: Arc<dyn Disk>, disk: &MemDisk, note: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let (disk, on) = (disk.clone(), AtomicBool::new(false));
        let shared = Shared { disk, on, note: Arc::new(note), taken: Mutex::default() };
        Self { inner, shared: Arc::new(shared) }
    }

    /// Copies before each change from now on, or not any more.
    pub fn record(&self, on: bool) {
        self.shared.on.store(on, Ordering::SeqCst);
    }

    /// What was copied since the last time, and how it is now.
    pub fn take(&self) -> Vec<(MemDisk, T)> {
        self.shared.changes();
        std::mem::take(&mut self.shared.taken.lock())
    }
}

impl<T> Shared<T> {
    fn changes(&self) {
        if self.on.load(Ordering::SeqCst) {
            let image = (self.disk.copy(), (self.note)());
            self.taken.lock().push(image);
        }
    }
}

impl<T: Send + 'static> Disk for CrashImages<T> {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            self.shared.changes();
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(File { inner, shared: self.shared.clone() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.changes();
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.changes();
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.shared.changes();
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        self.inner.lock(path)
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.inner.available(dir)
    }
}

struct File<T> {
    inner: Arc<dyn DiskFile>,
    shared: Arc<Shared<T>>,
}

impl<T: Send + 'static> DiskFile for File<T> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, bufs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.shared.changes();
        self.inner.write_all_at(bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.changes();
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.changes();
        self.inner.set_len(len)
    }
}
