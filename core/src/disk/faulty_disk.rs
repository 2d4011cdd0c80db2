//! [`FaultyDisk`]: any disk, with faults.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contract::{DirLock, Disk, DiskFile, OpenMode};
use super::failure::DiskFailure;
use super::faults::{DiskFaults, DiskOperation};
use super::mem_disk::MemDisk;

/// A disk that does what another one does, but for the faults that were ordered.
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    memory: Option<MemDisk>,
    faults: DiskFaults,
}

impl FaultyDisk {
    /// Faults over any disk. A failing sync leaves the bytes as they are.
    pub fn new(inner: Arc<dyn Disk>, faults: DiskFaults) -> Self {
        Self { inner, memory: None, faults }
    }

    /// Faults over a disk in memory. A failing sync loses what was to be synced, as [`MemDisk::lose_unsynced`] says.
    pub fn over_memory(inner: MemDisk, faults: DiskFaults) -> Self {
        Self { inner: Arc::new(inner.clone()), memory: Some(inner), faults }
    }

    fn admit(&self, operation: DiskOperation, what: &'static str, path: &Path) -> io::Result<()> {
        self.faults.admit(operation, false).map_err(|error| DiskFailure::wrap(what, path, error))
    }
}

impl Disk for FaultyDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.faults
            .admit(DiskOperation::Open, mode == OpenMode::CreateNew)
            .map_err(|error| DiskFailure::wrap("open", path, error))?;
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_owned(),
            memory: self.memory.clone(),
            faults: self.faults.clone(),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.admit(DiskOperation::Read, "list", dir)?;
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(DiskOperation::Rename, "rename", from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.admit(DiskOperation::Remove, "remove", path)?;
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.admit(DiskOperation::SyncDir, "sync directory", dir)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        self.admit(DiskOperation::Open, "lock", path)?;
        self.inner.lock(path)
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        if self.faults.is_full() { Ok(Some(0)) } else { self.inner.available(dir) }
    }
}

struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    path: PathBuf,
    memory: Option<MemDisk>,
    faults: DiskFaults,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults
            .admit(DiskOperation::Read, false)
            .map_err(|error| DiskFailure::wrap("read", &self.path, error))?;
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, bufs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let Err(error) = self.faults.admit(DiskOperation::Write, true) else {
            return self.inner.write_all_at(bufs, offset);
        };
        let mut left = self.faults.part_of(bufs.iter().map(|slice| slice.len()).sum());
        let mut part: Vec<IoSlice<'_>> = Vec::new();
        for slice in bufs.iter() {
            let taken = slice.len().min(left);
            part.push(IoSlice::new(&slice[..taken]));
            left -= taken;
        }
        self.inner.write_all_at(&mut part, offset)?;
        Err(DiskFailure::wrap("write", &self.path, error))
    }

    fn sync_data(&self) -> io::Result<()> {
        let Err(error) = self.faults.admit(DiskOperation::Sync, false) else {
            return self.inner.sync_data();
        };
        if let Some(memory) = &self.memory {
            memory.lose_unsynced(&self.path);
        }
        Err(DiskFailure::wrap("sync", &self.path, error))
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults
            .admit(DiskOperation::Write, true)
            .map_err(|error| DiskFailure::wrap("resize", &self.path, error))?;
        self.inner.set_len(len)
    }
}
