//! [`MemFile`]: a file of a [`MemDisk`](super::MemDisk), and the handle on it.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::contract::DiskFile;
use super::failure::DiskFailure;
use super::mem_content::MemContent;

/// What the files of one disk share: the room that they take, and whether their process still lives.
pub(super) struct MemVitals {
    pub(super) dead: AtomicBool,
    pub(super) quota: AtomicU64,
    pub(super) used: AtomicU64,
}

impl MemVitals {
    pub(super) fn check(&self) -> io::Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(io::Error::other("the process that opened this has crashed"));
        }
        Ok(())
    }

    pub(super) fn free(&self) -> u64 {
        self.quota.load(Ordering::SeqCst).saturating_sub(self.used.load(Ordering::SeqCst))
    }
}

/// A file, whatever its name. Its room is free again when nobody knows it any more.
pub(super) struct MemFile {
    pub(super) id: u64,
    pub(super) content: Mutex<MemContent>,
    vitals: Arc<MemVitals>,
}

impl MemFile {
    pub(super) fn new(id: u64, content: MemContent, vitals: Arc<MemVitals>) -> Arc<Self> {
        vitals.used.fetch_add(content.len() as u64, Ordering::SeqCst);
        Arc::new(Self { id, content: Mutex::new(content), vitals })
    }

    /// Runs an operation on the content and keeps account of the room.
    fn change<T>(&self, content: &mut MemContent, run: impl FnOnce(&mut MemContent) -> T) -> T {
        let before = content.len() as u64;
        let done = run(content);
        self.vitals.used.fetch_add(content.len() as u64, Ordering::SeqCst);
        self.vitals.used.fetch_sub(before, Ordering::SeqCst);
        done
    }

    pub(super) fn crash(&self, random: &mut fastrand::Rng) {
        self.change(&mut self.content.lock(), |content| content.crash(random));
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.vitals.used.fetch_sub(self.content.get_mut().len() as u64, Ordering::SeqCst);
    }
}

/// An open file.
pub(super) struct MemHandle {
    pub(super) file: Arc<MemFile>,
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

impl MemHandle {
    /// Runs an operation on the content, unless the process has crashed: asked under the lock under which a crash
    /// copies the content, so that nothing succeeds that the copy lacks.
    fn with<T>(
        &self,
        operation: &'static str,
        writes: bool,
        run: impl FnOnce(&mut MemContent) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut content = self.file.content.lock();
        self.file
            .vitals
            .check()
            .and_then(|()| {
                if writes && !self.writable { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
            })
            .and_then(|()| self.file.change(&mut content, run))
            .map_err(|error| DiskFailure::wrap(operation, &self.path, error))
    }

    /// The length up to which a file of this length may grow.
    fn bound(&self, len: usize) -> usize {
        usize::try_from(self.file.vitals.free()).unwrap_or(usize::MAX).saturating_add(len)
    }
}

impl DiskFile for MemHandle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = position(offset)?;
        self.with("read", false, |content| Ok(content.read(buf, offset)))
    }

    fn write_all_at(&self, bufs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut offset = position(offset)?;
        self.with("write", true, |content| {
            let bound = self.bound(content.len());
            for slice in bufs.iter() {
                let fits = slice.len().min(bound.saturating_sub(offset));
                content.write(offset, &slice[..fits]);
                if fits < slice.len() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                offset += fits;
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with("sync", false, |content| {
            content.sync();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with("measure", false, |content| Ok(content.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = position(len)?;
        self.with("resize", true, |content| {
            if len > self.bound(content.len()) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.set_len(len);
            Ok(())
        })
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}
