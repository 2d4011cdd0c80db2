//! Claims about the pump: order, progress, backing off, halting and draining, over a feed in memory.

use std::collections::VecDeque;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, advance};

use super::*;
use crate::error::{SinkError, SinkErrorKind};
use crate::feed::Batch;
use crate::id::{Incarnation, Lsn};
use crate::sink::MemFeed;
use crate::sink::PumpState;
use crate::sink::SinkContext;
use crate::tasks::Threads;

/// What a [`Scripted`] sink does next, and what happened to it.
struct Script {
    /// Answers of `resume`; when they run out, it has no position of its own.
    resumes: VecDeque<Result<Option<u64>, SinkErrorKind>>,
    /// Runs that are still to panic at their first write.
    panics: u32,
    /// Up to where writes become durable by themselves.
    durable_until: u64,
    written: u64,
    answered: u64,
    records: u64,
    idle: Vec<Duration>,
    calls: Vec<String>,
    runs: Vec<Duration>,
    starts: Vec<u64>,
}

struct Scripted {
    script: Arc<Mutex<Script>>,
    changed: Arc<Notify>,
    start: Instant,
}

fn cursor(lsn: u64) -> Cursor {
    Cursor { incarnation: Incarnation::new(5), lsn: Lsn::new(lsn) }
}

#[async_trait]
impl Sink for Scripted {
    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        let mut script = self.script.lock();
        script.runs.push(self.start.elapsed());
        let answer = match script.resumes.pop_front().unwrap_or(Ok(None)) {
            Ok(answer) => answer.map(cursor),
            Err(kind) => return Err(SinkError::new(kind, "scripted")),
        };
        script.written = answer.unwrap_or(ctx.checkpoint).lsn.get();
        script.answered = script.written;
        let start = script.written;
        script.starts.push(start);
        Ok(answer)
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        let mut script = self.script.lock();
        assert!(script.panics == 0 || std::mem::replace(&mut script.panics, 0) == 0, "scripted panic");
        assert_eq!(batch.start().lsn.get(), script.written, "a batch goes on where the last one ended");
        script.written = batch.end().lsn.get();
        script.records += batch.records();
        if batch.resolved().is_some() {
            script.idle.push(self.start.elapsed());
        }
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        loop {
            {
                let mut script = self.script.lock();
                let durable = script.written.min(script.durable_until);
                if durable > script.answered {
                    script.answered = durable;
                    return Ok(cursor(durable));
                }
                if script.durable_until == CLAIMS {
                    return Ok(cursor(script.written + 1));
                }
            }
            self.changed.notified().await;
        }
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        let mut script = self.script.lock();
        script.calls.push("sync".into());
        Ok(cursor(script.written))
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.script.lock().calls.push("close".into());
        Ok(())
    }
}

/// As `durable_until`: the sink claims more than it was given.
const CLAIMS: u64 = u64::MAX - 1;

struct Bench {
    log: MemFeed,
    script: Arc<Mutex<Script>>,
    changed: Arc<Notify>,
    reported: Arc<Mutex<Vec<u64>>>,
    tasks: Tasks,
    handle: PumpHandle,
}

async fn bench(settings: PumpSettings, prepare: impl FnOnce(&MemFeed, &mut Script)) -> Bench {
    let log = MemFeed::sample();
    let mut script = Script {
        resumes: VecDeque::new(),
        panics: 0,
        durable_until: u64::MAX,
        written: 0,
        answered: 0,
        records: 0,
        idle: Vec::new(),
        calls: Vec::new(),
        runs: Vec::new(),
        starts: Vec::new(),
    };
    prepare(&log, &mut script);
    let (script, changed) = (Arc::new(Mutex::new(script)), Arc::new(Notify::new()));
    let reported: Arc<Mutex<Vec<u64>>> = Arc::default();
    let sink = Scripted { script: script.clone(), changed: changed.clone(), start: Instant::now() };
    let tasks = Tasks::new(Threads::Inline);
    let seen = reported.clone();
    let pump = Pump {
        name: "scripted".into(),
        log: Arc::new(log.clone()),
        settings,
        random: Random::from_seed(3),
        checkpoint: None,
        on_durable: Arc::new(move |cursor| seen.lock().push(cursor.lsn.get())),
        letters: None,
        news: News::default(),
        fill: None,
    };
    let handle = pump.spawn(&tasks, Box::new(sink));
    Bench { log, script, changed, reported, tasks, handle }
}

impl Bench {
    fn put(&self, records: u64) {
        for record in 0..records {
            self.log.put(&format!("k{record}"), 1_000);
        }
    }

    fn allow(&self, durable_until: u64) {
        self.script.lock().durable_until = durable_until;
        self.changed.notify_one();
    }
}

async fn pass(millis: u64) {
    for _ in 0..millis {
        advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
}

fn no_jitter() -> PumpSettings {
    let backoff = BackoffSettings { jitter_percent: 0, ..BackoffSettings::default() };
    PumpSettings { backoff, ..PumpSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_handed_over_in_order_and_reported_when_durable() {
    let bench = bench(PumpSettings::default(), |log, _| log.put("before", 10)).await;
    pass(1).await;
    bench.put(200);
    pass(10).await;
    assert_eq!(bench.script.lock().records, 201);
    assert_eq!(bench.reported.lock().last(), Some(&201));
    assert!(bench.reported.lock().is_sorted());
    assert_eq!(bench.handle.status().durable, Some(cursor(201)));
}

#[tokio::test(start_paused = true)]
async fn f32_a_sink_that_answers_nothing_holds_no_more_than_the_window() {
    let settings = PumpSettings { window_bytes: 100_000, ..PumpSettings::default() };
    let bench = bench(settings, |_, script| script.durable_until = 0).await;
    bench.put(1_000);
    pass(500).await;
    let written = bench.script.lock().written;
    assert!((90..=170).contains(&written), "{written} records of 1,000 bytes");
    assert!(bench.reported.lock().is_empty(), "nothing is durable");
    bench.allow(u64::MAX);
    pass(500).await;
    assert_eq!(bench.reported.lock().last(), Some(&1_000));
}

#[tokio::test(start_paused = true)]
async fn progress_without_records_comes_fast_after_records_and_then_once_a_second() {
    let bench = bench(PumpSettings::default(), |log, _| log.put("a", 10)).await;
    pass(4_600).await;
    let times =
        |bench: &Bench| -> Vec<u128> { bench.script.lock().idle.iter().map(Duration::as_millis).collect() };
    assert_eq!(times(&bench).len(), 7);
    let steps: Vec<u128> = times(&bench).windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        steps.iter().zip([200, 400, 800, 1_000, 1_000]).all(|(got, want)| got.abs_diff(want) < 5),
        "{steps:?}"
    );
    assert_eq!(bench.handle.status().state, PumpState::CaughtUp);
    bench.log.put("b", 10);
    pass(120).await;
    assert_eq!(times(&bench).len(), 8, "fast again");
    bench.log.set_busy(true);
    pass(3_000).await;
    assert_eq!(times(&bench).len(), 8, "no promise while something is on its way into the log");
}

#[tokio::test(start_paused = true)]
async fn failed_runs_back_off_and_progress_forgets_them() {
    let failures = [SinkErrorKind::Transient, SinkErrorKind::Destination, SinkErrorKind::Transient];
    let bench = bench(no_jitter(), |log, script| {
        log.put("a", 10);
        script.resumes = failures.into_iter().map(Err).collect();
    })
    .await;
    pass(250).await;
    let status = bench.handle.status();
    assert_eq!((status.state, status.failures), (PumpState::BackingOff, 2));
    assert!(status.error.unwrap().contains("scripted"));
    pass(800).await;
    let runs: Vec<u128> = bench.script.lock().runs.iter().map(Duration::as_millis).collect();
    assert!(runs.iter().zip([0_u128, 100, 300, 700]).all(|(got, want)| got.abs_diff(want) < 5), "{runs:?}");
    let status = bench.handle.status();
    assert_eq!((status.failures, status.error), (0, None));
    assert_eq!(bench.script.lock().calls, ["close"; 3], "every run ends with a close");
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_where_the_destination_says_or_else_at_what_was_durable() {
    let bench = bench(no_jitter(), |_, script| {
        script.durable_until = 30;
        script.resumes = [Ok(None), Ok(None), Ok(Some(7))].into();
    })
    .await;
    bench.put(40);
    pass(5).await;
    assert_eq!((bench.script.lock().written, bench.reported.lock().last().copied()), (40, Some(30)));
    for _ in 0..2 {
        bench.script.lock().panics = 1;
        bench.log.put("more", 10);
        pass(300).await;
    }
    assert_eq!(bench.script.lock().starts, [0, 30, 7]);
    assert_eq!(bench.script.lock().written, 42);
    assert!(bench.reported.lock().contains(&7), "what a restored destination says is passed on");
}

#[tokio::test(start_paused = true)]
async fn f41_a_panic_in_a_sink_is_a_failed_run_and_not_the_end_of_the_pump() {
    let bench = bench(PumpSettings::default(), |log, script| {
        log.put("a", 10);
        script.panics = 1;
    })
    .await;
    pass(10).await;
    assert!(bench.handle.status().error.unwrap().contains("scripted panic"));
    pass(200).await;
    assert_eq!((bench.script.lock().records, bench.tasks.panics().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_settings_halts_until_somebody_restarts() {
    let bench = bench(PumpSettings::default(), |log, script| {
        log.put("a", 10);
        script.resumes = [Err(SinkErrorKind::Config)].into();
    })
    .await;
    pass(60_000).await;
    assert_eq!(bench.handle.status().state, PumpState::Halted);
    assert_eq!(bench.script.lock().runs.len(), 1);
    bench.handle.restart();
    pass(10).await;
    assert_eq!(bench.script.lock().records, 1);
}

#[tokio::test(start_paused = true)]
async fn a_halted_pump_tries_again_slowly_if_the_settings_say_so() {
    let settings = PumpSettings { halted_retry: Some(Duration::from_secs(30)), ..PumpSettings::default() };
    let bench = bench(settings, |_, script| script.resumes = [Err(SinkErrorKind::Config)].into()).await;
    pass(29_000).await;
    assert_eq!(bench.script.lock().runs.len(), 1);
    pass(2_000).await;
    assert_eq!(bench.script.lock().runs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_claims_what_it_was_not_given_is_halted() {
    let bench = bench(PumpSettings::default(), |_, script| script.durable_until = CLAIMS).await;
    pass(5).await;
    assert_eq!(bench.handle.status().state, PumpState::Halted);
    assert!(bench.reported.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cursor_below_the_log_halts_with_the_lowest_position() {
    let bench = bench(PumpSettings::default(), |log, _| {
        log.put("a", 10);
        log.put("b", 10);
        log.trim(Lsn::new(1));
    })
    .await;
    pass(5).await;
    let status = bench.handle.status();
    assert_eq!(status.state, PumpState::Halted);
    assert!(status.error.unwrap().contains("begins at 1"));
}

#[tokio::test(start_paused = true)]
async fn f40_a_stop_makes_durable_what_was_taken_over_and_closes() {
    let bench = bench(PumpSettings::default(), |_, script| script.durable_until = 0).await;
    bench.put(10);
    pass(5).await;
    bench.handle.stop().await;
    assert_eq!(bench.reported.lock().as_slice(), [10]);
    assert_eq!(bench.script.lock().calls, ["sync", "close"]);
    assert_eq!(bench.handle.status().state, PumpState::Stopped);
    bench.put(10);
    pass(100).await;
    assert_eq!(bench.script.lock().records, 10, "a stopped pump reads no more");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_until_all_is_durable_or_its_budget_is_over() {
    let bench = bench(PumpSettings::default(), |_, _| {}).await;
    bench.put(500);
    assert!(bench.handle.drain(Duration::from_secs(10)).await);
    assert_eq!(bench.reported.lock().last(), Some(&500));
    bench.tasks.join().await;
}
