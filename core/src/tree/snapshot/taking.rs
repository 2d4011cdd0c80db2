//! [`Tree::snapshot`]: writes a snapshot while writes go on.
//!
//! The position that it covers is noted first, with everything that belongs to it, in one look at the state. Then come
//! the entries, a piece at a time under a short lock, packed and written outside of it; what changes meanwhile is in
//! the log above the position. At the end the end of the applied log is noted once more: no entry lies above it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::chunk::{ChunkBuilder, EntryView};
use super::header::SnapshotHeader;
use super::store::{SnapshotInfo, Snapshots};
use super::writer::SnapshotWriter;
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::record::Interest;
use crate::tree::Tree;
use crate::tree::core::AppliedState;
use crate::tree::reaping::Reading;
use crate::wal::WalStorage;

/// What part of a chunk is read under one lock: groups are applied in between.
const LOCKS_PER_CHUNK: usize = 4;
/// Chunks after which they are written and synced, others get the processor, and the pace is kept.
const CHUNKS_PER_STEP: usize = 4;
/// Bytes that the numbers of an entry take beside key and value.
const ENTRY_BYTES: u64 = 33;

/// What [`Tree::snapshot`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The snapshot.
    pub snapshot: SnapshotInfo,
    /// Its file.
    pub path: PathBuf,
    /// How long it took.
    pub took: Duration,
}

impl Tree {
    /// Writes a snapshot: the next opening replays the log from here. Writes go on meanwhile. One at a time: a second
    /// call waits for the first. Dropping the future gives the snapshot up.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be written or the disk has no room for it; what was there before stays.
    pub async fn snapshot(&self) -> Result<SnapshotReport, Error> {
        let report = self.take_snapshot(self.0.limits.snapshot_bytes_per_second).await?;
        self.forget_letters().await;
        Ok(report)
    }

    /// Below this position the log is not needed to open the tree, even if the newest snapshot is damaged: what the
    /// older of two snapshots covers. Zero while there are not two.
    pub fn checkpoint(&self) -> Lsn {
        self.0.snapshots.checkpoint()
    }

    /// The newest snapshot.
    pub fn last_snapshot(&self) -> Option<SnapshotInfo> {
        self.0.snapshots.newest()
    }

    /// Writes a snapshot before a clean stop if a replay would take about a second or more. Failing is no loss: the next
    /// opening replays more.
    pub async fn snapshot_before_stop(&self) {
        let limits = &self.0.limits;
        let since = self.last_snapshot().map_or(Lsn::ZERO, |last| last.covered);
        let records = self.0.storage.bounds().next.since(since);
        let bytes = self.0.storage.bytes_after(since);
        if records < limits.snapshot_stop_records && bytes < limits.snapshot_stop_bytes {
            return;
        }
        if let Err(error) = self.take_snapshot(0).await {
            tracing::warn!(tree = %self.0.identity.tree, %error, "no snapshot before the stop, the next start replays more");
        }
    }

    /// `pace` is in bytes per second; zero is as fast as it goes.
    async fn take_snapshot(&self, pace: u64) -> Result<SnapshotReport, Error> {
        let snapshots = &self.0.snapshots;
        let _one = snapshots.writing.lock().await;
        let began = Instant::now();
        let number = snapshots.next_number();
        let (header, _reading) = self.snapshot_header(number);
        let taken = self.write_snapshot(&header, pace).await;
        match taken {
            Ok(snapshot) => {
                let (tree, took) = (&self.0.identity.tree, began.elapsed());
                let SnapshotInfo { covered, entries, bytes, .. } = snapshot;
                tracing::info!(%tree, number, %covered, entries, bytes, ?took, "snapshot written");
                Ok(SnapshotReport { snapshot, path: snapshots.path(number), took })
            }
            Err(error) => {
                let snapshots = snapshots.clone();
                self.0.tasks.blocking(move || snapshots.discard(number)).await?;
                Err(error)
            }
        }
    }

    /// Everything that belongs to one position. What a local write may have seen is noted after it, so it covers at
    /// least the rows of the position; what the rows hold from above, the replay adds. Nothing newer than what is reaped
    /// at the position is reaped while the rows are read: of a late write the replay would not know that it had lost.
    pub(in crate::tree) fn snapshot_header(&self, number: u64) -> (SnapshotHeader, Reading) {
        let (covered, progress, ranges, reading) = {
            let state = self.0.applied.state.read();
            (state.next_lsn, state.progress.clone(), state.ranges(), state.begin_reading())
        };
        let header = SnapshotHeader {
            incarnation: self.0.identity.incarnation,
            number,
            covered,
            written_ms: self.0.clock.wall_millis(),
            clock: self.0.clock.last(),
            partitions: self.0.identity.partitions,
            progress,
            observed: self.0.writer.observed(),
            ranges,
        };
        (header, reading)
    }

    async fn write_snapshot(&self, header: &SnapshotHeader, pace: u64) -> Result<SnapshotInfo, Error> {
        let tasks = &self.0.tasks;
        let (snapshots, first, chunk_bytes) =
            (self.0.snapshots.clone(), header.clone(), self.0.limits.snapshot_chunk_bytes);
        let needed = self.bytes_of_entries();
        let mut writer = tasks.blocking(move || begin(&snapshots, &first, chunk_bytes, needed)).await??;
        let mut after: Option<Bytes> = None;
        loop {
            let (applied, step) = (self.0.applied.clone(), Instant::now());
            let (back, last, bytes) = tasks
                .blocking(move || fill(&applied, writer, after))
                .await?
                .map_err(|error| self.failed(error))?;
            (writer, after) = (back, last);
            if after.is_none() {
                break;
            }
            match bytes.saturating_mul(1_000_000).checked_div(pace) {
                Some(micros) => tokio::time::sleep_until(step + Duration::from_micros(micros)).await,
                None => tokio::task::yield_now().await,
            }
        }
        let (snapshots, applied, header) = (self.0.snapshots.clone(), self.0.applied.clone(), header.clone());
        let finished = tasks.blocking(move || finish(&snapshots, &applied, writer, &header)).await?;
        finished.map_err(|error| self.failed(error))
    }

    fn bytes_of_entries(&self) -> u64 {
        let state = self.0.applied.state.read();
        state.bytes() + state.len() as u64 * ENTRY_BYTES
    }

    pub(in crate::tree) fn failed(&self, error: io::Error) -> Error {
        cannot_write(&self.0.snapshots, error).into()
    }
}

pub(in crate::tree) fn cannot_write(snapshots: &Snapshots, error: io::Error) -> StorageError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { StorageErrorKind::Full } else { StorageErrorKind::Io };
    let said = format!("no snapshot was written to {}; the one before it stays", snapshots.dir().display());
    StorageError::new(kind, said).with_source(error)
}

/// A snapshot must never take the room that the log needs: it is not begun unless everything fits as it is.
fn begin(
    snapshots: &Snapshots,
    header: &SnapshotHeader,
    chunk_bytes: usize,
    needed: u64,
) -> Result<SnapshotWriter, Error> {
    if let Some(free) = snapshots.available().filter(|free| *free < needed) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no snapshot was begun in {}: it may take {needed} bytes, and {free} are free; make room on the disk",
                snapshots.dir().display()
            ),
        ));
    }
    snapshots.begin(header, chunk_bytes).map_err(|error| cannot_write(snapshots, error).into())
}

/// Adds entries after a key for one step. Answers the last key, or none when there are no more, and how many bytes of
/// entries came.
fn fill(
    applied: &AppliedState,
    mut writer: SnapshotWriter,
    mut after: Option<Bytes>,
) -> io::Result<(SnapshotWriter, Option<Bytes>, u64)> {
    let mut bytes = 0;
    let chunk_bytes = writer.chunk_bytes();
    while bytes < (chunk_bytes * CHUNKS_PER_STEP) as u64 {
        let (last, added) = read_some(
            applied,
            writer.chunk(),
            &Interest::all(),
            after.as_deref(),
            chunk_bytes / LOCKS_PER_CHUNK,
        );
        writer.settle();
        bytes += added;
        after = last;
        if after.is_none() {
            break;
        }
    }
    writer.write()?;
    Ok((writer, after, bytes))
}

/// Adds entries of an interest after a key to a chunk, about `most` bytes of all. Answers the last key, or none when there are no
/// more, and how many bytes of entries came.
pub(in crate::tree) fn read_some(
    applied: &AppliedState,
    chunk: &mut ChunkBuilder,
    interest: &Interest,
    after: Option<&[u8]>,
    most: usize,
) -> (Option<Bytes>, u64) {
    // New keys are put in order first, a few at a time: all at once would hold up the writes.
    applied.settle();
    let (mut taken, mut last) = (0, None);
    let state = applied.state.read();
    state.walk(
        |key| after.is_some_and(|after| key <= after),
        |entry| {
            if last.is_some() && taken >= most {
                return false;
            }
            if interest.contains(entry.key()) {
                chunk.push(&EntryView {
                    key: entry.key(),
                    value: entry.value(),
                    version: entry.version,
                    lsn: entry.lsn,
                    deadline_ms: entry.deadline_ms(),
                });
            }
            taken += entry.bytes() + usize::try_from(ENTRY_BYTES).unwrap_or(0);
            last = Some(entry);
            true
        },
    );
    (last.map(|entry| Bytes::copy_from_slice(entry.key())), taken as u64)
}

/// What lost below the end is noted with the end, and both after the last entry.
fn finish(
    snapshots: &Arc<Snapshots>,
    applied: &AppliedState,
    writer: SnapshotWriter,
    header: &SnapshotHeader,
) -> io::Result<SnapshotInfo> {
    let (end, superseded) = {
        let state = applied.state.read();
        (state.next_lsn, state.superseded())
    };
    let (footer, bytes) = writer.finish(end, superseded)?;
    let info = SnapshotInfo::of(header, &footer, bytes);
    snapshots.add(info);
    Ok(info)
}
