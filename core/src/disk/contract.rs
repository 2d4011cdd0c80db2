//! [`Disk`] and [`DiskFile`]: what every disk owes to those who keep bytes on it.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; it must not exist yet.
    CreateNew,
}

/// A tree of directories with files in it.
///
/// Every error keeps the kind of the failure and says the operation and the path. Calls may block; none waits for
/// another process.
pub trait Disk: Send + Sync + 'static {
    /// Creates a directory and those above it, as far as they are missing. They are durable when it returns.
    ///
    /// # Errors
    /// When one of them cannot be created, or a file is in the way.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Opens a file. A handle stays on its file when that is renamed or removed. The name of a new file is durable
    /// after [`sync_dir`](Self::sync_dir) of its directory.
    ///
    /// # Errors
    /// `NotFound` without the file or its directory, `AlreadyExists` when a new one is asked for.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// The names of files and directories in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Whether there is a file or directory of this name.
    ///
    /// # Errors
    /// When it cannot be told.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Gives a file another name in the same directory, in one step; a file that had that name is gone. After a crash
    /// before [`sync_dir`](Self::sync_dir) it has happened or it has not.
    ///
    /// # Errors
    /// `NotFound` without the file, `InvalidInput` when the directories differ.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. After a crash before [`sync_dir`](Self::sync_dir) it may be back.
    ///
    /// # Errors
    /// `NotFound` without the file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes what was created, renamed and removed in a directory durable. The bytes of its files are another matter.
    ///
    /// # Errors
    /// After a failure nothing is known about what is durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the lock file of that name, creating it if need be, until the answer is dropped or the process ends. The
    /// file itself stays.
    ///
    /// # Errors
    /// `WouldBlock` while somebody holds it, in this process or another.
    fn lock(&self, path: &Path) -> io::Result<DirLock>;

    /// The bytes that are free for the files of a directory, if the disk knows.
    ///
    /// # Errors
    /// When the disk cannot be asked.
    fn available(&self, dir: &Path) -> io::Result<Option<u64>>;
}

/// An open file. Positions are bytes from its start; calls of several threads do not disturb each other.
pub trait DiskFile: Send + Sync {
    /// Fills the buffer from a position and answers how many bytes there were: fewer only at the end of the file.
    ///
    /// # Errors
    /// Nothing is known about the buffer then.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all slices one after the other from a position, growing the file as needed; a hole reads as zeros. The
    /// slices are used up. Durable after [`sync_data`](Self::sync_data); until then a crash keeps any part.
    ///
    /// # Errors
    /// `StorageFull` without room. A part may have been written.
    fn write_all_at(&self, bufs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable as they are.
    ///
    /// # Errors
    /// What was written since the last success may be lost then, even if a later call succeeds and even if it can be
    /// read now: never sync such a file again as if nothing had happened.
    fn sync_data(&self) -> io::Result<()>;

    /// The length of the file.
    ///
    /// # Errors
    /// When the disk cannot be asked.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Cuts the file, or grows it with zeros. Durable after [`sync_data`](Self::sync_data).
    ///
    /// # Errors
    /// `StorageFull` without room.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// A held lock file. Dropping it lets go.
pub struct DirLock {
    path: PathBuf,
    _held: Box<dyn Send + Sync>,
}

impl DirLock {
    /// A lock that lasts as long as `held`. For those who implement [`Disk`].
    pub fn new(path: &Path, held: impl Send + Sync + 'static) -> Self {
        Self { path: path.to_owned(), _held: Box::new(held) }
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirLock").field(&self.path).finish()
    }
}
