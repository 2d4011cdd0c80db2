//! Live writes: an open loop, and probes whose way is timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::{Failure, Outcome};
use crate::sights::{Lags, Sights};
use crate::system::{Source, System};

/// The most entries of one live write.
const BATCH: f64 = 100.0;
/// Writes each second at least, as long as one entry each is enough for that.
const WRITES: f64 = 200.0;
/// Live writes under way at once; more are late, and it shows.
const LANES: u64 = 32;
/// Between two probes.
const PROBE: Duration = Duration::from_millis(10);
/// A probe that is not seen so long after its turn is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// A write that is so late is not written any more.
const TOO_LATE: Duration = Duration::from_secs(2);
/// Lag that a peak may have.
const LAG: Duration = Duration::from_secs(1);

/// What one stretch of live writes gave.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub per_second: f64,
    pub lags: Lags,
    /// The longest that a write was answered after it was due; none if one was left out.
    latest: Option<Duration>,
}

impl Live {
    /// Whether the rate was held: every write answered and every probe seen within the lag allowed, counted from when it
    /// was due.
    fn held(&self) -> bool {
        self.lags.longest.is_some_and(|lag| lag < LAG) && self.latest.is_some_and(|late| late < LAG)
    }
}

/// Where live writing stands: which entries are new, and which probes.
pub struct LiveWrites {
    source: Arc<dyn Source>,
    next_entry: u64,
    next_probe: u64,
}

impl LiveWrites {
    /// Behind a backlog of so many entries.
    pub async fn new(system: &mut dyn System, entries: u64) -> Outcome<Self> {
        Ok(Self { source: system.source().await?, next_entry: entries, next_probe: 0 })
    }

    /// Entries at a rate for a while, due at fixed times, whatever the answers take.
    pub async fn run(
        &mut self,
        system: &mut dyn System,
        per_second: f64,
        lasting: Duration,
    ) -> Outcome<Live> {
        let sights = Sights::default();
        let watch = system.watch(sights.clone()).await?;
        let batch = (per_second / WRITES).clamp(1.0, BATCH).floor();
        let writes = (per_second * lasting.as_secs_f64() / batch).ceil() as u64;
        let (batch, pace) = (batch as u64, lasting.as_secs_f64() / writes.max(1) as f64);
        let began = Instant::now() + Duration::from_millis(20);
        let first_entry = self.next_entry;
        self.next_entry += writes * batch;
        let mut tasks = JoinSet::new();
        let (turn, latest) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Some(Duration::ZERO))));
        for _ in 0..LANES.min(writes) {
            let (source, turn, latest) = (self.source.clone(), turn.clone(), latest.clone());
            tasks.spawn(async move {
                loop {
                    let at = turn.fetch_add(1, Ordering::Relaxed);
                    let due = began + Duration::from_secs_f64(pace * at as f64);
                    if at >= writes {
                        return Ok::<(), Failure>(());
                    }
                    // What is far too late is left out: the rate is not held, and the time is better spent.
                    if due.elapsed() > TOO_LATE {
                        *latest.lock() = None;
                        return Ok(());
                    }
                    sleep_until(due).await;
                    source.write(first_entry + at * batch, batch).await?;
                    let mut latest = latest.lock();
                    *latest = latest.map(|latest| latest.max(due.elapsed()));
                }
            });
        }
        let probes = (lasting.as_secs_f64() / PROBE.as_secs_f64()) as u64;
        for at in 0..probes {
            let due = began + PROBE * u32::try_from(at)?;
            sleep_until(due).await;
            let number = self.next_probe + at;
            sights.due(number, due);
            let (source, sights) = (self.source.clone(), sights.clone());
            tasks.spawn(async move {
                source.probe(number, &sights).await?;
                Ok(())
            });
        }
        self.next_probe += probes;
        let end = began + lasting + PATIENCE;
        while let Ok(Some(done)) = tokio::time::timeout_at(end, tasks.join_next()).await {
            done??;
        }
        while sights.first_unseen().is_some() && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
        }
        drop(watch);
        let latest = *latest.lock();
        Ok(Live { per_second, lags: sights.lags(), latest })
    }

    /// The highest of a row of rates that is held: from `start` downwards, or upwards if that is held.
    pub async fn peak(&mut self, system: &mut dyn System, start: f64, lasting: Duration) -> Outcome<f64> {
        const STEP: f64 = 1.3;
        let mut rate = start;
        let mut held = self.run(system, rate, lasting).await?.held();
        let upwards = held;
        for _ in 0..8 {
            let next = if upwards { rate * STEP } else { rate / STEP };
            let holds = self.run(system, next, lasting).await?.held();
            if upwards && !holds {
                return Ok(rate);
            }
            (rate, held) = (next, holds);
            if !upwards && held {
                break;
            }
        }
        if held { Ok(rate) } else { Err("no rate is held".into()) }
    }
}
