//! Letting go of the old segments of a [`FileStorage`], and using their files again.

use super::index::SegmentIndex;
use super::spare::{MAX_SPARES, Spare};
use super::storage::{FileStorage, failed};
use super::trim_point::TrimPoint;
use crate::error::StorageError;
use crate::id::{Hlc, Lsn};
use crate::wal::storage::Bounds;

impl FileStorage {
    /// What the log would hold after a trim; of its files those that are kept as spares are not counted.
    pub fn bounds_after_trim(&self, before: Lsn) -> Bounds {
        let segments = self.segments.read();
        segments.bounds_from(segments.below(before))
    }

    /// Where the first segment begins that holds a record at or above an HLC; the end if none does.
    pub fn first_at_or_above(&self, hlc: Hlc) -> Lsn {
        let segments = self.segments.read();
        let young = segments.list.iter().find(|segment| segment.contents.last_hlc >= hlc);
        young.map_or_else(
            || segments.list.last().map_or(Lsn::ZERO, SegmentIndex::next_lsn),
            |segment| segment.header.first_lsn,
        )
    }

    pub(super) fn trim_blocking(&self, before: Lsn) -> Result<(), StorageError> {
        let _alone = self.trimming.lock();
        let point = {
            let segments = self.segments.read();
            let count = segments.below(before);
            if count == 0 {
                return Ok(());
            }
            let (gone, stay) = segments.list.split_at(count);
            let extents = gone.iter().map(|segment| &segment.contents.extents);
            TrimPoint::advanced(segments.trim.as_ref(), &stay[0].header, extents)
        };
        point.store(self.disk.as_ref(), &self.dir).map_err(|error| {
            let path = TrimPoint::path(&self.dir);
            failed(format!("{} cannot be written, so nothing is trimmed", path.display()), error)
        })?;
        let gone: Vec<SegmentIndex> = {
            let mut segments = self.segments.write();
            let count = segments.list.partition_point(|segment| segment.header.number < point.segment);
            segments.trim = Some(point);
            let gone: Vec<SegmentIndex> = segments.list.drain(..count).collect();
            segments.trimmed.0 += gone.iter().map(|segment| segment.contents.records).sum::<u64>();
            segments.trimmed.1 += gone.iter().map(SegmentIndex::bytes).sum::<u64>();
            gone
        };
        for segment in gone {
            self.let_go(segment);
        }
        self.remove_dead();
        // Until then a crash brings the names back; opening removes them.
        if let Err(error) = self.disk.sync_dir(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "trimmed files may be back after a crash");
        }
        Ok(())
    }

    /// Makes a spare of a segment's file, or has it removed.
    fn let_go(&self, segment: SegmentIndex) {
        let path = self.dir.join(segment.header.number.file_name());
        let wanted = {
            let segments = self.segments.read();
            let next = self.segment_bytes(segments.next_number);
            // Into a file without a footer a write may still land that was given up on.
            segment.sealed && segments.spares.len() < MAX_SPARES && segment.file_bytes * 2 >= next
        };
        let spare = Spare {
            path: Spare::path_of(&self.dir, segment.header.number),
            file: segment.file,
            bytes: segment.file_bytes,
            former: true,
        };
        let kept = wanted && self.disk.rename(&path, &spare.path).is_ok();
        let mut segments = self.segments.write();
        if kept {
            segments.spares.push(spare);
        } else {
            segments.dead.push((path, segment.file_bytes));
        }
    }

    /// Removes files that are not part of the log any more. What cannot be removed now is tried again with the next
    /// trim, and when the log is opened.
    pub(super) fn remove_dead(&self) {
        let dead = std::mem::take(&mut self.segments.write().dead);
        let mut left = Vec::new();
        for (path, bytes) in dead {
            if let Err(error) = self.disk.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "a file that is not needed cannot be removed; tried again with the next trim");
                left.push((path, bytes));
            }
        }
        self.segments.write().dead.extend(left);
    }
}
