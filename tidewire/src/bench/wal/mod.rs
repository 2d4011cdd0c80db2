//! Durable puts per second, and how long each takes, beside the bare loop: in turn, so that whatever else the machine does
//! falls on both. What a tree costs above the loop is what it does: positions, checksums, an index, the state.

mod bare;

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::disk::{Disk, DiskFile, OpenMode, RealDisk};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::Tree;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::bare::{Bare, FILE_BYTES};
use crate::cli::Table;
use crate::local::{Latencies, LocalSite, Quartiles, millis};

const VALUE_BYTES: usize = 256;
const PAIRS: usize = 7;
const WRITERS: [usize; 4] = [1, 8, 64, 256];
/// What comes before is not counted.
const WARM_UP: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_millis(1_200);

/// One side's figures with one number of writers.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    puts: usize,
    puts_per_second: Quartiles,
    p50_ms: f64,
    p99_ms: f64,
}

/// Both sides with one number of writers. The ratio is that of each pair: puts a second of the tree by those of the loop.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    writers: usize,
    value_bytes: usize,
    pairs: usize,
    tree: Figures,
    bare_loop: Figures,
    ratio: Quartiles,
}

/// What one turn of one side measured.
#[derive(Default)]
struct Turn {
    latencies: Latencies,
    rate: f64,
}

/// Either side.
#[derive(Clone)]
enum Target {
    Tree(Tree),
    Bare(Bare),
}

impl Target {
    /// Each writer has a thousand keys, so that the state does not grow for ever.
    async fn put(&self, writer: usize, step: u64, value: &Bytes) -> Result<(), Error> {
        let written = match self {
            Self::Tree(tree) => {
                return tree.put(format!("w{writer}-{}", step % 1_000), value.clone()).await.map(drop);
            }
            Self::Bare(bare) => bare.append(value, 1).await,
        };
        written.map_err(|error| Error::new(ErrorKind::Unavailable, "the bare loop failed").with_source(error))
    }
}

/// Closed loop: each writer puts, waits for the answer, and puts again.
pub(super) async fn measure(dir: &Path) -> Result<Vec<Row>, Error> {
    let tasks = Tasks::new(Threads::Spawn);
    let file = written_over(&dir.join("bare-loop")).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no file for the bare loop").with_source(error)
    })?;
    let bare = Bare::start(&tasks, file);
    let mut site = LocalSite::start("bench", dir).await?;
    let mut rows = Vec::new();
    if let Some(tree) = site.tree().cloned() {
        let (tree, bare) = (Target::Tree(tree), Target::Bare(bare));
        for writers in WRITERS {
            rows.push(alternate(&tree, &bare, writers).await?);
        }
    }
    site.shutdown().await?;
    tasks.join().await;
    Ok(rows)
}

/// A file that is full of zeros: writing over it is cheaper than making it grow.
fn written_over(path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    let file = RealDisk.open(path, OpenMode::CreateNew)?;
    file.write_all_at(&mut [IoSlice::new(&vec![0; FILE_BYTES])], 0)?;
    file.sync_data()?;
    Ok(file)
}

/// Either comes first in turn. A round before warms up both and is not counted.
async fn alternate(tree: &Target, bare: &Target, writers: usize) -> Result<Row, Error> {
    let (mut trees, mut loops) = (Vec::new(), Vec::new());
    for pair in 0..=PAIRS {
        let mut sides = [(tree, &mut trees), (bare, &mut loops)];
        if pair % 2 == 0 {
            sides.reverse();
        }
        for (side, turns) in sides {
            let turn = run(side, writers).await?;
            if pair > 0 {
                turns.push(turn);
            }
        }
    }
    let ratios = trees.iter().zip(&loops).map(|(tree, bare)| tree.rate / bare.rate);
    Ok(Row {
        writers,
        value_bytes: VALUE_BYTES,
        pairs: PAIRS,
        ratio: Quartiles::of(ratios),
        tree: Figures::of(trees),
        bare_loop: Figures::of(loops),
    })
}

impl Figures {
    fn of(turns: Vec<Turn>) -> Self {
        let puts_per_second = Quartiles::of(turns.iter().map(|turn| turn.rate));
        let mut all = Latencies::default();
        turns.into_iter().for_each(|turn| all.extend(turn.latencies));
        Self {
            puts: all.len(),
            puts_per_second,
            p50_ms: millis(all.quantile(0.5)),
            p99_ms: millis(all.quantile(0.99)),
        }
    }
}

async fn run(target: &Target, writers: usize) -> Result<Turn, Error> {
    let tasks = Tasks::new(Threads::Spawn);
    let (done, mut finished) = mpsc::channel(writers);
    let from = Instant::now() + WARM_UP;
    let end = from + DURATION;
    for writer in 0..writers {
        let (target, done) = (target.clone(), done.clone());
        tasks.spawn("writer", async move {
            let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
            let (mut latencies, mut start) = (Latencies::default(), Instant::now());
            let mut written = Ok(());
            for step in 0_u64.. {
                written = target.put(writer, step, &value).await;
                let now = Instant::now();
                if written.is_err() || now >= end {
                    break;
                }
                if now >= from {
                    latencies.record(now - start);
                }
                start = now;
            }
            // Nobody waits any more if the measurement was given up.
            let _ = done.send(written.map(|()| latencies)).await;
        });
    }
    drop(done);
    let mut turn = Turn::default();
    while let Some(latencies) = finished.recv().await {
        turn.latencies.extend(latencies?);
    }
    turn.rate = turn.latencies.len() as f64 / DURATION.as_secs_f64();
    Ok(turn)
}

/// The figures for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["WRITERS", "TREE", "P50", "P99", "BARE LOOP", "P50", "P99", "RATIO", "QUARTILES"]);
    for row in rows {
        let rate = |figures: &Figures| format!("{:.0} puts/s", figures.puts_per_second.median);
        let ms = |value: f64| format!("{value:.3} ms");
        table.row([
            row.writers.to_string(),
            rate(&row.tree),
            ms(row.tree.p50_ms),
            ms(row.tree.p99_ms),
            rate(&row.bare_loop),
            ms(row.bare_loop.p50_ms),
            ms(row.bare_loop.p99_ms),
            format!("{:.3}", row.ratio.median),
            format!("{:.3} to {:.3}", row.ratio.first, row.ratio.third),
        ]);
    }
    table
}
