//! Small files that are replaced as a whole: a reader finds the old bytes or the new ones, never a mixture.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use super::contract::{Disk, OpenMode};

/// Replaces the contents of a file. When it returns they are durable; a crash before leaves the old file or the new
/// one. One caller per path at a time.
///
/// # Errors
/// The old file is still there, unless the very last step failed: then either may be there after a crash.
pub fn write_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_of(path);
    if disk.exists(&temporary)? {
        disk.remove(&temporary)?;
    }
    let written = (|| {
        let file = disk.open(&temporary, OpenMode::CreateNew)?;
        file.write_all_at(&mut [IoSlice::new(bytes)], 0)?;
        file.sync_data()?;
        disk.rename(&temporary, path)
    })();
    if let Err(error) = written {
        // Best effort: the next call removes what is left here.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.sync_dir(path.parent().unwrap_or(Path::new("")))
}

/// All bytes of a file. For files that this process wrote, and small ones.
///
/// # Errors
/// `NotFound` without the file.
pub fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn temporary_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}
