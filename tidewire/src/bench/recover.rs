//! How long a tree takes to open, by a replay of its log and by a snapshot; and what a snapshot costs the writes that
//! go on meanwhile. Alternating pairs, so that whatever else the machine does falls on both sides.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::disk::{Disk, RealDisk};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::limits::Limits;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Operation, Tree};
use tokio::time::Instant;

use crate::cli::Table;
use crate::cluster::Cluster;
use crate::config::{ClusterConfig, TreeConfig};
use crate::local::Quartiles;

const TREE: &str = "bench";
const VALUE_BYTES: usize = 256;
const ENTRIES: u64 = 1_000_000;
const BATCH: u64 = 1_000;
/// How often each key is written into a log that is longer than the state: what snapshots are for.
const REWRITES: u64 = 3;
const PAIRS: usize = 7;
const WRITERS: u64 = 64;
/// Writes go on for so long before either side of a pair is counted.
const REST: Duration = Duration::from_secs(2);

/// The figures of one comparison: the ratio is that of each pair, the second over the first.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    what: &'static str,
    entries: u64,
    value_bytes: usize,
    pairs: usize,
    unit: &'static str,
    first: &'static str,
    first_figure: Quartiles,
    second: &'static str,
    second_figure: Quartiles,
    ratio: Quartiles,
}

/// One cluster in a directory of its own, whose snapshots are written only when this program says so.
struct Bench {
    dir: PathBuf,
}

/// Opening with a log in which each key stands once, the best that a replay can find, then with each key rewritten; and
/// writing.
pub(super) async fn measure(dir: &Path) -> Result<Vec<Row>, Error> {
    let bench = Bench { dir: dir.join("recover") };
    bench.fill(1).await?;
    let once = bench.opening("open a tree, each key written once").await?;
    bench.fill(REWRITES - 1).await?;
    let rewritten = bench.opening("open a tree, each key written three times").await?;
    let (cluster, _) = bench.open().await?;
    let writing = writing(&cluster.tree(TREE).await?).await?;
    close(cluster).await;
    Ok(vec![once, rewritten, writing])
}

impl Bench {
    /// Writes each key so many times, and takes a snapshot.
    async fn fill(&self, rounds: u64) -> Result<(), Error> {
        let (cluster, _) = self.open().await?;
        let tree = cluster.tree(TREE).await?;
        for _ in 0..rounds {
            fill(&tree).await?;
        }
        tree.snapshot().await?;
        drop(tree);
        close(cluster).await;
        Ok(())
    }

    async fn open(&self) -> Result<(Cluster, f64), Error> {
        let mut config = ClusterConfig::new("bench", self.dir.clone());
        config.trees = vec![TreeConfig::new(TREE)];
        config.listen.replication = "127.0.0.1:0".parse().map_err(|_| Error::shutting_down())?;
        let limits = Limits { snapshot_log_bytes: u64::MAX, ..Limits::default() };
        let began = Instant::now();
        let cluster = Cluster::builder(config).limits(limits).open().await?;
        Ok((cluster, began.elapsed().as_secs_f64()))
    }

    async fn opening(&self, what: &'static str) -> Result<Row, Error> {
        let (mut replays, mut snapshots) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            self.rename(".snap", ".aside")?;
            replays.push(self.open_once().await?);
            self.rename(".aside", ".snap")?;
            snapshots.push(self.open_once().await?);
        }
        Ok(Row::of(what, "s", ("replay", replays), ("snapshot", snapshots)))
    }

    async fn open_once(&self) -> Result<f64, Error> {
        let (cluster, took) = self.open().await?;
        let found = cluster.tree(TREE).await?.size().entries;
        close(cluster).await;
        if found == ENTRIES {
            Ok(took)
        } else {
            Err(Error::new(ErrorKind::Corrupt, format!("{found} entries where {ENTRIES} were written")))
        }
    }

    /// Hides the snapshots from the next opening, or shows them again.
    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let dir = self.dir.join("trees").join(TREE).join("snapshots");
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "the snapshots cannot be renamed").with_source(error);
        for name in RealDisk.list(&dir).map_err(failed)? {
            if let Some(stem) = name.strip_suffix(from) {
                RealDisk.rename(&dir.join(&name), &dir.join(format!("{stem}{to}"))).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Stops as a crash would, so that nothing is written for the next opening, and lets go of the directory.
async fn close(cluster: Cluster) {
    cluster.abort().await;
}

async fn fill(tree: &Tree) -> Result<(), Error> {
    for first in (0..ENTRIES).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        tree.batch((first..first + BATCH).map(|at| Operation::Set(key(at), value(at))).collect()).await?;
    }
    Ok(())
}

fn key(at: u64) -> Bytes {
    // Not in the order in which they are written, as keys are.
    format!("key-{:016x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into()
}

/// Half of it packs well, half does not.
fn value(at: u64) -> Bytes {
    let mut value = vec![b'v'; VALUE_BYTES];
    let words = value[..VALUE_BYTES / 2].chunks_exact_mut(8);
    for (word, place) in (1_u64..).zip(words) {
        let mixed = (at + word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        place.copy_from_slice(&(mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes());
    }
    value.into()
}

/// Puts a second while nothing else happens, and then while a snapshot is written, for as long as that takes.
async fn writing(tree: &Tree) -> Result<Row, Error> {
    let (mut quiet, mut during) = (Vec::new(), Vec::new());
    let mut span = Duration::from_secs(3);
    let load = Load::start(tree);
    for pair in 0..PAIRS {
        // Either comes first in turn, and what the one before left to the disk is not counted.
        for snapshot in [pair % 2 == 0, pair % 2 == 1] {
            tokio::time::sleep(REST).await;
            if snapshot {
                let (rate, report) = load.rate(Box::pin(tree.snapshot())).await;
                span = report?.took;
                during.push(rate);
            } else {
                quiet.push(load.rate(Box::pin(tokio::time::sleep(span))).await.0);
            }
        }
    }
    load.stop().await;
    Ok(Row::of("write beside a snapshot", "puts/s", ("without", quiet), ("during", during)))
}

/// Writers that put one entry after the other, to keys that are there.
struct Load {
    tasks: Tasks,
    stop: Arc<AtomicBool>,
    puts: Arc<AtomicU64>,
}

impl Load {
    fn start(tree: &Tree) -> Self {
        let load = Self { tasks: Tasks::new(Threads::Spawn), stop: Arc::default(), puts: Arc::default() };
        for writer in 0..WRITERS {
            let (tree, stop, puts) = (tree.clone(), load.stop.clone(), load.puts.clone());
            load.tasks.spawn("writer", async move {
                for step in 0_u64.. {
                    let at = (step * WRITERS + writer) % ENTRIES;
                    if stop.load(Ordering::Relaxed) || tree.put(key(at), value(at + step)).await.is_err() {
                        return;
                    }
                    puts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        load
    }

    /// Puts a second while something lasts.
    async fn rate<T>(&self, lasts: std::pin::Pin<Box<impl Future<Output = T>>>) -> (f64, T) {
        let (began, before) = (Instant::now(), self.puts.load(Ordering::Relaxed));
        let result = lasts.await;
        let puts = self.puts.load(Ordering::Relaxed) - before;
        (puts as f64 / began.elapsed().as_secs_f64(), result)
    }

    async fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join().await;
    }
}

impl Row {
    fn of(
        what: &'static str,
        unit: &'static str,
        first: (&'static str, Vec<f64>),
        second: (&'static str, Vec<f64>),
    ) -> Self {
        let ratios = first.1.iter().zip(&second.1).map(|(first, second)| second / first);
        Self {
            what,
            entries: ENTRIES,
            value_bytes: VALUE_BYTES,
            pairs: first.1.len(),
            unit,
            ratio: Quartiles::of(ratios),
            first: first.0,
            first_figure: Quartiles::of(first.1),
            second: second.0,
            second_figure: Quartiles::of(second.1),
        }
    }
}

/// The figures for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["WHAT", "FIRST", "SECOND", "RATIO", "QUARTILES"]);
    for row in rows {
        let figure = |name: &str, figure: &Quartiles| match row.unit {
            "s" => format!("{name} {:.3} s", figure.median),
            unit => format!("{name} {:.0} {unit}", figure.median),
        };
        table.row([
            row.what.to_owned(),
            figure(row.first, &row.first_figure),
            figure(row.second, &row.second_figure),
            format!("{:.3}", row.ratio.median),
            format!("{:.3} to {:.3}", row.ratio.first, row.ratio.third),
        ]);
    }
    table
}
