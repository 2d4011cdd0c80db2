//! Load on a [`Contender`]: writers are tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::contender::Contender;
use crate::failure::{Failure, Outcome};
use crate::latencies::Latencies;
use crate::turn::Figures;
use crate::window::{Laps, Window};
use crate::workload::{round_key, value};

/// How often an open loop lets writes go. All of one such moment are due at that moment.
const TICK: Duration = Duration::from_micros(100);
/// Most writes of an open loop that are on their way at once.
const OPEN_WRITERS: usize = 4_096;

async fn gather(mut tasks: JoinSet<Outcome<Latencies>>) -> Outcome<Latencies> {
    let mut all = Latencies::default();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}

/// Each writer writes, waits for the answer, and writes again; spread over several logs.
pub async fn closed<C: Contender>(
    logs: &[C],
    writers: usize,
    bytes: usize,
    seconds: f64,
) -> Outcome<Figures> {
    let window = Window::new(seconds);
    let value = value(bytes);
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        // A value of its own, as each request has: no counter is shared between threads.
        let (log, value) = (logs[writer % logs.len()].clone(), Bytes::copy_from_slice(&value));
        tasks.spawn(async move {
            let mut laps = Laps::new(window);
            for step in 0.. {
                log.append(round_key(writer, step), &value).await?;
                if !laps.next() {
                    break;
                }
            }
            Ok(laps.latencies())
        });
    }
    Ok(window.figures(gather(tasks).await?, 1))
}

/// One writer, so many records in one write.
pub async fn batches<C: Contender>(log: &C, records: usize, bytes: usize, seconds: f64) -> Outcome<Figures> {
    let window = Window::new(seconds);
    let (log, value) = (log.clone(), value(bytes));
    // A task, as the other writers: the main task does not run on a worker.
    let task = tokio::spawn(async move {
        let mut laps = Laps::new(window);
        loop {
            let keys = (0..records as u64).map(|key| round_key(0, key)).collect();
            log.append_many(keys, &value).await?;
            if !laps.next() {
                return Ok::<_, Failure>(laps.latencies());
            }
        }
    });
    Ok(window.figures(task.await??, records))
}

/// Writes come when they are due, whether or not the former ones have been answered; a latency counts from when a write
/// was due.
pub async fn open<C: Contender>(log: &C, per_second: f64, bytes: usize, seconds: f64) -> Outcome<Figures> {
    let window = Window::new(seconds);
    let began = Instant::now();
    let due = Arc::new(Semaphore::new(0));
    let (next, value) = (Arc::new(AtomicU64::new(0)), value(bytes));
    let mut tasks = JoinSet::new();
    for writer in 0..OPEN_WRITERS {
        let (log, due, next) = (log.clone(), due.clone(), next.clone());
        let value = Bytes::copy_from_slice(&value);
        tasks.spawn(async move {
            let mut latencies = Latencies::default();
            for step in 0.. {
                let Ok(permit) = due.acquire().await else { break };
                permit.forget();
                let place = next.fetch_add(1, Ordering::Relaxed) as f64;
                // The tick in which the sum of what is due passes this write's place.
                let ticks = ((place + 1.0) / (per_second * TICK.as_secs_f64())).ceil();
                let start = began + TICK.mul_f64(ticks);
                log.append(round_key(writer, step), &value).await?;
                let end = Instant::now();
                if window.holds(end) {
                    latencies.record(end.saturating_duration_since(start));
                }
            }
            Ok(latencies)
        });
    }
    let pacer = std::thread::spawn({
        let due = due.clone();
        move || pace(&due, began, window.to, per_second)
    });
    let latencies = gather(tasks).await;
    pacer.join().map_err(|_| "the pacer panicked")?;
    Ok(window.figures(latencies?, 1))
}

/// Lets writes go at their ticks; those that a late tick missed go with it.
fn pace(due: &Semaphore, began: Instant, end: Instant, per_second: f64) {
    let mut released = 0;
    for tick in 1_u32.. {
        let at = began + TICK * tick;
        if at >= end {
            break;
        }
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let total = (per_second * TICK.as_secs_f64() * f64::from(tick)) as usize;
        due.add_permits(total - released);
        released = total;
    }
    due.close();
}
