//! Live writes in an open loop, and how long they take to be seen elsewhere.

use std::time::Duration;

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::Tree;
use tokio::time::{Instant, sleep, sleep_until};

use super::replicate::{BACKLOG, sets};
use crate::local::{Latencies, PROBE_PREFIX, Probes};

/// Tasks that write.
const LANES: u32 = 32;
/// Entries of one write.
const BATCH: u64 = 100;
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// A rate is held if everything is seen, nothing later than this.
const LAG: Duration = Duration::from_secs(1);
/// How long a rate is tried that may be the highest.
const TRY: Duration = Duration::from_secs(3);
/// How long the highest rate must be held.
const HOLD: Duration = Duration::from_secs(30);
const STEP: f64 = 1.2;
const STEPS: usize = 12;

/// What one rate did.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) entries: u64,
    pub(super) entries_per_second: f64,
    /// From the answer to the writer to the sight at the other end.
    pub(super) visible: Latencies,
    held: bool,
}

/// The highest rate that is held for half a minute, of rates a fifth apart, and what it did.
pub(super) async fn peak(from: &Tree, to: &Tree, start: f64) -> Result<Live, Error> {
    let mut rate = start;
    let mut upwards = None;
    for _ in 0..STEPS {
        let held = run(from, to, rate, TRY).await?.held;
        // Up to the first that is not held, or down to the first that is.
        if *upwards.get_or_insert(held) != held {
            rate = if held { rate } else { rate / STEP };
            break;
        }
        rate = if held { rate * STEP } else { rate / STEP };
    }
    for _ in 0..STEPS {
        let live = run(from, to, rate, HOLD).await?;
        if live.held {
            return Ok(live);
        }
        rate /= STEP;
    }
    Err(Error::new(ErrorKind::Unavailable, format!("not even {rate:.0} entries/s arrive within a second")))
}

/// Writes are due at fixed times, whatever the answers take.
pub(super) async fn run(from: &Tree, to: &Tree, rate: f64, lasting: Duration) -> Result<Live, Error> {
    let (tasks, writers) = (Tasks::new(Threads::Spawn), Tasks::new(Threads::Spawn));
    let probes = Probes::default();
    probes.watch(&tasks, to);
    let batches = ((rate * lasting.as_secs_f64() / BATCH as f64) as u32).max(1);
    let began = Instant::now();
    for lane in 0..LANES {
        let tree = from.clone();
        writers.spawn("live writes", async move {
            for at in (lane..batches).step_by(LANES as usize) {
                sleep_until(began + lasting.mul_f64(f64::from(at) / f64::from(batches))).await;
                if let Err(error) = tree.batch(sets(u64::from(at) * BATCH % BACKLOG, BATCH)).await {
                    tracing::warn!(%error, "live writes end");
                    return;
                }
            }
        });
    }
    let wanted = lasting.div_duration_f64(PROBE_EVERY) as u32;
    for at in 0..wanted {
        sleep_until(began + PROBE_EVERY * at).await;
        let (probes, tree) = (probes.clone(), from.clone());
        writers.spawn("probe", async move {
            if let Err(error) = probes.write(&tree, &format!("{PROBE_PREFIX}{at}"), "p".into()).await {
                tracing::warn!(%error, "a probe was not taken");
            }
        });
    }
    writers.join().await;
    let took = began.elapsed();
    let end = Instant::now() + LAG;
    while probes.commit_to_visible().len() < wanted as usize && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    tasks.join().await;
    let mut visible = probes.commit_to_visible();
    let seen = visible.len() == wanted as usize && visible.quantile(1.0) <= LAG;
    let entries = u64::from(batches) * BATCH;
    Ok(Live {
        entries,
        entries_per_second: entries as f64 / took.as_secs_f64(),
        visible,
        held: seen && took <= lasting + LAG,
    })
}
