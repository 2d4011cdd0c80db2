//! [`Scanner`]: the groups of one segment's file from front to back, a window of it in memory at a time.

use std::io;

use bytes::Bytes;

use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::segment::{HEADER_BYTES, SegmentHeader};
use crate::disk::DiskFile;
use crate::record::Group;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 2 * 1024 * 1024;

/// What comes next in a segment.
pub(super) enum Scanned {
    /// A whole group.
    Group(Group),
    /// The bytes to be read end here.
    End,
    /// No group of this segment stands here.
    Broken(String),
}

/// A walk over the groups of a segment. Memory is bounded by its window and the largest group.
pub(super) struct Scanner<'a> {
    file: &'a dyn DiskFile,
    manifest: &'a Manifest,
    seed: u64,
    window: Bytes,
    /// Where the window begins in the file.
    base: u64,
    at: u64,
    end: u64,
}

impl<'a> Scanner<'a> {
    /// A walk over the first `end` bytes of a file, the header's included.
    pub(super) fn new(
        file: &'a dyn DiskFile,
        header: &SegmentHeader,
        manifest: &'a Manifest,
        end: u64,
    ) -> Self {
        let at = end.min(HEADER_BYTES as u64);
        Self { file, manifest, seed: header.seed(), window: Bytes::new(), base: at, at, end }
    }

    /// Where the next group would start.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// The next group.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Scanned> {
        while self.at < self.end {
            let inside = usize::try_from(self.at - self.base).expect("a window fits memory");
            let left = self.end - self.at;
            match parse_group(&self.window, inside, self.seed, self.manifest) {
                Parsed::Group(group, length) => {
                    self.at += length as u64;
                    return Ok(Scanned::Group(group));
                }
                Parsed::Short(needed) if needed as u64 > left => {
                    return Ok(Scanned::Broken("a group is cut short".to_owned()));
                }
                Parsed::Short(needed) => self.fill(needed, left)?,
                Parsed::Damaged(error) => return Ok(Scanned::Broken(error.to_string())),
            }
        }
        Ok(Scanned::End)
    }

    fn fill(&mut self, needed: usize, left: u64) -> io::Result<()> {
        let wanted = needed.max(WINDOW_BYTES).min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut bytes = vec![0; wanted];
        let read = self.file.read_at(&mut bytes, self.at)?;
        if read < wanted {
            // It was longer a moment ago.
            self.end = self.at + read as u64;
            bytes.truncate(read);
        }
        (self.window, self.base) = (Bytes::from(bytes), self.at);
        Ok(())
    }
}
