//! Durable puts per second, and how long each takes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::error::Error;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::Tree;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cli::Table;
use crate::local::{Latencies, LocalSite, millis};

const VALUE_BYTES: usize = 256;
const DURATION: Duration = Duration::from_secs(3);

/// The figures of one number of writers.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    writers: usize,
    value_bytes: usize,
    puts: usize,
    puts_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Closed loop: each writer puts, waits for the answer, and puts again.
pub(super) async fn measure(dir: &Path) -> Result<Vec<Row>, Error> {
    let mut site = LocalSite::start("bench", dir).await?;
    let mut rows = Vec::new();
    if let Some(tree) = site.tree() {
        run(tree, 8, Duration::from_millis(500)).await;
        for writers in [1, 8, 64, 256] {
            rows.push(run(tree, writers, DURATION).await);
        }
    }
    site.shutdown().await?;
    Ok(rows)
}

async fn run(tree: &Tree, writers: usize, duration: Duration) -> Row {
    let tasks = Tasks::new(Threads::Spawn);
    let (done, mut finished) = mpsc::channel(writers);
    let began = Instant::now();
    let end = began + duration;
    for writer in 0..writers {
        let (tree, done) = (tree.clone(), done.clone());
        tasks.spawn("writer", async move {
            let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
            let mut latencies = Latencies::default();
            for step in 0_u64.. {
                let start = Instant::now();
                if start >= end
                    || tree.put(format!("w{writer}-{}", step % 1_000), value.clone()).await.is_err()
                {
                    break;
                }
                latencies.record(start.elapsed());
            }
            // Nobody waits any more if the measurement was given up.
            let _ = done.send(latencies).await;
        });
    }
    drop(done);
    let mut all = Latencies::default();
    while let Some(latencies) = finished.recv().await {
        all.extend(latencies);
    }
    let took = began.elapsed();
    Row {
        writers,
        value_bytes: VALUE_BYTES,
        puts: all.len(),
        puts_per_second: all.len() as f64 / took.as_secs_f64(),
        p50_ms: millis(all.quantile(0.5)),
        p99_ms: millis(all.quantile(0.99)),
    }
}

/// The figures for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["WRITERS", "PUTS/S", "P50", "P99"]);
    for row in rows {
        table.row([
            row.writers.to_string(),
            format!("{:.0}", row.puts_per_second),
            format!("{:.3} ms", row.p50_ms),
            format!("{:.3} ms", row.p99_ms),
        ]);
    }
    table
}
