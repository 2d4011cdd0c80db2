//! [`DiskFailure`]: an error of the operating system with the operation and the path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{StorageError, StorageErrorKind};

/// What the disk could not do, and with which file. Found inside the [`io::Error`]s of a [`Disk`](super::Disk).
#[derive(Debug)]
pub struct DiskFailure {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DiskFailure {
    /// Wraps an error; the kind stays what it is. For those who implement [`Disk`](super::Disk).
    pub fn wrap(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> io::Error {
        let source = source.into();
        io::Error::new(source.kind(), Self { operation, path: path.to_owned(), source })
    }
}

impl fmt::Display for DiskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.path.display(), self.source)
    }
}

impl std::error::Error for DiskFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<io::Error> for StorageError {
    fn from(error: io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (StorageErrorKind::Full, "the disk is full; free some space")
            }
            io::ErrorKind::WouldBlock => {
                (StorageErrorKind::Locked, "another process uses this directory; stop it first")
            }
            _ => (StorageErrorKind::Io, "the disk failed"),
        };
        Self::new(kind, advice).with_source(error)
    }
}
