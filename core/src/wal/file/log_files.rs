//! [`LogFiles`]: a log at rest, looked at without opening it. Nothing is written.
//!
//! Where opening walks the segments from the newest backwards and refuses a log that is not whole, this walks forwards,
//! so that it can say how far a damaged log reads, and what lies behind that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::chain::Headed;
use super::checkup::{Checkup, Damage, Lost, OriginRange, SegmentReport};
use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::recovery::{Recovery, read_all};
use super::scan::{Scanned, Scanner};
use super::segment::SegmentNumber;
use super::tail::Tail;
use super::trim_point::TrimPoint;
use crate::disk::{Disk, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Frame;

/// How far a check is: bytes read, and bytes in all.
pub type CheckProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// The files of a log that nobody has open.
pub struct LogFiles {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    manifest: Manifest,
    trim: Option<TrimPoint>,
}

impl std::fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFiles").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Segments in the order of the log, as far as they follow each other, and those that nothing leads to.
pub(super) struct Walk {
    pub(super) segments: Vec<Headed>,
    pub(super) beyond: Vec<SegmentNumber>,
}

/// What reading one segment came to.
enum Read {
    Whole,
    /// A crash left this many bytes of a group that was never acknowledged, or a former use of the file did.
    Tail(u64),
    Damaged(u64, String),
}

impl LogFiles {
    /// Looks at the directory of a log.
    ///
    /// # Errors
    /// `Corrupt` when it holds no log, or the small files that say whose it is are damaged.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, StorageError> {
        let manifest = Manifest::load(disk.as_ref(), dir)?.ok_or_else(|| {
            let said = format!(
                "{} holds no log: it has no MANIFEST; put the directory of this tree back from a copy",
                dir.display()
            );
            StorageError::new(StorageErrorKind::Corrupt, said)
        })?;
        let trim = TrimPoint::load(disk.as_ref(), dir, manifest.incarnation)?;
        Ok(Self { disk, dir: dir.to_owned(), manifest, trim })
    }

    /// What the log says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// From where on the log is retained; none if it was never trimmed.
    pub fn trimmed_to(&self) -> Option<Lsn> {
        self.trim.as_ref().map(|trim| trim.first_lsn)
    }

    pub(super) fn recovery(&self) -> Recovery<'_> {
        Recovery {
            disk: self.disk.as_ref(),
            dir: &self.dir,
            manifest: &self.manifest,
            trim: self.trim.as_ref(),
            from: Lsn::ZERO,
            mode: OpenMode::Read,
        }
    }

    /// Reads every group, checksums included, up to the first damage.
    ///
    /// # Errors
    /// `Io` when a file cannot be read.
    pub fn check(&self, progress: CheckProgress<'_>) -> Result<Checkup, StorageError> {
        let walk = self.walk()?;
        let total = self.length_of(&walk)?;
        let (mut checkup, mut done) = (Checkup::default(), 0);
        for (at, (header, file)) in walk.segments.iter().enumerate() {
            let length = file.len().map_err(|error| self.recovery().io(header.number, error))?;
            let mut segment = SegmentIndex::new(*header, file.clone(), length);
            let next = walk.segments.get(at + 1);
            let valid = next.and_then(|(next, _)| next.before).map(|(_, valid)| valid);
            let read = self.read_segment(&mut segment, valid, &mut |bytes| progress(done + bytes, total))?;
            done += length;
            checkup.segments.push(self.report_of(&segment, next.is_some()));
            match read {
                Read::Whole => {}
                Read::Tail(bytes) => checkup.tail_bytes = bytes,
                Read::Damaged(place, what) => {
                    let lost = self.lost_behind(&walk, at, place)?;
                    checkup.damage = Some(self.damage(header.number, place, segment.next_lsn(), what, lost));
                    return Ok(checkup);
                }
            }
        }
        if let Some(number) = walk.beyond.first() {
            let end = checkup.segments.last().map_or(Lsn::ZERO, |last| last.next_lsn);
            let what = "what leads from the segments before it to this one is missing or damaged".to_owned();
            let lost = self.lost_behind(&walk, walk.segments.len(), 0)?;
            checkup.damage = Some(self.damage(*number, 0, end, what, lost));
        }
        Ok(checkup)
    }

    fn damage(&self, number: SegmentNumber, at: u64, end: Lsn, what: String, lost: Lost) -> Damage {
        Damage { segment: number, file: self.recovery().path(number), at, what, end, lost }
    }

    fn length_of(&self, walk: &Walk) -> Result<u64, StorageError> {
        let lengths = walk
            .segments
            .iter()
            .map(|(header, file)| file.len().map_err(|error| self.recovery().io(header.number, error)));
        lengths.sum()
    }

    /// Follows the segments from the first that is retained.
    pub(super) fn walk(&self) -> Result<Walk, StorageError> {
        let recovery = self.recovery();
        let names = self.disk.list(&self.dir).map_err(|error| {
            let said = format!("{} cannot be listed", self.dir.display());
            StorageError::new(StorageErrorKind::Io, said).with_source(error)
        })?;
        let lowest = self.trim.as_ref().map_or(SegmentNumber(0), |trim| trim.segment);
        let numbers = names.iter().filter_map(|name| SegmentNumber::from_file_name(name));
        let numbers: Vec<SegmentNumber> = numbers.filter(|number| *number >= lowest).collect();
        let mut headed = BTreeMap::new();
        for number in &numbers {
            if let Some(found) = recovery.header(*number)? {
                headed.insert(*number, found);
            }
        }
        let first = match &self.trim {
            Some(trim) => headed.get(&trim.segment).filter(|(header, _)| trim.fits(header)),
            None => headed.values().find(|(header, _)| header.before.is_none()),
        };
        let mut at = first.map(|(header, _)| header.number);
        let mut segments = Vec::new();
        while let Some(found) = at.and_then(|number| headed.remove(&number)) {
            // A segment that was begun and given up on has the same one before it as the one that was begun after it.
            let follows =
                |(next, _): &&Headed| next.before.is_some_and(|(before, _)| before == found.0.number);
            at = headed.values().rev().find(follows).map(|(next, _)| next.number);
            segments.push(found);
        }
        let known = |number: &&SegmentNumber| segments.iter().any(|(header, _)| header.number == **number);
        let mut beyond = Vec::new();
        for number in numbers.iter().filter(|number| !known(number)) {
            if recovery.first_frame(*number)?.is_some() {
                beyond.push(*number);
            }
        }
        Ok(Walk { segments, beyond })
    }

    fn read_segment(
        &self,
        segment: &mut SegmentIndex,
        valid: Option<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Read, StorageError> {
        let (number, length) = (segment.header.number, segment.file_bytes);
        if valid.is_some_and(|valid| valid > length) {
            return Ok(Read::Damaged(
                length,
                "the file is shorter than the segment after it says".to_owned(),
            ));
        }
        let io = |error| self.recovery().io(number, error);
        let file = segment.file.clone();
        let mut scanner =
            Scanner::new(file.as_ref(), &segment.header, &self.manifest, valid.unwrap_or(length));
        let mut told = 0;
        let what = loop {
            let expected = segment.contents.next_group;
            match scanner.next().map_err(io)? {
                Scanned::Group(group) if group.sequence() == expected => {
                    segment.push(&group);
                    if scanner.position() - told > 4 << 20 {
                        told = scanner.position();
                        progress(told);
                    }
                }
                Scanned::Group(group) => {
                    break format!("group {} stands where {expected} belongs", group.sequence());
                }
                Scanned::End => {
                    progress(length);
                    return Ok(Read::Whole);
                }
                Scanned::Broken(what) => break what,
            }
        };
        let (at, seed, expected) = (segment.end(), segment.header.seed(), segment.contents.next_group);
        if valid.is_some() {
            return Ok(Read::Damaged(at, what));
        }
        let tail = Tail::look(file.as_ref(), (at, length), seed, |frame| frame.sequence > expected);
        let tail = tail.map_err(io)?;
        if tail.frame.is_some() {
            return Ok(Read::Damaged(at, what));
        }
        progress(length);
        Ok(Read::Tail(tail.bytes()))
    }

    fn report_of(&self, segment: &SegmentIndex, complete: bool) -> SegmentReport {
        let contents = &segment.contents;
        let ranges = contents.extents.iter().map(|((origin, partition), extent)| {
            let name = match self.manifest.origins.get(origin) {
                Some((name, _)) => name.to_string(),
                None if *origin == self.manifest.cluster.tag() => self.manifest.cluster.to_string(),
                None => format!("origin {:016x}", origin.get()),
            };
            OriginRange { origin: name, partition: *partition, first: extent.first, end: extent.end }
        });
        SegmentReport {
            file: self.recovery().path(segment.header.number),
            first_lsn: segment.header.first_lsn,
            next_lsn: contents.next_lsn,
            groups: contents.next_group.get() - segment.header.first_group.get(),
            records: contents.records,
            bytes: segment.bytes(),
            file_bytes: segment.file_bytes,
            complete,
            recycled: segment.header.recycled,
            last_hlc: contents.last_hlc,
            ranges: ranges.collect(),
        }
    }

    /// Counts what can still be read behind a damage: in the rest of its segment and in those that follow. At least so
    /// much is lost if the log is cut there.
    fn lost_behind(&self, walk: &Walk, from: usize, at: u64) -> Result<Lost, StorageError> {
        let mut lost = Lost::default();
        let chained = walk.segments.iter().skip(from).map(|(header, _)| header.number);
        for (order, number) in chained.chain(walk.beyond.iter().copied()).enumerate() {
            let recovery = self.recovery();
            let io = |error| recovery.io(number, error);
            let file = self.disk.open(&recovery.path(number), OpenMode::Read).map_err(io)?;
            let bytes = read_all(file.as_ref(), file.len().map_err(io)?).map_err(io)?;
            let bytes = Bytes::from(bytes);
            let start =
                if order == 0 { usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len()) } else { 0 };
            let seed = recovery.seed_of(number);
            let mut reached = start;
            for found in memchr::memmem::find_iter(&bytes[start..], b"TWF1") {
                let place = start + found;
                if place < reached || Frame::parse(&bytes[place..], seed).is_err() {
                    continue;
                }
                if let Parsed::Group(group, length) = parse_group(&bytes, place, seed, &self.manifest) {
                    lost.groups += 1;
                    lost.records += group.records();
                    reached = place + length;
                }
            }
            lost.bytes += (bytes.len() - start) as u64;
        }
        Ok(lost)
    }
}
