//! [`Spare`]: a file for a new segment: that of a trimmed one, or one that was filled with zeros ahead. Writing over it
//! is faster than growing a file, and needs no room on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::SegmentNumber;
use crate::disk::{Disk, DiskFile, OpenMode};

/// Most spares of a log.
pub(super) const MAX_SPARES: usize = 4;

const ENDING: &str = ".spare";
const FILLED: &str = ".filled.spare";

/// A file to be written over.
#[derive(Clone)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
    /// It was a segment before: bytes of a former life lie in it.
    pub(super) former: bool,
}

impl Spare {
    /// Where the file of a segment lies once it is a spare.
    pub(super) fn path_of(dir: &Path, number: SegmentNumber) -> PathBuf {
        dir.join(format!("{:020}{ENDING}", number.0))
    }

    /// Where a file lies that was begun to be filled when the next segment had this number.
    pub(super) fn filled_path(dir: &Path, number: SegmentNumber) -> PathBuf {
        dir.join(format!("{:020}{FILLED}", number.0))
    }

    /// The spares of a directory, oldest first.
    pub(super) fn find(disk: &dyn Disk, dir: &Path, names: &[String]) -> std::io::Result<Vec<Self>> {
        let spares = names.iter().filter(|name| name.ends_with(ENDING));
        spares
            .map(|name| {
                let path = dir.join(name);
                let file = disk.open(&path, OpenMode::Write)?;
                let bytes = file.len()?;
                Ok(Self { path, file, bytes, former: !name.ends_with(FILLED) })
            })
            .collect()
    }
}
