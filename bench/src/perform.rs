//! What the process of one turn does.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidewire_core::disk::{Disk, DiskFile, OpenMode, RealDisk};
use tidewire_core::tasks::{Tasks, Threads};

use crate::bare::{Bare, FILE_BYTES};
use crate::beside;
use crate::contender::Contender;
use crate::engines::{Engine, Opening, Site, TideLog, new_site, open_peer};
use crate::failure::Outcome;
use crate::load;
use crate::reading;
use crate::threads;
use crate::turn::{Figures, Reading, Reopening, Turn, Work};
use crate::workload::{serial_key, value};

/// The name of the tree, or of the log without one.
pub const TREE: &str = "bench";
/// Partitions of a tree that says nothing else.
pub const PARTITIONS: u16 = 8;
const FILL_BATCH: u64 = 1_000;

/// Does it. The bare loop and Tidewire run on a runtime with two workers.
pub fn perform(turn: &Turn) -> Outcome<Figures> {
    if turn.engine.is_peer() {
        return perform_peer(turn);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let figures = runtime.block_on(async {
        match turn.engine {
            Engine::Bare => perform_bare(turn).await,
            Engine::Log => perform_log(turn).await,
            _ => perform_tree(turn).await,
        }
    });
    // What is still at work on it ends with the process, as after a kill.
    std::mem::forget(runtime);
    figures
}

async fn perform_bare(turn: &Turn) -> Outcome<Figures> {
    if turn.work_reads_bytes() {
        return reading::bytes(&turn.dir);
    }
    let bare = Bare::start(&Tasks::new(Threads::Spawn), written_over(&turn.dir.join("bare"))?);
    write(&bare, turn.work).await
}

/// A file that is full: writing over it is cheaper than making it grow.
fn written_over(path: &Path) -> Outcome<Arc<dyn DiskFile>> {
    if RealDisk.exists(path)? {
        return Ok(RealDisk.open(path, OpenMode::Write)?);
    }
    let file = RealDisk.open(path, OpenMode::CreateNew)?;
    file.write_all_at(&mut [IoSlice::new(&vec![0; FILE_BYTES])], 0)?;
    file.sync_data()?;
    Ok(file)
}

async fn perform_log(turn: &Turn) -> Outcome<Figures> {
    let began = Instant::now();
    let site = new_site(&turn.dir).await?;
    if let Work::Reopen(_) = turn.work {
        let log = TideLog::open(&site, TREE, PARTITIONS, Opening::Footers)?;
        log.append(serial_key(0), &value(256)).await?;
        return Ok(left_open((site, log), took(began)));
    }
    let log = TideLog::open(&site, TREE, PARTITIONS, Opening::Whole)?;
    if let Work::Read(how) = turn.work {
        return reading::log(&log, how).await;
    }
    if !matches!(turn.work, Work::Fill { .. }) {
        log.serve(&site.tasks).await?;
    }
    let before = site.groups();
    let mut figures = write(&log, turn.work).await?;
    figures.syncs = Some(site.groups() - before);
    Ok(figures)
}

async fn perform_tree(turn: &Turn) -> Outcome<Figures> {
    let began = Instant::now();
    let site = new_site(&turn.dir).await?;
    match turn.work {
        Work::Beside { per_second, beside, seconds } => beside::run(&site, per_second, beside, seconds).await,
        Work::Busy { trees, writers, seconds } => busy(&site, trees, writers, seconds).await,
        Work::Reopen(_) => {
            let tree = site.tree(TREE, PARTITIONS).await?;
            Contender::append(&tree, serial_key(0), &value(256)).await?;
            Ok(left_open((site, tree), took(began)))
        }
        Work::Read(how) => reading::tree(&site.tree(TREE, PARTITIONS).await?, how).await,
        work => {
            let tree = site.tree(TREE, PARTITIONS).await?;
            let before = site.groups();
            let mut figures = write(&tree, work).await?;
            figures.syncs = Some(site.groups() - before);
            if matches!(work, Work::Fill { .. }) {
                tree.snapshot().await?;
            }
            Ok(figures)
        }
    }
}

async fn busy(site: &Site, trees: usize, writers: usize, seconds: f64) -> Outcome<Figures> {
    let mut open = Vec::new();
    for tree in 0..trees {
        open.push(site.tree(&format!("busy-{tree}"), PARTITIONS).await?);
    }
    load::closed(&open, writers, 256, seconds).await
}

async fn write<C: Contender>(log: &C, work: Work) -> Outcome<Figures> {
    match work {
        Work::Closed { writers, value_bytes, seconds } => {
            load::closed(std::slice::from_ref(log), writers, value_bytes, seconds).await
        }
        Work::Batches { records, value_bytes, seconds } => {
            load::batches(log, records, value_bytes, seconds).await
        }
        Work::Open { per_second, value_bytes, seconds } => {
            load::open(log, per_second, value_bytes, seconds).await
        }
        Work::Fill { records, value_bytes } => {
            let (began, value) = (Instant::now(), value(value_bytes));
            for first in (0..records).step_by(FILL_BATCH as usize) {
                let keys = (first..records.min(first + FILL_BATCH)).map(serial_key).collect();
                log.append_many(keys, &value).await?;
            }
            Ok(Figures { records, ..took(began) })
        }
        other => Err(format!("{other:?} is not for this engine").into()),
    }
}

fn perform_peer(turn: &Turn) -> Outcome<Figures> {
    let began = Instant::now();
    let peer = open_peer(turn.engine, &turn.dir, &turn.work)?;
    match turn.work {
        Work::Closed { writers, value_bytes, seconds } => {
            threads::closed(peer.as_ref(), writers, value_bytes, seconds)
        }
        Work::Batches { records, value_bytes, seconds } => {
            threads::batches(peer.as_ref(), records, value_bytes, seconds)
        }
        Work::Fill { records, value_bytes } => {
            let (began, value) = (Instant::now(), value(value_bytes));
            for first in (0..records).step_by(FILL_BATCH as usize) {
                let keys: Vec<_> = (first..records.min(first + FILL_BATCH)).map(serial_key).collect();
                peer.append_many(0, &keys, &value)?;
            }
            Ok(Figures { records, ..took(began) })
        }
        Work::Read(Reading::All) => {
            let began = Instant::now();
            let records = peer.read_all()?;
            Ok(Figures { records, ..took(began) })
        }
        Work::Reopen(Reopening::Log) => {
            peer.append(0, &serial_key(0), &value(256))?;
            Ok(left_open(peer, took(began)))
        }
        other => Err(format!("{other:?} is not for {}", turn.engine.name()).into()),
    }
}

fn took(began: Instant) -> Figures {
    Figures { records: 1, seconds: began.elapsed().as_secs_f64(), ..Figures::default() }
}

/// Nothing is closed that is to be killed.
fn left_open<T>(engine: T, figures: Figures) -> Figures {
    std::mem::forget(engine);
    figures
}

impl Turn {
    fn work_reads_bytes(&self) -> bool {
        matches!(self.work, Work::Read(Reading::Bytes))
    }
}

/// Files with the log's records in them, in order.
pub fn segments(dir: &Path) -> Outcome<Vec<std::path::PathBuf>> {
    let wal = dir.join(TREE).join("wal");
    let mut found: Vec<_> =
        std::fs::read_dir(&wal)?.map(|entry| Ok(entry?.path())).collect::<Outcome<_>>()?;
    found.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    found.sort();
    Ok(found)
}
