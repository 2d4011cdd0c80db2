//! Reads a snapshot back into a state: chunks are unpacked several at once, and installed one after the other.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::file::{SnapshotFault, SnapshotFile};
use crate::error::Error;
use crate::id::OriginTag;
use crate::record::FormatError;
use crate::tasks::Tasks;
use crate::tree::entry::Entry;
use crate::tree::state::State;

/// Chunks that are read and unpacked in one go.
const RUN_CHUNKS: usize = 8;
/// Runs that are on their way at once: enough to keep two cores busy beside the one that installs.
const RUNS: usize = 3;
/// How often a long loading says how far it is.
pub(in crate::tree) const PROGRESS_EVERY: Duration = Duration::from_secs(3);

/// The state of a snapshot: entries, deleted ranges, losers and progress. The outer error is this process's own; the
/// inner one says that the snapshot cannot be used.
pub(in crate::tree) async fn load(
    file: &Arc<SnapshotFile>,
    origin: OriginTag,
    partitions: u16,
    tasks: &Tasks,
) -> Result<Result<State, SnapshotFault>, Error> {
    let header = &file.header;
    if header.partitions != partitions {
        return Ok(Err(FormatError::Field("a snapshot of a tree with another number of partitions").into()));
    }
    let mut state = State::new(origin, partitions);
    // An entry takes 33 bytes at least, and unpacking makes 256 bytes of one at most.
    let most = file.bytes.saturating_mul(8);
    state.reserve(usize::try_from(file.footer.entries.min(most)).unwrap_or(0));
    let runs =
        (0..file.chunks()).step_by(RUN_CHUNKS).map(|first| first..file.chunks().min(first + RUN_CHUNKS));
    let mut unpacked = futures::stream::iter(runs)
        .map(|run| {
            let file = file.clone();
            tasks.blocking(move || unpack(&file, run))
        })
        .buffered(RUNS);
    let mut told = Instant::now();
    while let Some(rows) = unpacked.next().await {
        let rows = match rows? {
            Ok(rows) => rows,
            Err(fault) => return Ok(Err(fault)),
        };
        let (back, in_order) = tasks
            .blocking(move || {
                let in_order = state.install_sorted(rows);
                (state, in_order)
            })
            .await?;
        state = back;
        if !in_order {
            return Ok(Err(out_of_order()));
        }
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            tracing::info!(entries = state.len(), of = file.footer.entries, "loading a snapshot");
        }
    }
    for range in &header.ranges {
        state.install_range(range);
    }
    state.install_superseded(file.footer.superseded.clone(), file.footer.end);
    state.progress = header.progress.clone();
    state.next_lsn = header.covered;
    Ok(Ok(state))
}

/// Entries with the hash of their key.
type Rows = Vec<(u64, Entry)>;

fn unpack(file: &SnapshotFile, run: Range<usize>) -> Result<Rows, SnapshotFault> {
    let chunks = file.read(run)?;
    let count: usize = chunks.iter().map(|chunk| chunk.count() as usize).sum();
    let mut rows: Rows = Vec::with_capacity(count);
    for chunk in &chunks {
        for entry in chunk.entries() {
            let view = entry?;
            if rows.last().is_some_and(|(_, last)| last.key() >= view.key) {
                return Err(out_of_order());
            }
            let entry = Entry::new(view.key, view.value, view.deadline_ms, view.version, view.lsn);
            rows.push((State::hash(view.key), entry));
        }
    }
    Ok(rows)
}

fn out_of_order() -> SnapshotFault {
    FormatError::Field("the entries of a snapshot are not in key order").into()
}
