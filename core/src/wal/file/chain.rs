//! Which files are the log: the chain of segments from the newest back to the trim point, and what lies beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::filling::Filling;
use super::recovery::Recovery;
use super::segment::{HEADER_BYTES, SegmentHeader, SegmentNumber};
use super::spare::{MAX_SPARES, Spare};
use super::tail::Tail;
use crate::disk::{DiskFile, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{GroupSequence, Lsn};

/// A segment file with a header that is its own.
pub(super) type Headed = (SegmentHeader, Arc<dyn DiskFile>);

/// What a log's directory holds.
pub(super) struct Chain {
    /// The segments of the log, in order.
    pub(super) segments: Vec<Headed>,
    /// The highest number of any segment file, in the chain or not.
    pub(super) highest: Option<SegmentNumber>,
    pub(super) spares: Vec<Spare>,
    /// Files that are not part of the log: trimmed before a crash, or never finished.
    pub(super) dead: Vec<PathBuf>,
}

impl Recovery<'_> {
    pub(super) fn find_chain(&self) -> Result<Chain, StorageError> {
        let names = self.disk.list(self.dir).map_err(|error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be listed", self.dir.display()))
                .with_source(error)
        })?;
        let numbers: Vec<SegmentNumber> =
            names.iter().filter_map(|name| SegmentNumber::from_file_name(name)).collect();
        let lowest = self.trim.map_or(SegmentNumber(0), |trim| trim.segment);
        let mut dead: Vec<PathBuf> =
            numbers.iter().filter(|number| **number < lowest).map(|number| self.path(*number)).collect();
        let mut headers = BTreeMap::new();
        for number in numbers.iter().copied().filter(|number| *number >= lowest) {
            headers.insert(number, self.header(number)?);
        }
        let segments = self.chain(&mut headers)?;
        for number in headers.into_keys() {
            // Of a file behind the chain this was seen already.
            if self.first_frame(number)?.is_none() {
                dead.push(self.path(number));
            }
        }
        let mut spares = Spare::find(self.disk, self.dir, &names).map_err(|error| {
            StorageError::new(StorageErrorKind::Io, "a spare segment cannot be opened").with_source(error)
        })?;
        let partial = names.iter().filter(|name| Filling::left_behind(name));
        dead.extend(partial.map(|name| self.dir.join(name)));
        dead.extend(spares.drain(spares.len().min(MAX_SPARES)..).map(|spare| spare.path));
        Ok(Chain { segments, highest: numbers.last().copied(), spares, dead })
    }

    pub(super) fn header(&self, number: SegmentNumber) -> Result<Option<Headed>, StorageError> {
        let io = |error| self.io(number, error);
        let file = self.disk.open(&self.path(number), self.mode).map_err(io)?;
        let mut head = [0; HEADER_BYTES];
        let read = file.read_at(&mut head, 0).map_err(io)?;
        let header = SegmentHeader::decode(&head[..read])
            .ok()
            .filter(|header| header.incarnation == self.manifest.incarnation && header.number == number);
        Ok(header.map(|header| (header, file)))
    }

    /// Takes the segments of the log out of all that have a header: from the newest backwards, as each names the one
    /// before it, to the first that is retained.
    fn chain(
        &self,
        headers: &mut BTreeMap<SegmentNumber, Option<Headed>>,
    ) -> Result<Vec<Headed>, StorageError> {
        // A newest file without a header is one whose creation a crash cut short: its header is durable before its
        // first group is acknowledged.
        let newest = headers.iter().rev().find(|(_, header)| header.is_some()).map(|(number, _)| *number);
        for number in headers.keys().rev().take_while(|number| Some(**number) != newest) {
            if let Some(at) = self.first_frame(*number)? {
                let said = format!("its header is damaged, and a group stands at byte {at}");
                return Err(self.damaged(*number, 0, &said));
            }
        }
        let mut chain: Vec<Headed> = Vec::new();
        let mut wanted = newest.or(self.trim.map(|trim| trim.segment));
        while let Some(number) = wanted {
            let Some(Some((header, file))) = headers.remove(&number) else {
                return Err(self.damaged(
                    number,
                    0,
                    "the segment or its header is missing, and it was not trimmed",
                ));
            };
            wanted = match self.trim {
                Some(trim) if trim.segment == number => {
                    if !trim.fits(&header) {
                        return Err(self.damaged(
                            number,
                            0,
                            "the log was trimmed to another segment than this",
                        ));
                    }
                    None
                }
                // The walk must arrive at the first retained segment, not beside it.
                Some(trim) => Some(
                    header
                        .before
                        .map(|(before, _)| before)
                        .filter(|before| *before > trim.segment)
                        .unwrap_or(trim.segment),
                ),
                None => header.before.map(|(before, _)| before),
            };
            chain.push((header, file));
        }
        chain.reverse();
        self.check_joints(&chain)?;
        Ok(chain)
    }

    /// Every segment must continue the one before it.
    fn check_joints(&self, chain: &[Headed]) -> Result<(), StorageError> {
        let loose = chain
            .windows(2)
            .find(|pair| pair[1].0.before.is_none_or(|(before, _)| before != pair[0].0.number));
        match loose {
            Some(pair) => {
                let said = format!("it does not continue segment {}", pair[0].0.number.0);
                Err(self.damaged(pair[1].0.number, 0, &said))
            }
            None => Ok(()),
        }
    }

    /// Where the first intact frame of a segment stands in its file, whatever its header.
    pub(super) fn first_frame(&self, number: SegmentNumber) -> Result<Option<u64>, StorageError> {
        let io = |error| self.io(number, error);
        let file = self.disk.open(&self.path(number), OpenMode::Read).map_err(io)?;
        let length = file.len().map_err(io)?;
        let tail = Tail::look(file.as_ref(), (0, length), self.seed_of(number), |_| true);
        Ok(tail.map_err(io)?.frame)
    }

    /// What the frames of a segment are seeded with, whatever its header says.
    pub(super) fn seed_of(&self, number: SegmentNumber) -> u64 {
        let header = SegmentHeader {
            incarnation: self.manifest.incarnation,
            number,
            first_lsn: Lsn::ZERO,
            first_group: GroupSequence::ZERO,
            before: None,
            recycled: false,
        };
        header.seed()
    }
}
