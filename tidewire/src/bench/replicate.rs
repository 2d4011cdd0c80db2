//! Entries per second from one cluster to another: a backlog first, then live writes at half of that rate.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Operation, Tree};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cli::Table;
use crate::local::{LocalSite, Probes, connect_all, millis};

const VALUE_BYTES: usize = 256;
const BACKLOG: u64 = 500_000;
const BATCH: u64 = 1_000;
const LIVE: Duration = Duration::from_secs(5);
/// Entries of one live write.
const LIVE_BATCH: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// The figures of one phase.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    phase: &'static str,
    entries: u64,
    value_bytes: usize,
    entries_per_second: f64,
    /// Commit to visible; none for the backlog.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// Two clusters of this process over loopback, durable on both sides.
pub(super) async fn measure(dir: &Path) -> Result<Vec<Row>, Error> {
    let mut sites = vec![LocalSite::start("sender", dir).await?, LocalSite::start("receiver", dir).await?];
    let rows = match (sites[0].tree(), sites[1].tree()) {
        (Some(from), Some(to)) => {
            let backlog = backlog(from, to, &sites).await?;
            let live = live(from, to, backlog.entries_per_second / 2.0).await?;
            vec![backlog, live]
        }
        _ => Vec::new(),
    };
    for site in &mut sites {
        site.shutdown().await?;
    }
    Ok(rows)
}

fn sets(first: u64, count: u64) -> Vec<Operation> {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    (first..first + count).map(|at| Operation::Set(format!("key-{at:09}").into(), value.clone())).collect()
}

async fn backlog(from: &Tree, to: &Tree, sites: &[LocalSite]) -> Result<Row, Error> {
    for first in (0..BACKLOG).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        from.batch(sets(first, BATCH)).await?;
    }
    let began = Instant::now();
    connect_all(sites).await?;
    arrive(to, BACKLOG, began + PATIENCE).await?;
    let took = began.elapsed();
    Ok(Row {
        phase: "backlog",
        entries: BACKLOG,
        value_bytes: VALUE_BYTES,
        entries_per_second: BACKLOG as f64 / took.as_secs_f64(),
        p50_ms: None,
        p99_ms: None,
    })
}

/// Waits until a tree has so many live keys.
async fn arrive(tree: &Tree, entries: u64, end: Instant) -> Result<(), Error> {
    while tree.size().entries < entries {
        if Instant::now() > end {
            let has = tree.size().entries;
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("only {has} of {entries} entries arrived in time"),
            ));
        }
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Open loop: writes are due at fixed times, whatever the answers take.
async fn live(from: &Tree, to: &Tree, wanted: f64) -> Result<Row, Error> {
    const LANES: u32 = 32;
    let (tasks, writers) = (Tasks::new(Threads::Spawn), Tasks::new(Threads::Spawn));
    let probes = Probes::default();
    probes.watch(&tasks, to);
    let batches = (wanted * LIVE.as_secs_f64() / LIVE_BATCH as f64) as u32;
    let pace = LIVE / batches.max(1);
    let began = Instant::now();
    for lane in 0..LANES {
        let tree = from.clone();
        writers.spawn("live writes", async move {
            for at in (lane..batches).step_by(LANES as usize) {
                sleep_until(began + pace * at).await;
                if tree.batch(sets(u64::from(at) * LIVE_BATCH % BACKLOG, LIVE_BATCH)).await.is_err() {
                    return;
                }
            }
        });
    }
    let probing = (0_u64..).take_while(|at| Duration::from_millis(at * 5) < LIVE);
    for at in probing {
        sleep_until(began + Duration::from_millis(at * 5)).await;
        let (probes, tree) = (probes.clone(), from.clone());
        writers.spawn("probe", async move {
            let written =
                probes.write(&tree, &format!("{}{at}", crate::local::PROBE_PREFIX), "p".into()).await;
            if let Err(error) = written {
                tracing::warn!(%error, "a probe was not taken");
            }
        });
    }
    writers.join().await;
    let took = began.elapsed();
    sleep(Duration::from_millis(500)).await;
    tasks.join().await;
    let mut visible = probes.commit_to_visible();
    let entries = u64::from(batches) * LIVE_BATCH;
    Ok(Row {
        phase: "live at half",
        entries,
        value_bytes: VALUE_BYTES,
        entries_per_second: entries as f64 / took.as_secs_f64(),
        p50_ms: Some(millis(visible.quantile(0.5))),
        p99_ms: Some(millis(visible.quantile(0.99))),
    })
}

/// The figures for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["PHASE", "ENTRIES", "ENTRIES/S", "P50", "P99"]);
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} ms"));
    for row in rows {
        table.row([
            row.phase.to_owned(),
            row.entries.to_string(),
            format!("{:.0}", row.entries_per_second),
            ms(row.p50_ms),
            ms(row.p99_ms),
        ]);
    }
    table
}
