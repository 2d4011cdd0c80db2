//! The reading side of [`FileStorage`]: whole groups out of the segments, checksums verified.

use std::sync::Arc;

use bytes::Bytes;

use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::storage::{FileStorage, failed};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Group;

impl FileStorage {
    pub(super) fn read_blocking(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        let segment = {
            let segments = self.segments.read();
            let first = segments.list.first().map_or(Lsn::ZERO, |first| first.header.first_lsn);
            if from < first {
                return Err(trimmed(from, first));
            }
            let at = segments.list.partition_point(|segment| segment.next_lsn() <= from);
            match segments.list.get(at) {
                Some(segment) => segment.clone(),
                None => return Ok(Vec::new()),
            }
        };
        let read = self.read_segment(&segment, from, limit);
        if read.is_err() {
            // Its file may have been trimmed and written over meanwhile.
            let first = self.segments.read().list.first().map(|first| first.header);
            if let Some(first) = first.filter(|first| first.number > segment.header.number) {
                return Err(trimmed(from, first.first_lsn));
            }
        }
        read
    }

    fn read_segment(
        &self,
        segment: &SegmentIndex,
        from: Lsn,
        limit: usize,
    ) -> Result<Vec<Arc<Group>>, StorageError> {
        let manifest = self.manifest();
        let mut at = segment.position_of(from);
        let mut wanted = limit.max(4 * 1024);
        loop {
            let bytes = self.read_bytes(segment, at, wanted)?;
            let (groups, used, needed) = self.groups_in(segment, &manifest, at, &bytes, from)?;
            if !groups.is_empty() {
                return Ok(groups);
            }
            if used == 0 && needed <= wanted {
                return Err(self.damaged_at(segment, at, "a group is cut short"));
            }
            at += used as u64;
            wanted = wanted.max(needed);
            if at >= segment.end() {
                return Ok(Vec::new());
            }
        }
    }

    fn read_bytes(&self, segment: &SegmentIndex, at: u64, wanted: usize) -> Result<Bytes, StorageError> {
        let left = usize::try_from(segment.end() - at).unwrap_or(usize::MAX);
        let mut bytes = vec![0; wanted.min(left)];
        let read = segment
            .file
            .read_at(&mut bytes, at)
            .map_err(|error| failed(format!("log of {} cannot be read", self.dir.display()), error))?;
        if read < bytes.len() {
            return Err(self.damaged_at(segment, at + read as u64, "the file has become shorter"));
        }
        Ok(Bytes::from(bytes))
    }

    /// The whole groups in `bytes` that reach beyond `from`; how many bytes were used; how many the next group needs.
    fn groups_in(
        &self,
        segment: &SegmentIndex,
        manifest: &Manifest,
        base: u64,
        bytes: &Bytes,
        from: Lsn,
    ) -> Result<(Vec<Arc<Group>>, usize, usize), StorageError> {
        let mut groups = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match parse_group(&bytes.slice(at..), segment.header.seed(), manifest) {
                Parsed::Group(group, length) => {
                    at += length;
                    if group.next_lsn() > from {
                        groups.push(Arc::new(group));
                    }
                }
                Parsed::Short(needed) => return Ok((groups, at, needed)),
                Parsed::Damaged(error) => {
                    return Err(self.damaged_at(segment, base + at as u64, &error.to_string()));
                }
            }
        }
        Ok((groups, at, 0))
    }

    fn damaged_at(&self, segment: &SegmentIndex, at: u64, what: &str) -> StorageError {
        let path = self.dir.join(segment.header.number.file_name());
        StorageError::new(
            StorageErrorKind::Corrupt,
            format!(
                "{} is damaged at byte {at}: {what}; put the tree's directory back from a copy",
                path.display()
            ),
        )
    }
}

fn trimmed(from: Lsn, first: Lsn) -> StorageError {
    StorageError::new(
        StorageErrorKind::Trimmed,
        format!("the log begins at {first}, and {from} was asked for: take a snapshot and go on from there"),
    )
}
