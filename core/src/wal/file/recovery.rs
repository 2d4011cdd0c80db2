//! Opening a log: finds the chain of segments, reads what is asked for, and tells a torn tail from damage.
//!
//! Three things can be wrong, and each has its own outcome. A torn tail is what a crash leaves of the group that was
//! being written: it is cut. Damage before that refuses the log, with the place. An I/O error is reported as one.
//!
//! Of a sealed segment whose groups nobody asks for, only the footer is read. A footer that is missing or damaged costs
//! the reading of its segment, nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::{Chain, Headed};
use super::footer::{FOOTER_FIXED_BYTES, decode_footer, footer_length};
use super::index::{Contents, SegmentIndex};
use super::manifest::Manifest;
use super::scan::{Scanned, Scanner};
use super::segment::SegmentNumber;
use super::spare::Spare;
use super::tail::Tail;
use super::trim_point::TrimPoint;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{GroupSequence, Lsn};
use crate::record::{Frame, Group};

/// Who sees the groups of the log that are asked for, in order.
pub(super) type Visitor<'a> = &'a mut dyn FnMut(&Arc<Group>);

/// What recovery found.
pub(super) struct Recovered {
    pub(super) segments: Vec<SegmentIndex>,
    pub(super) next_group: GroupSequence,
    /// The highest number of any segment file, in the chain or not.
    pub(super) highest: Option<SegmentNumber>,
    pub(super) spares: Vec<Spare>,
    /// Files that are not part of the log, to be removed.
    pub(super) dead: Vec<PathBuf>,
}

pub(super) struct Recovery<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dir: &'a Path,
    pub(super) manifest: &'a Manifest,
    pub(super) trim: Option<&'a TrimPoint>,
    /// Groups that end here or below are not shown.
    pub(super) from: Lsn,
    /// How segments are opened: those of a log at rest are only read.
    pub(super) mode: OpenMode,
}

impl Recovery<'_> {
    pub(super) fn run(&self, visit: Visitor<'_>) -> Result<Recovered, StorageError> {
        let Chain { segments: chain, highest, spares, dead } = self.find_chain()?;
        let mut next_group = chain.first().map_or(GroupSequence::ZERO, |(header, _)| header.first_group);
        let mut segments = Vec::with_capacity(chain.len());
        for (at, (header, file)) in chain.iter().enumerate() {
            let next = chain.get(at + 1);
            let length = file.len().map_err(|error| self.io(header.number, error))?;
            let mut segment = SegmentIndex::new(*header, file.clone(), length);
            let footer = match next {
                Some(next) => self.footer(&segment, next)?,
                None => None,
            };
            segment.sealed = footer.is_some();
            match footer {
                Some(contents) if contents.next_lsn <= self.from => {
                    next_group = contents.next_group;
                    segment.contents = Arc::new(contents);
                }
                _ => {
                    let valid = next.and_then(|(next, _)| next.before).map(|(_, valid)| valid);
                    self.scan(&mut segment, valid, &mut next_group, visit)?;
                }
            }
            segments.push(segment);
        }
        Ok(Recovered { segments, next_group, highest, spares, dead })
    }

    pub(super) fn path(&self, number: SegmentNumber) -> PathBuf {
        self.dir.join(number.file_name())
    }

    pub(super) fn io(&self, number: SegmentNumber, error: std::io::Error) -> StorageError {
        let path = self.path(number);
        StorageError::new(StorageErrorKind::Io, format!("{} cannot be read", path.display()))
            .with_source(error)
    }

    pub(super) fn damaged(&self, number: SegmentNumber, at: u64, what: &str) -> StorageError {
        let path = self.path(number);
        StorageError::new(
            StorageErrorKind::Corrupt,
            format!(
                "{} is damaged at byte {at}: {what}; acknowledged writes are behind it, so nothing is cut: put the tree's directory back from a copy",
                path.display()
            ),
        )
    }

    /// The footer of a sealed segment, if it is there, whole, and says what the next segment says.
    fn footer(&self, segment: &SegmentIndex, next: &Headed) -> Result<Option<Contents>, StorageError> {
        let Some((_, at)) = next.0.before else { return Ok(None) };
        let read = |at: u64, length: usize| -> Result<Vec<u8>, StorageError> {
            let mut bytes = vec![0; length];
            let read = segment.file.read_at(&mut bytes, at);
            let read = read.map_err(|error| self.io(segment.header.number, error))?;
            bytes.truncate(read);
            Ok(bytes)
        };
        let left = usize::try_from(segment.file_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let length = match footer_length(&read(at, FOOTER_FIXED_BYTES.min(left))?) {
            Ok(length) if length <= left => length,
            _ => return Ok(None),
        };
        let decoded = decode_footer(&read(at, length)?, at, segment.header.seed());
        Ok(decoded.ok().filter(|contents| {
            (contents.next_lsn, contents.next_group) == (next.0.first_lsn, next.0.first_group)
        }))
    }

    fn scan(
        &self,
        segment: &mut SegmentIndex,
        valid: Option<u64>,
        next_group: &mut GroupSequence,
        visit: Visitor<'_>,
    ) -> Result<(), StorageError> {
        let number = segment.header.number;
        let length = segment.file_bytes;
        if valid.is_some_and(|valid| valid > length) {
            return Err(self.damaged(number, length, "the file is shorter than the segment after it says"));
        }
        let file = segment.file.clone();
        let mut scanner =
            Scanner::new(file.as_ref(), &segment.header, self.manifest, valid.unwrap_or(length));
        let what = loop {
            match scanner.next().map_err(|error| self.io(number, error))? {
                Scanned::Group(group) if group.sequence() == *next_group => {
                    let group = Arc::new(group);
                    segment.push(&group);
                    if group.next_lsn() > self.from {
                        visit(&group);
                    }
                    *next_group = next_group.next();
                }
                Scanned::Group(group) => {
                    break format!("group {} stands where {next_group} belongs", group.sequence());
                }
                Scanned::End => return Ok(()),
                Scanned::Broken(what) => break what,
            }
        };
        if valid.is_some() {
            return Err(self.damaged(number, segment.end(), &what));
        }
        self.look_behind(segment, *next_group, &what)
    }

    /// Tells what stands behind the last group: nothing, a torn tail, or damage with later groups behind it.
    fn look_behind(
        &self,
        segment: &mut SegmentIndex,
        next_group: GroupSequence,
        what: &str,
    ) -> Result<(), StorageError> {
        let (number, at, seed) = (segment.header.number, segment.end(), segment.header.seed());
        let later = |frame: &Frame| frame.sequence > next_group;
        let tail = Tail::look(segment.file.as_ref(), (at, segment.file_bytes), seed, later);
        let tail = tail.map_err(|error| self.io(number, error))?;
        if tail.frame.is_some() {
            return Err(self.damaged(number, at, what));
        }
        if tail.bytes() == 0 {
            return Ok(());
        }
        if segment.header.recycled {
            // Its frames have another seed, and what this log left there has no higher number than the next group.
            tracing::info!(
                segment = number.0,
                at,
                bytes = tail.bytes(),
                "former bytes behind the last group"
            );
            return Ok(());
        }
        tracing::warn!(segment = number.0, at, bytes = tail.bytes(), what, "torn tail cut");
        self.cut(segment, &tail).map_err(|error| {
            let path = self.path(number);
            StorageError::new(
                StorageErrorKind::Io,
                format!("the torn tail of {} cannot be cut", path.display()),
            )
            .with_source(error)
        })
    }

    /// Removes a torn tail, so that none of it can ever pass for a group. Room that was filled ahead stays.
    fn cut(&self, segment: &mut SegmentIndex, tail: &Tail) -> std::io::Result<()> {
        if tail.written < segment.file_bytes {
            return tail.blank(segment.file.as_ref());
        }
        segment.file.set_len(tail.from)?;
        segment.file_bytes = tail.from;
        segment.file.sync_data()
    }
}

/// The first bytes of a file, up to `length`.
pub(super) fn read_all(file: &dyn DiskFile, length: u64) -> std::io::Result<Vec<u8>> {
    let length =
        usize::try_from(length).map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
