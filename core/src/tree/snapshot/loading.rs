//! Reads a snapshot back into a state: chunks are read and checked several at once and put in line, then the table of
//! keys is filled, in several parts at once. Values stay packed: the tree unpacks them once it is open.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::chunk::{Chunk, ChunkRow};
use super::file::{SnapshotFault, SnapshotFile};
use crate::error::Error;
use crate::id::OriginTag;
use crate::record::{FormatError, Interest};
use crate::tasks::Tasks;
use crate::tree::entry::Entry;
use crate::tree::key_table::{KeyTable, KeyTablePart, KeyTag};
use crate::tree::state::State;

/// Chunks that are read and unpacked in one go.
const RUN_CHUNKS: usize = 8;
/// Runs that are on their way at once: enough to keep two cores busy beside the one that installs.
const RUNS: usize = 3;
/// Parts of the table of keys that are filled at once.
const TABLE_PARTS: usize = 2;
/// How often a long loading says how far it is.
pub(in crate::tree) const PROGRESS_EVERY: Duration = Duration::from_secs(3);

/// The state of a snapshot, as far as an interest goes: entries, deleted ranges, losers and progress. The outer error is this process's own; the
/// inner one says that the snapshot cannot be used.
pub(in crate::tree) async fn load(
    file: &Arc<SnapshotFile>,
    origin: OriginTag,
    partitions: u16,
    interest: &Interest,
    tasks: &Tasks,
) -> Result<Result<State, SnapshotFault>, Error> {
    let header = &file.header;
    if header.partitions != partitions {
        return Ok(Err(FormatError::Field("a snapshot of a tree with another number of partitions").into()));
    }
    let mut state = State::new(origin, partitions);
    state.interest = interest.clone();
    // An entry takes 33 bytes at least, and unpacking makes 256 bytes of one at most.
    let most = file.bytes.saturating_mul(8);
    let room = usize::try_from(file.footer.entries.min(most)).unwrap_or(0);
    state.reserve(room);
    let runs =
        (0..file.chunks()).step_by(RUN_CHUNKS).map(|first| first..file.chunks().min(first + RUN_CHUNKS));
    // The lists of a run serve a later one: fresh memory costs more than what is done with it.
    let spare = Arc::new(Mutex::new(Vec::new()));
    let mut unpacked = futures::stream::iter(runs)
        .map(|run| {
            let (file, spare, interest) = (file.clone(), spare.clone(), interest.clone());
            tasks.blocking(move || {
                let mut unpacked: Box<Unpacked> = spare.lock().pop().unwrap_or_default();
                unpacked.fill(&file, run, &interest).map(|()| unpacked)
            })
        })
        .buffered(RUNS);
    let mut told = Instant::now();
    let mut tags = Vec::with_capacity(room);
    while let Some(rows) = unpacked.next().await {
        let mut rows = match rows? {
            Ok(rows) => rows,
            Err(fault) => return Ok(Err(fault)),
        };
        if !state.append_sorted(&mut rows.entries) {
            return Ok(Err(out_of_order().into()));
        }
        tags.append(&mut rows.tags);
        spare.lock().push(rows);
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            tracing::info!(entries = state.len(), of = file.footer.entries, "loading a snapshot");
        }
    }
    state.index_sorted(table(tags, tasks).await?);
    let dropped = file.footer.entries.saturating_sub(state.len() as u64);
    state.unheld.keys = dropped;
    if dropped > 0 {
        tracing::info!(entries = dropped, %interest, "keys of a snapshot are not held any more");
    }
    for range in &header.ranges {
        state.install_range(range);
    }
    state.install_superseded(file.footer.superseded.clone(), file.footer.end);
    state.progress = header.progress.clone();
    state.next_lsn = header.covered;
    Ok(Ok(state))
}

/// Finds the place of every tag, in several parts at once.
async fn table(tags: Vec<KeyTag>, tasks: &Tasks) -> Result<KeyTable, Error> {
    let tags = Arc::new(tags);
    let parts = (0..TABLE_PARTS).map(|part| {
        let tags = tags.clone();
        tasks.blocking(move || KeyTablePart::fill(&tags, part, TABLE_PARTS))
    });
    Ok(KeyTablePart::join(futures::future::try_join_all(parts).await?))
}

/// A run of chunks: entries in key order, and the tags of their keys.
#[derive(Default)]
struct Unpacked {
    entries: Vec<Entry>,
    tags: Vec<KeyTag>,
    chunk: Chunk,
}

impl Unpacked {
    /// Of a run of chunks; nothing was in it.
    fn fill(
        &mut self,
        file: &SnapshotFile,
        run: Range<usize>,
        interest: &Interest,
    ) -> Result<(), SnapshotFault> {
        let Self { entries, tags, chunk } = self;
        // An entry takes more than a byte, even packed, so this is bounded by the file.
        let count = file.entries(run.clone()).min(usize::try_from(file.bytes).unwrap_or(usize::MAX));
        entries.reserve(count);
        tags.reserve(count);
        let mut take = |key: &[u8], entry: &dyn Fn() -> Entry| {
            if entries.last().is_some_and(|last| last.key() >= key) {
                return Err(out_of_order());
            }
            if interest.contains(key) {
                tags.push(KeyTag::of(key));
                entries.push(entry());
            }
            Ok(())
        };
        file.read_sealed(run, |sealed, bytes| {
            if let Some(rows) = sealed.rows(bytes)? {
                let packed = &rows.rows;
                rows.visit(|ChunkRow { key, place, version, lsn }| {
                    take(key, &|| Entry::packed(packed.clone(), place, version, lsn))
                })?;
                return Ok(());
            }
            sealed.unpack(chunk)?;
            for entry in chunk.entries() {
                let view = entry?;
                take(view.key, &|| {
                    Entry::new(view.key, view.value, view.deadline_ms, view.version, view.lsn)
                })?;
            }
            Ok(())
        })
    }
}

fn out_of_order() -> FormatError {
    FormatError::Field("the entries of a snapshot are not in key order")
}
