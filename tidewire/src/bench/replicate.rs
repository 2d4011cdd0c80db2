//! Entries per second from one cluster to another: a backlog first, then live writes at half of the most that is held.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tree::{Operation, Tree};
use tokio::time::{Instant, sleep};

use super::live::{self, Live};
use crate::cli::Table;
use crate::local::{LocalSite, connect_all, millis};

const VALUE_BYTES: usize = 256;
pub(super) const BACKLOG: u64 = 500_000;
const BATCH: u64 = 1_000;
const LIVE: Duration = Duration::from_secs(10);
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
            let peak = live::peak(from, to, backlog.entries_per_second).await?;
            let half = live::run(from, to, peak.entries_per_second / 2.0, LIVE).await?;
            vec![backlog, Row::of("live peak", peak), Row::of("live at half", half)]
        }
        _ => Vec::new(),
    };
    for site in &mut sites {
        site.shutdown().await?;
    }
    Ok(rows)
}

impl Row {
    fn of(phase: &'static str, mut live: Live) -> Self {
        Self {
            phase,
            entries: live.entries,
            value_bytes: VALUE_BYTES,
            entries_per_second: live.entries_per_second,
            p50_ms: Some(millis(live.visible.quantile(0.5))),
            p99_ms: Some(millis(live.visible.quantile(0.99))),
        }
    }
}

/// Entries whose keys lie in a window that a backlog fills.
pub(super) fn sets(first: u64, count: u64) -> Vec<Operation> {
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
