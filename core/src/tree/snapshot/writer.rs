//! [`SnapshotWriter`]: one snapshot on its way into a file. Blocks; leaves a temporary name behind if it is given up.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunk::ChunkBuilder;
use super::footer::{ChunkPlace, SnapshotFooter};
use super::header::SnapshotHeader;
use super::name::SnapshotName;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::id::{Incarnation, Lsn};

/// Writes the chunks of a snapshot one after the other.
pub(in crate::tree) struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    dir: PathBuf,
    name: SnapshotName,
    incarnation: Incarnation,
    /// Bytes of entries from which on a chunk is closed.
    chunk_bytes: usize,
    /// Where the slice will lie.
    at: u64,
    slice: Vec<u8>,
    chunk: ChunkBuilder,
    footer: SnapshotFooter,
}

impl SnapshotWriter {
    /// Begins a file under a temporary name.
    pub(in crate::tree) fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        header: &SnapshotHeader,
        chunk_bytes: usize,
    ) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        let name = SnapshotName::new(header.number);
        let temporary = dir.join(name.temporary());
        if disk.exists(&temporary)? {
            disk.remove(&temporary)?;
        }
        let file = disk.open(&temporary, OpenMode::CreateNew)?;
        let footer = SnapshotFooter::new(header.covered);
        Ok(Self {
            disk,
            file,
            dir: dir.to_owned(),
            name,
            incarnation: header.incarnation,
            chunk_bytes,
            at: 0,
            slice: header.encode(),
            chunk: ChunkBuilder::default(),
            footer,
        })
    }

    /// The chunk that is being filled. Call [`settle`](Self::settle) after adding to it.
    pub(in crate::tree) fn chunk(&mut self) -> &mut ChunkBuilder {
        &mut self.chunk
    }

    /// Bytes of entries from which on a chunk is closed.
    pub(in crate::tree) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Closes the chunk if it is full.
    pub(in crate::tree) fn settle(&mut self) {
        if self.chunk.bytes() >= self.chunk_bytes {
            self.seal();
        }
    }

    fn seal(&mut self) {
        let entries = self.chunk.count();
        self.footer.entries += u64::from(entries);
        self.footer.raw_bytes += self.chunk.bytes() as u64;
        let bytes = self.chunk.seal(self.incarnation, self.footer.chunks.len());
        self.footer.chunks.push(ChunkPlace::of(self.at + self.slice.len() as u64, entries, &bytes));
        self.slice.extend_from_slice(&bytes);
    }

    /// Writes the closed chunks, and syncs them: one sync of everything at the end would hold up the commits of the log.
    pub(in crate::tree) fn write(&mut self) -> io::Result<()> {
        if self.slice.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(&mut [IoSlice::new(&self.slice)], self.at)?;
        self.file.sync_data()?;
        self.at += self.slice.len() as u64;
        self.slice.clear();
        Ok(())
    }

    /// Writes the footer and gives the file its name; durable when it returns. Answers the footer and the length.
    pub(in crate::tree) fn finish(
        mut self,
        end: Lsn,
        superseded: Vec<Range<Lsn>>,
    ) -> io::Result<(SnapshotFooter, u64)> {
        if self.chunk.count() > 0 {
            self.seal();
        }
        self.footer.end = end;
        self.footer.superseded = superseded;
        let footer = self.footer.encode(self.incarnation);
        self.slice.extend_from_slice(&footer);
        self.write()?;
        self.disk.rename(&self.dir.join(self.name.temporary()), &self.dir.join(self.name.file()))?;
        self.disk.sync_dir(&self.dir)?;
        Ok((self.footer, self.at))
    }
}
