//! Entries per second from a prepared log into Kafka, beside a bare producer loop: the same client, the same settings,
//! topics alike, in turn. What the sink costs above the loop is what it does: reading and checking the log, decoding,
//! leaving out what lost, hashing keys, counting what has arrived.

mod bare;
mod brokers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_connectors::kafka::{KafkaConfig, KafkaSink};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::random::Random;
use tidewire_core::sink::{News, Pump, PumpSettings};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{LogView, Operation, Tree};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::bare::Headers;
use self::brokers::Brokers;
use crate::cli::Table;
use crate::local::LocalSite;

const VALUE_BYTES: usize = 256;
const BATCH: u64 = 1_000;
const PAIRS: usize = 7;
const PARTITIONS: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(120);

/// What is measured, and against what.
pub(super) struct Plan {
    pub(super) brokers: Option<String>,
    pub(super) entries: u64,
}

/// Entries per second: all runs, and where the middle ones lie.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    who: &'static str,
    entries: u64,
    value_bytes: usize,
    median_per_second: f64,
    runs_per_second: Vec<f64>,
}

/// The sink's rate by the loop's rate, pair by pair.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    against: &'static str,
    lower_quartile: f64,
    median: f64,
    upper_quartile: f64,
}

/// The whole measurement.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    brokers: &'static str,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

/// The key of an entry; the same for the loop and for the tree.
fn key(at: u64) -> String {
    format!("key-{at:09}")
}

/// Prepares the backlog, and drains it in turn with the loops.
pub(super) async fn measure(dir: &Path, plan: &Plan) -> Result<Figures, Error> {
    let brokers = Brokers::open(plan.brokers.as_deref())?;
    let mut site = LocalSite::start("sender", dir).await?;
    let runs = match site.tree() {
        Some(tree) => {
            prepare(tree, plan.entries).await?;
            alternate(tree, &brokers, plan.entries).await?
        }
        None => Vec::new(),
    };
    site.shutdown().await?;
    let rates = |which: usize| -> Vec<f64> {
        runs.iter().map(|run| plan.entries as f64 / run[which].as_secs_f64()).collect()
    };
    let row = |who, which| {
        let runs = rates(which);
        let median = quantile(&runs, 0.5);
        Row {
            who,
            entries: plan.entries,
            value_bytes: VALUE_BYTES,
            median_per_second: median,
            runs_per_second: runs,
        }
    };
    let ratio = |against, which| {
        let pairs: Vec<f64> = rates(0).iter().zip(rates(which)).map(|(sink, loops)| sink / loops).collect();
        let at = |share| quantile(&pairs, share);
        Ratio { against, lower_quartile: at(0.25), median: at(0.5), upper_quartile: at(0.75) }
    };
    Ok(Figures {
        brokers: brokers.kind(),
        rows: vec![row("sink", 0), row("loop, same messages", 1), row("loop, no headers", 2)],
        ratios: vec![ratio("loop, same messages", 1), ratio("loop, no headers", 2)],
    })
}

async fn prepare(tree: &Tree, entries: u64) -> Result<(), Error> {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    for first in (0..entries).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let sets =
            (first..entries.min(first + BATCH)).map(|at| Operation::Set(key(at).into(), value.clone()));
        tree.batch(sets.collect()).await?;
    }
    Ok(())
}

/// Sink, loop with headers, loop without, and again. The first round warms up and is not counted.
async fn alternate(tree: &Tree, brokers: &Brokers, entries: u64) -> Result<Vec<[Duration; 3]>, Error> {
    let mut runs = Vec::new();
    for round in 0..=PAIRS {
        let mut took = [Duration::ZERO; 3];
        for (which, took) in took.iter_mut().enumerate() {
            let topic = brokers
                .create(&format!("tidewire-bench-{}-{round}-{which}", std::process::id()), PARTITIONS)?;
            let config = KafkaConfig::new(brokers.addresses(), &topic);
            *took = match which {
                0 => drain(tree, config).await?,
                1 => bare::produce(config, &topic, entries, Headers::Same).await?,
                _ => bare::produce(config, &topic, entries, Headers::None).await?,
            };
            brokers.remove(&topic);
        }
        if round > 0 {
            runs.push(took);
        }
    }
    Ok(runs)
}

/// From the start of the sink to the last entry durable.
async fn drain(tree: &Tree, config: KafkaConfig) -> Result<Duration, Error> {
    let sink = KafkaSink::new(config)?;
    let tasks = Tasks::new(Threads::Spawn);
    let (end, reached) = (tree.end(), Arc::new(Notify::new()));
    let tell = reached.clone();
    let pump = Pump {
        name: "bench".to_owned(),
        log: Arc::new(tree.clone()),
        settings: PumpSettings::default(),
        random: Random::from_seed(1),
        checkpoint: None,
        on_durable: Arc::new(move |cursor| {
            if cursor.lsn >= end.lsn {
                tell.notify_one();
            }
        }),
        letters: None,
        news: News::default(),
        fill: None,
    };
    let began = Instant::now();
    let handle = pump.spawn(&tasks, Box::new(sink));
    let done = timeout(PATIENCE, reached.notified()).await.is_ok();
    let took = began.elapsed();
    handle.stop().await;
    if done {
        return Ok(took);
    }
    let said = handle.status().error.unwrap_or_else(|| "not within two minutes".to_owned());
    Err(Error::new(ErrorKind::Unavailable, format!("the sink did not deliver everything: {said}")))
}

/// By linear interpolation between the neighbours.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => f64::NAN,
    }
}

/// The figures for people.
pub(super) fn table(figures: &Figures) -> Table {
    let mut table = Table::new(["WHO", "ENTRIES", "ENTRIES/S", "SINK BY IT", "QUARTILES"]);
    for row in &figures.rows {
        let ratio = figures.ratios.iter().find(|ratio| ratio.against == row.who);
        table.row([
            row.who.to_owned(),
            row.entries.to_string(),
            format!("{:.0}", row.median_per_second),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median)),
            ratio.map_or_else(
                || "-".to_owned(),
                |ratio| format!("{:.2} to {:.2}", ratio.lower_quartile, ratio.upper_quartile),
            ),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_their_neighbours() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| quantile(&values, share)),
            [1.0, 2.0, 3.0, 4.0, 5.0]
        );
        assert!((quantile(&[1.0, 2.0], 0.25) - 1.25).abs() < 1e-9);
    }
}
