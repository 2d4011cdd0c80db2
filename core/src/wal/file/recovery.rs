//! Opening a log: finds the chain of segments, reads every group once, and tells a torn tail from damage.
//!
//! Three things can be wrong, and each has its own outcome. A torn tail is what a crash leaves of the group that was
//! being written: it is cut. Damage before that refuses the log, with the place. An I/O error is reported as one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::parse::{Parsed, has_later_group, parse_group};
use super::segment::{HEADER_BYTES, SegmentHeader, SegmentNumber};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{GroupSequence, Lsn};
use crate::record::Group;

/// Who sees the groups of the log that are asked for, in order.
pub(super) type Visitor<'a> = &'a mut dyn FnMut(&Arc<Group>);

/// What recovery found.
pub(super) struct Recovered {
    pub(super) segments: Vec<SegmentIndex>,
    pub(super) next_group: GroupSequence,
    /// The highest number of any segment file, in the chain or not.
    pub(super) highest: Option<SegmentNumber>,
}

pub(super) struct Recovery<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dir: &'a Path,
    pub(super) manifest: &'a Manifest,
    /// Groups that end here or below are not shown.
    pub(super) from: Lsn,
}

impl Recovery<'_> {
    pub(super) fn run(&self, visit: Visitor<'_>) -> Result<Recovered, StorageError> {
        let headers = self.headers()?;
        let highest = headers.keys().next_back().copied();
        let chain = self.chain(headers)?;
        let mut next_group = chain.first().map_or(GroupSequence::ZERO, |(header, _)| header.first_group);
        let mut segments = Vec::with_capacity(chain.len());
        for (at, (header, file)) in chain.iter().enumerate() {
            let valid = chain.get(at + 1).and_then(|(next, _)| next.before).map(|(_, valid)| valid);
            let mut segment = SegmentIndex::new(*header, file.clone());
            self.scan(&mut segment, valid, &mut next_group, visit)?;
            segments.push(segment);
        }
        Ok(Recovered { segments, next_group, highest })
    }

    fn path(&self, number: SegmentNumber) -> PathBuf {
        self.dir.join(number.file_name())
    }

    fn io(&self, number: SegmentNumber, error: std::io::Error) -> StorageError {
        let path = self.path(number);
        StorageError::new(StorageErrorKind::Io, format!("{} cannot be read", path.display()))
            .with_source(error)
    }

    fn damaged(&self, number: SegmentNumber, at: u64, what: &str) -> StorageError {
        let path = self.path(number);
        StorageError::new(
            StorageErrorKind::Corrupt,
            format!(
                "{} is damaged at byte {at}: {what}; acknowledged writes are behind it, so nothing is cut: put the tree's directory back from a copy",
                path.display()
            ),
        )
    }

    /// Every segment file with its header, if that is readable.
    #[expect(clippy::type_complexity, reason = "used once, right below")]
    fn headers(
        &self,
    ) -> Result<BTreeMap<SegmentNumber, Option<(SegmentHeader, Arc<dyn DiskFile>)>>, StorageError> {
        let list = self.disk.list(self.dir).map_err(|error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be listed", self.dir.display()))
                .with_source(error)
        })?;
        let mut headers = BTreeMap::new();
        for number in list.iter().filter_map(|name| SegmentNumber::from_file_name(name)) {
            let io = |error| self.io(number, error);
            let file = self.disk.open(&self.path(number), OpenMode::Write).map_err(io)?;
            let mut head = [0; HEADER_BYTES];
            let read = file.read_at(&mut head, 0).map_err(io)?;
            let header = SegmentHeader::decode(&head[..read])
                .ok()
                .filter(|header| header.incarnation == self.manifest.incarnation && header.number == number);
            headers.insert(number, header.map(|header| (header, file)));
        }
        Ok(headers)
    }

    /// The segments of the log in order: from the newest backwards, as each names the one before it.
    #[expect(clippy::type_complexity, reason = "used once, right above")]
    fn chain(
        &self,
        mut headers: BTreeMap<SegmentNumber, Option<(SegmentHeader, Arc<dyn DiskFile>)>>,
    ) -> Result<Vec<(SegmentHeader, Arc<dyn DiskFile>)>, StorageError> {
        // A newest file without a header is one whose creation a crash cut short: its header is durable before its
        // first group is acknowledged.
        let mut chain: Vec<(SegmentHeader, Arc<dyn DiskFile>)> = Vec::new();
        let newest = headers.iter().rev().find(|(_, header)| header.is_some()).map(|(number, _)| *number);
        for number in headers.keys().rev().take_while(|number| Some(**number) != newest) {
            self.refuse_headless_with_groups(*number)?;
        }
        let mut wanted = newest;
        while let Some(number) = wanted {
            let Some(Some((header, file))) = headers.remove(&number) else {
                return Err(self.damaged(
                    number,
                    0,
                    "the segment or its header is missing, and a later one continues it",
                ));
            };
            wanted = header.before.map(|(before, _)| before);
            chain.push((header, file));
        }
        chain.reverse();
        Ok(chain)
    }

    fn refuse_headless_with_groups(&self, number: SegmentNumber) -> Result<(), StorageError> {
        let io = |error| self.io(number, error);
        let file = self.disk.open(&self.path(number), OpenMode::Read).map_err(io)?;
        let bytes = read_all(file.as_ref()).map_err(io)?;
        let seed = SegmentHeader {
            incarnation: self.manifest.incarnation,
            number,
            first_lsn: Lsn::ZERO,
            first_group: GroupSequence::ZERO,
            before: None,
        }
        .seed();
        let starts = memchr::memmem::find_iter(&bytes, b"TWF1");
        let mut groups = starts.filter(|at| crate::record::Frame::parse(&bytes[*at..], seed).is_ok());
        match groups.next() {
            Some(at) => Err(self.damaged(
                number,
                0,
                &format!("its header is damaged, and a group stands at byte {at}"),
            )),
            None => Ok(()),
        }
    }

    fn scan(
        &self,
        segment: &mut SegmentIndex,
        valid: Option<u64>,
        next_group: &mut GroupSequence,
        visit: Visitor<'_>,
    ) -> Result<(), StorageError> {
        let number = segment.header.number;
        let seed = segment.header.seed();
        let bytes = Bytes::from(read_all(segment.file.as_ref()).map_err(|error| self.io(number, error))?);
        let end = valid.map_or(bytes.len(), |valid| usize::try_from(valid).unwrap_or(usize::MAX));
        if end > bytes.len() {
            return Err(self.damaged(
                number,
                bytes.len() as u64,
                "the file is shorter than the segment after it says",
            ));
        }
        let mut at = HEADER_BYTES.min(end);
        while at < end {
            let what = match parse_group(&bytes.slice(at..end), seed, self.manifest) {
                Parsed::Group(group, length) if group.sequence() == *next_group => {
                    let group = Arc::new(group);
                    segment.push(&group);
                    if group.next_lsn() > self.from {
                        visit(&group);
                    }
                    *next_group = next_group.next();
                    at += length;
                    continue;
                }
                Parsed::Group(group, _) => {
                    format!("group {} stands where {next_group} belongs", group.sequence())
                }
                Parsed::Short(_) => "a group is cut short".to_owned(),
                Parsed::Damaged(error) => error.to_string(),
            };
            if valid.is_some() || has_later_group(&bytes[at..end], seed, *next_group) {
                return Err(self.damaged(number, at as u64, &what));
            }
            tracing::warn!(segment = number.0, at, bytes = end - at, what, "torn tail cut");
            break;
        }
        if valid.is_none() && bytes.len() > at {
            self.cut(segment, at as u64)?;
        }
        Ok(())
    }

    /// Removes a torn tail, so that none of it can ever pass for a group.
    fn cut(&self, segment: &SegmentIndex, at: u64) -> Result<(), StorageError> {
        let cut = segment.file.set_len(at).and_then(|()| segment.file.sync_data());
        cut.map_err(|error| {
            let path = self.path(segment.header.number);
            StorageError::new(
                StorageErrorKind::Io,
                format!("the torn tail of {} cannot be cut", path.display()),
            )
            .with_source(error)
        })
    }
}

fn read_all(file: &dyn DiskFile) -> std::io::Result<Vec<u8>> {
    let length =
        usize::try_from(file.len()?).map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
