//! okaywal: `EntryWriter::commit`, which returns after an fdatasync that covers the entry; concurrent writers share one.
//! Segments large enough that checkpoints, which would drop what was written, stay out of the way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use okaywal::{Configuration, Entry, EntryId, LogManager, ReadChunkResult, SegmentReader, WriteAheadLog};

use super::peer::Peer;
use crate::failure::Outcome;

const SEGMENT_BYTES: u32 = 512 << 20;

/// Counts what recovery shows, checksums compared: the one way to read a whole log.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl LogManager for Counting {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        while let ReadChunkResult::Chunk(mut chunk) = entry.read_chunk()? {
            std::hint::black_box(chunk.read_all()?);
            if !chunk.check_crc()? {
                return Err(io::Error::other("a checksum does not match"));
            }
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn checkpoint_to(&mut self, _: EntryId, _: &mut SegmentReader, _: &WriteAheadLog) -> io::Result<()> {
        Ok(())
    }
}

/// A log.
pub struct Okay {
    dir: PathBuf,
    log: WriteAheadLog,
}

fn configuration(dir: &Path) -> Configuration {
    Configuration::default_for(dir)
        .preallocate_bytes(SEGMENT_BYTES)
        .checkpoint_after_bytes(u64::from(SEGMENT_BYTES) - (16 << 20))
        .buffer_bytes(64 << 10)
}

impl Okay {
    pub fn open(dir: &Path) -> Outcome<Self> {
        Ok(Self { dir: dir.to_owned(), log: configuration(dir).open(Counting::default())? })
    }
}

impl Peer for Okay {
    fn append(&self, _writer: usize, _key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        let mut entry = self.log.begin_entry()?;
        entry.write_chunk(value)?;
        entry.commit()?;
        Ok(())
    }

    fn append_many(&self, _writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let mut entry = self.log.begin_entry()?;
        for _ in keys {
            entry.write_chunk(value)?;
        }
        entry.commit()?;
        Ok(())
    }

    fn read_all(&self) -> Outcome<u64> {
        let counted = Counting::default();
        let log = configuration(&self.dir).open(counted.clone())?;
        // It shares its files with the one that is open: nothing is written through it.
        std::mem::forget(log);
        Ok(counted.0.load(Ordering::Relaxed))
    }
}
