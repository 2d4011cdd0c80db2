//! The writing side of [`FileStorage`]: groups behind the end of the last segment, and new segments.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::append::write_group;
use super::filling::Fill;
use super::footer::encode_footer;
use super::index::SegmentIndex;
use super::segment::{SegmentHeader, SegmentNumber};
use super::spare::Spare;
use super::storage::{FileStorage, failed};
use crate::disk::{DiskFile, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Group;
use crate::wal::Completion;

const FIRST: &str = "open made the first segment";

pub(super) fn given_up() -> StorageError {
    StorageError::new(StorageErrorKind::Deadline, "the write landed after it was given up on")
}

impl FileStorage {
    /// Starts a new segment behind the last one; durable when it returns.
    pub(super) fn add_segment(&self) -> Result<(), StorageError> {
        let (header, spare, epoch) = {
            let mut segments = self.segments.write();
            let number = segments.next_number;
            // A file that cannot be finished keeps its number; it holds no group, and recovery passes over it.
            segments.next_number = SegmentNumber(number.0 + 1);
            let wanted = self.segment_bytes(number);
            let spare = segments.spares.pop().or_else(|| segments.filling.take(wanted));
            let last = segments.list.last();
            let header = SegmentHeader {
                incarnation: self.manifest().incarnation,
                number,
                first_lsn: last.map_or(Lsn::ZERO, SegmentIndex::next_lsn),
                first_group: segments.next_group,
                before: last.map(|last| (last.header.number, last.end())),
                recycled: spare.as_ref().is_some_and(|spare| spare.former),
            };
            (header, spare, segments.epoch)
        };
        let path = self.dir.join(header.number.file_name());
        let bytes = spare.as_ref().map_or(0, |spare| spare.bytes);
        let made = match spare {
            Some(spare) => self.reuse(&spare, &path, &header),
            None => self.create(&path, &header),
        };
        let file = made.map_err(|error| failed(format!("{} cannot be created", path.display()), error))?;
        let mut segments = self.segments.write();
        if segments.epoch != epoch {
            // A repair has gone on without it; it names no place in the log that goes on.
            return Err(given_up());
        }
        let mut segment = SegmentIndex::new(header, file, bytes);
        segment.file_bytes = bytes.max(segment.end());
        segments.push(segment);
        Ok(())
    }

    fn create(&self, path: &Path, header: &SegmentHeader) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, OpenMode::CreateNew)?;
        let made = file
            .write_all_at(&mut [IoSlice::new(&header.encode())], 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.disk.sync_dir(&self.dir));
        if made.is_err() && self.disk.remove(path).is_err() {
            tracing::warn!(path = %path.display(), "a segment that could not be finished is left behind");
        }
        made.map(|()| file)
    }

    /// Makes a segment out of a spare. Under the new name it is never seen without the new header.
    fn reuse(&self, spare: &Spare, path: &Path, header: &SegmentHeader) -> io::Result<Arc<dyn DiskFile>> {
        let made = spare
            .file
            .write_all_at(&mut [IoSlice::new(&header.encode())], 0)
            .and_then(|()| spare.file.sync_data())
            .and_then(|()| self.disk.rename(&spare.path, path))
            .and_then(|()| self.disk.sync_dir(&self.dir));
        // One of the two names is there; neither may be used again.
        if made.is_err() && self.disk.remove(&spare.path).is_err() && self.disk.remove(path).is_err() {
            tracing::warn!(path = %spare.path.display(), "a spare segment that could not be used is left behind");
        }
        made.map(|()| spare.file.clone())
    }

    /// Puts the footer behind a segment that is complete. Without a sync: what a crash takes of it is read from the
    /// groups instead.
    fn seal(&self, number: SegmentNumber) {
        let segment = {
            let segments = self.segments.read();
            match segments.find(number) {
                Some(at) => segments.list[at].clone(),
                None => return,
            }
        };
        let footer = encode_footer(&segment.contents, segment.header.seed());
        if let Err(error) = segment.file.write_all_at(&mut [IoSlice::new(&footer)], segment.end()) {
            tracing::warn!(segment = number.0, %error, "a segment has no footer; the next start reads all of it");
            return;
        }
        let mut segments = self.segments.write();
        if let Some(at) = segments.find(number) {
            segments.sealed(at, segment.end() + footer.len() as u64);
        }
    }

    /// How large the segment with a number grows before the next one is started.
    pub(super) fn segment_bytes(&self, number: SegmentNumber) -> u64 {
        let doublings = u32::try_from(number.0.saturating_sub(1).min(32)).expect("at most 32");
        let grown =
            self.limits.segment_bytes_min.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        grown.min(self.limits.segment_bytes_max)
    }

    /// Puts a group behind the last one and makes it durable; it is readable when `done` says that it is still wanted.
    pub(super) fn write(&self, group: &Group, done: &Completion) -> Result<Fill, StorageError> {
        let (epoch, full) = {
            let segments = self.segments.read();
            if segments.next_group != group.sequence() {
                let said = format!("group {} came where {} belongs", group.sequence(), segments.next_group);
                return Err(StorageError::new(StorageErrorKind::Io, said));
            }
            let last = segments.list.last().expect(FIRST);
            let full = last.bytes() > 0
                && last.end() + group.stored_bytes() > self.segment_bytes(last.header.number);
            (segments.epoch, full.then_some(last.header.number))
        };
        if let Some(full) = full {
            self.add_segment()?;
            self.seal(full);
        }
        let (file, at, seed) = {
            let segments = self.segments.read();
            if segments.epoch != epoch {
                return Err(given_up());
            }
            let last = segments.list.last().expect(FIRST);
            (last.file.clone(), last.end(), last.header.seed())
        };
        write_group(file.as_ref(), group, at, seed)
            .map_err(|error| failed(format!("log of {} cannot be written", self.dir.display()), error))?;
        let mut segments = self.segments.write();
        if segments.epoch != epoch || !done.land() {
            return Err(given_up());
        }
        segments.next_group = group.sequence().next();
        segments.list.last_mut().expect(FIRST).push(group);
        Ok(self.wants_filling(&mut segments))
    }

    /// Goes on in a new segment. The last one is never written again, not even a footer: what failed may still land.
    pub(super) fn cut(&self) -> Result<(), StorageError> {
        self.segments.write().epoch += 1;
        self.add_segment()
    }
}
