//! [`LogFiles::cut`]: ends a damaged log where it stops to read, when somebody has decided so.
//!
//! Nothing is thrown away: what goes is kept beside the log under names that no log uses.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use super::checkup::Damage;
use super::log_files::LogFiles;
use super::recovery::read_all;
use super::segment::{HEADER_BYTES, SegmentNumber};
use crate::disk::OpenMode;
use crate::error::{StorageError, StorageErrorKind};

const ENDING: &str = ".cut";

impl LogFiles {
    /// Cuts the log at a damage that [`check`](Self::check) found. Answers the files that were put aside. A crash in
    /// between leaves a log that is still damaged, and can be cut again.
    ///
    /// # Errors
    /// `Unsupported` when nothing of the log would be left; `Io` when a file cannot be written.
    pub fn cut(&self, damage: &Damage) -> Result<Vec<PathBuf>, StorageError> {
        let walk = self.walk()?;
        let numbers: Vec<SegmentNumber> = walk.segments.iter().map(|(header, _)| header.number).collect();
        let kept = numbers.iter().take_while(|number| **number != damage.segment).count();
        let inside = kept < numbers.len();
        if kept == 0 && (!inside || damage.at <= HEADER_BYTES as u64) {
            let said = format!(
                "{}: nothing would be left of this log; put the tree's directory back from a copy, or remove it and let the peers send their writes again",
                self.dir.display()
            );
            return Err(StorageError::new(StorageErrorKind::Unsupported, said));
        }
        let shortened = inside && damage.at > HEADER_BYTES as u64;
        let first_gone = kept + usize::from(shortened);
        // The newest goes first: at every moment the rest is a log with the same damage.
        let mut gone: Vec<SegmentNumber> = numbers[first_gone.min(numbers.len())..].to_vec();
        gone.extend(&walk.beyond);
        gone.sort_unstable();
        let mut aside = Vec::new();
        for number in gone.into_iter().rev() {
            let path = self.recovery().path(number);
            let beside = self.beside(&path)?;
            self.disk.rename(&path, &beside).map_err(|error| failed(&path, error))?;
            aside.push(beside);
        }
        self.disk.sync_dir(&self.dir).map_err(|error| failed(&self.dir, error))?;
        if shortened {
            let path = self.recovery().path(damage.segment);
            aside.push(self.shorten(&path, damage.at).map_err(|error| failed(&path, error))?);
        }
        Ok(aside)
    }

    /// Keeps a copy of a file, and ends it.
    fn shorten(&self, path: &Path, at: u64) -> io::Result<PathBuf> {
        let file = self.disk.open(path, OpenMode::Write)?;
        let bytes = read_all(file.as_ref(), file.len()?)?;
        let beside = self.beside(path).map_err(io::Error::other)?;
        let copy = self.disk.open(&beside, OpenMode::CreateNew)?;
        copy.write_all_at(&mut [IoSlice::new(&bytes)], 0)?;
        copy.sync_data()?;
        self.disk.sync_dir(&self.dir)?;
        file.set_len(at)?;
        file.sync_data()?;
        Ok(beside)
    }

    /// A name beside a file that is free.
    fn beside(&self, path: &Path) -> Result<PathBuf, StorageError> {
        for count in 0..1_000_u32 {
            let mut name = path.as_os_str().to_owned();
            name.push(if count == 0 { ENDING.to_owned() } else { format!("{ENDING}{count}") });
            let beside = PathBuf::from(name);
            if !self.disk.exists(&beside).map_err(|error| failed(path, error))? {
                return Ok(beside);
            }
        }
        let said = format!("{}: there are a thousand copies beside it; move them away", path.display());
        Err(StorageError::new(StorageErrorKind::Unsupported, said))
    }
}

fn failed(path: &Path, error: io::Error) -> StorageError {
    let said = format!("{} cannot be put aside or shortened; nothing is lost yet", path.display());
    StorageError::new(StorageErrorKind::Io, said).with_source(error)
}
