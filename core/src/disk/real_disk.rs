//! [`RealDisk`]: the files of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::contract::{DirLock, Disk, DiskFile, OpenMode};
use super::failure::DiskFailure;

/// Most slices that one call of the system takes (`IOV_MAX` of Linux).
const MAX_SLICES: usize = 1024;

/// The files of the operating system. The only place of the library that touches `std::fs`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[expect(clippy::disallowed_methods, reason = "this is the one door to the files of the system")]
impl Disk for RealDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !spell(above).exists()).collect();
        fs::create_dir_all(spell(path))
            .map_err(|error| DiskFailure::wrap("create directory", path, error))?;
        // From the top, so that no directory is durable in one that is not.
        missing.into_iter().rev().filter_map(Path::parent).try_for_each(|above| self.sync_dir(above))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::CreateNew);
        let file = options.open(path).map_err(|error| DiskFailure::wrap("open", path, error))?;
        Ok(Arc::new(RealFile { file, path: path.to_owned() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(spell(dir))? {
                let name = entry?.file_name();
                names.push(name.into_string().map_err(|name| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("name is not UTF-8: {}", name.display()),
                    )
                })?);
            }
            names.sort_unstable();
            Ok(names)
        };
        names().map_err(|error: io::Error| DiskFailure::wrap("list", dir, error))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        spell(path).try_exists().map_err(|error| DiskFailure::wrap("look up", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(DiskFailure::wrap("rename", from, io::Error::from(io::ErrorKind::InvalidInput)));
        }
        fs::rename(from, to).map_err(|error| DiskFailure::wrap("rename", from, error))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|error| DiskFailure::wrap("remove", path, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(spell(dir))
            .and_then(|dir| dir.sync_all())
            .map_err(|error| DiskFailure::wrap("sync directory", dir, error))
    }

    fn lock(&self, path: &Path) -> io::Result<DirLock> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| DiskFailure::wrap("open", path, error))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| DiskFailure::wrap("lock", path, error))?;
        Ok(DirLock::new(path, file))
    }

    fn available(&self, dir: &Path) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statvfs(spell(dir))
            .map_err(|error| DiskFailure::wrap("ask for the free space of", dir, error))?;
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }
}

/// The directory above a bare file name is the empty path, which the system does not know.
fn spell(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealFile {
    fn failed(&self, operation: &'static str, error: impl Into<io::Error>) -> io::Error {
        DiskFailure::wrap(operation, &self.path, error)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, mut bufs: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        IoSlice::advance_slices(&mut bufs, 0);
        while !bufs.is_empty() {
            match rustix::io::pwritev(&self.file, &bufs[..bufs.len().min(MAX_SLICES)], offset) {
                Ok(0) => return Err(self.failed("write", io::Error::from(io::ErrorKind::WriteZero))),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut bufs, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("write", error)),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| self.failed("sync", error))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|meta| meta.len()).map_err(|error| self.failed("measure", error))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(|error| self.failed("resize", error))
    }
}
