//! [`SnapshotFile`]: a finished snapshot whose header and footer are intact. Its chunks are checked as they are read.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::chunk::{Chunk, SealedChunk};
use super::footer::{SnapshotFooter, TAIL_BYTES};
use super::header::{PREFIX_BYTES, SnapshotHeader};
use super::name::SnapshotName;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::record::FormatError;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::tree) enum SnapshotFault {
    /// The system cannot read it.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// Its bytes are not those that were written, or a newer version wrote them.
    #[error("{0}")]
    Format(#[from] FormatError),
}

impl SnapshotFault {
    /// Whether another Tidewire wrote it: then it is left alone.
    pub(in crate::tree) fn is_newer(&self) -> bool {
        matches!(self, Self::Format(FormatError::Version { .. }))
    }
}

/// A snapshot that is there to be read.
pub(in crate::tree) struct SnapshotFile {
    file: Arc<dyn DiskFile>,
    pub(in crate::tree) name: SnapshotName,
    pub(in crate::tree) header: SnapshotHeader,
    pub(in crate::tree) footer: SnapshotFooter,
    /// Bytes of the whole file.
    pub(in crate::tree) bytes: u64,
}

impl SnapshotFile {
    /// Reads header and footer, and checks that they describe this file from its first byte to its last.
    pub(in crate::tree) fn open(
        disk: &dyn Disk,
        dir: &Path,
        name: SnapshotName,
    ) -> Result<Self, SnapshotFault> {
        let file = disk.open(&dir.join(name.file()), OpenMode::Read)?;
        let bytes = file.len()?;
        let prefix = read(file.as_ref(), 0, PREFIX_BYTES, bytes)?;
        let length = SnapshotHeader::length(&prefix)?;
        let header = SnapshotHeader::decode(&read(file.as_ref(), 0, length, bytes)?)?;
        let tail_at = bytes.saturating_sub(TAIL_BYTES as u64);
        let footer_bytes = SnapshotFooter::length(&read(file.as_ref(), tail_at, TAIL_BYTES, bytes)?)?;
        let footer_at = tail_at.checked_sub(footer_bytes as u64).ok_or(FormatError::Short("a snapshot"))?;
        let footer = read(file.as_ref(), footer_at, footer_bytes, bytes)?;
        let footer = SnapshotFooter::decode(&footer, header.incarnation)?;
        let file = Self { file, name, header, footer, bytes };
        file.check(length as u64, footer_at)?;
        Ok(file)
    }

    fn check(&self, first: u64, footer_at: u64) -> Result<(), FormatError> {
        if self.header.number != self.name.number() {
            return Err(FormatError::Field("the file has the name of another snapshot"));
        }
        let (mut at, mut entries) = (first, 0);
        for chunk in &self.footer.chunks {
            if chunk.at != at {
                return Err(FormatError::Field("the chunks of a snapshot do not follow each other"));
            }
            at = at.saturating_add(u64::from(chunk.length));
            entries += u64::from(chunk.entries);
        }
        if at != footer_at || entries != self.footer.entries || self.footer.end < self.header.covered {
            return Err(FormatError::Field("the footer of a snapshot does not describe it"));
        }
        Ok(())
    }

    /// Number of chunks.
    pub(in crate::tree) fn chunks(&self) -> usize {
        self.footer.chunks.len()
    }

    /// Reads a run of chunks with one call, checks and unpacks each, and shows it.
    pub(in crate::tree) fn read(
        &self,
        run: Range<usize>,
        mut visit: impl FnMut(&Chunk) -> Result<(), SnapshotFault>,
    ) -> Result<(), SnapshotFault> {
        let mut chunk = Chunk::default();
        self.read_sealed(run, |sealed, _| {
            sealed.unpack(&mut chunk)?;
            visit(&chunk)
        })
    }

    /// Reads a run of chunks with one call, checks each, and shows it with its bytes.
    pub(super) fn read_sealed(
        &self,
        run: Range<usize>,
        mut visit: impl FnMut(&SealedChunk<'_>, &Bytes) -> Result<(), SnapshotFault>,
    ) -> Result<(), SnapshotFault> {
        let places = self.footer.chunks.get(run.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
        let length = usize::try_from(last.at + u64::from(last.length) - first.at).unwrap_or(usize::MAX);
        let mut rest = Bytes::from(read(self.file.as_ref(), first.at, length, self.bytes)?);
        for (index, place) in run.zip(places) {
            if rest.len() < place.length as usize {
                return Err(FormatError::Short("a chunk of a snapshot").into());
            }
            let bytes = rest.split_to(place.length as usize);
            let sealed = SealedChunk::open(&bytes, self.header.incarnation, index)?;
            if bytes.last_chunk() != Some(&place.crc.to_le_bytes()) || sealed.count() != place.entries {
                return Err(FormatError::Field("a chunk is not the one that the footer names").into());
            }
            visit(&sealed, &bytes)?;
        }
        Ok(())
    }

    /// How many entries a run of chunks has.
    pub(super) fn entries(&self, run: Range<usize>) -> usize {
        let places = self.footer.chunks.get(run).unwrap_or_default();
        places.iter().map(|place| place.entries as usize).sum()
    }
}

/// Reads exactly so many bytes; never asks for memory beyond the length of the file.
fn read(file: &dyn DiskFile, at: u64, length: usize, file_bytes: u64) -> Result<Vec<u8>, SnapshotFault> {
    if at.saturating_add(length as u64) > file_bytes {
        return Err(FormatError::Short("a snapshot").into());
    }
    let mut bytes = vec![0; length];
    if file.read_at(&mut bytes, at)? < length {
        return Err(FormatError::Short("a snapshot").into());
    }
    Ok(bytes)
}
