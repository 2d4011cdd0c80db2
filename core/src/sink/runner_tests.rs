//! Claims about sinks under a runner: leases, checkpoints, poison, stalls and supervision, over a feed in memory.

use std::time::Duration;

use tokio::time::{advance, sleep};

use super::*;
use crate::clock::SystemClock;
use crate::error::SinkErrorKind;
use crate::id::{BootId, Lsn};
use crate::meta::{FaultyMeta, MemMeta, MetaStore};
use crate::metrics::Metrics;
use crate::sink::{MemDestination, MemFeed, OnPoison, Others, SinkCall, SinkFault, SinkFaults, SinkState};
use crate::tasks::Threads;
use crate::tree::LogView;

struct Bench {
    log: MemFeed,
    meta: Arc<dyn MetaStore>,
    tasks: Tasks,
    destination: MemDestination,
    faults: SinkFaults,
    settings: SinkSettings,
    boot: u64,
    letter_bytes: u64,
}

impl Bench {
    fn new() -> Self {
        Self::on(Arc::new(MemMeta::new()))
    }

    fn on(meta: Arc<dyn MetaStore>) -> Self {
        Self {
            log: MemFeed::sample(),
            meta,
            tasks: Tasks::new(Threads::Inline),
            destination: MemDestination::new(),
            faults: SinkFaults::new(),
            settings: SinkSettings::default(),
            boot: 1,
            letter_bytes: 1_000_000,
        }
    }

    async fn spawn(&self, name: &str) -> SinkHandle {
        let (tree, sink) = (self.log.identity().tree, SinkName::new(name).expect("a name"));
        let letters = DeadLetters::open(self.meta.clone(), &tree, &sink, self.letter_bytes).await;
        let runner = SinkRunner {
            cursors: Arc::new(Registry::open(self.meta.clone(), &tree).await.expect("readable")),
            leases: Leases::new(
                self.meta.clone(),
                BootId::new(self.boot),
                Others::MayLive,
                Duration::from_secs(15),
            ),
            letters: Arc::new(letters.expect("readable")),
            log: Arc::new(self.log.clone()),
            settings: self.settings.clone(),
            wall: Arc::new(SystemClock),
            random: Random::from_seed(5),
            metrics: SinkMetrics::new(&Metrics::default()),
            name: sink,
            tree,
        };
        runner.spawn(&self.tasks, Box::new(self.faults.wrap(self.destination.sink())), false)
    }

    fn put(&self, from: u64, to: u64) {
        (from..to).for_each(|n| self.log.put(&format!("k{n}"), 10));
    }

    /// Keys as they arrived.
    fn keys(&self) -> Vec<String> {
        let held = self.destination.held();
        held.iter().map(|held| String::from_utf8_lossy(&held.key).into_owned()).collect()
    }

    async fn stored(&self, sink: &str) -> Option<u64> {
        let value = self.meta.get(&format!("cursor/orders/sink {sink}")).await.expect("readable")?;
        let text = String::from_utf8(value.to_vec()).expect("text");
        Some(text.parse::<Cursor>().ok()?.lsn.get())
    }
}

fn names(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|n| format!("k{n}")).collect()
}

async fn seconds(seconds: u64) {
    for _ in 0..seconds * 100 {
        advance(Duration::from_millis(10)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f39_a_sink_goes_on_at_the_stored_position_whoever_runs_it() {
    let mut bench = Bench::new();
    bench.put(0, 10);
    let sink = bench.spawn("out").await;
    seconds(3).await;
    assert_eq!((sink.status().state, bench.stored("out").await), (SinkState::CaughtUp, Some(10)));
    sink.stop().await;
    bench.put(10, 20);
    bench.boot = 2;
    bench.spawn("out").await;
    seconds(3).await;
    assert_eq!(bench.keys(), names(0..20), "nothing twice after an orderly stop");
}

#[tokio::test(start_paused = true)]
async fn f40_an_orderly_stop_stores_the_last_position_and_gives_the_lease_back_at_once() {
    let mut bench = Bench::new();
    bench.settings.checkpoint_every = Duration::from_secs(3_600);
    let sink = bench.spawn("out").await;
    bench.put(0, 10);
    seconds(1).await;
    assert_eq!(bench.stored("out").await, Some(0), "only the beginning is stored");
    sink.stop().await;
    assert_eq!((bench.stored("out").await, sink.status().state), (Some(10), SinkState::Stopped));
    assert_eq!(bench.meta.list("lease/").await.expect("readable"), []);
    assert_eq!(bench.destination.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn f37_a_holder_that_cannot_be_reached_is_taken_over_and_ends_when_it_is_back() {
    let store = MemMeta::new();
    let cut = FaultyMeta::new(Arc::new(store.clone()));
    let old = Bench::on(Arc::new(cut.clone()));
    let mut new = Bench::on(Arc::new(store));
    new.log = old.log.clone();
    new.boot = 2;
    old.put(0, 5);
    let first = old.spawn("out").await;
    seconds(2).await;
    assert_eq!(first.status().state, SinkState::CaughtUp);
    cut.fail_next_commits(1_000_000);
    let second = new.spawn("out").await;
    seconds(40).await;
    assert_eq!(second.status().state, SinkState::CaughtUp);
    assert_eq!(first.status().state, SinkState::Starting, "{:?}", first.status());
    old.put(5, 10);
    seconds(3).await;
    assert_eq!(new.keys(), names(5..10), "the one that holds the lease delivers");
    assert_eq!(old.keys(), names(0..5), "the other one does not");
}

#[tokio::test(start_paused = true)]
async fn f34_a_destination_that_is_down_parks_nothing_and_is_tried_for_ever() {
    let mut bench = Bench::new();
    bench.settings.pump.on_poison = OnPoison::DeadLetter;
    bench.put(0, 10);
    bench.faults.order_next(SinkCall::Write, 10, SinkFault::Fail(SinkErrorKind::Destination));
    bench.faults.order_next(SinkCall::Resume, 4, SinkFault::Fail(SinkErrorKind::Transient));
    let sink = bench.spawn("out").await;
    seconds(30).await;
    let status = sink.status();
    assert_eq!((status.state, status.dead_letters), (SinkState::BackingOff, 0));
    assert!(status.failures > 3 && status.reason.expect("a reason").contains("on order"));
    seconds(900).await;
    assert_eq!((bench.keys(), sink.status().state), (names(0..10), SinkState::CaughtUp));
    assert_eq!((sink.status().failures, sink.status().dead_letters), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn f35_only_the_records_that_are_not_taken_are_parked_and_the_rest_arrives() {
    let mut bench = Bench::new();
    bench.settings.pump.on_poison = OnPoison::DeadLetter;
    bench.put(0, 100);
    bench.faults.reject(|change| [&b"k0"[..], b"k41", b"k42", b"k99"].contains(&&change.key[..]));
    let sink = bench.spawn("out").await;
    seconds(3).await;
    let mut expected = names(0..100);
    expected.retain(|key| !["k0", "k41", "k42", "k99"].contains(&key.as_str()));
    let mut arrived = bench.keys();
    arrived.sort_unstable();
    arrived.dedup();
    let mut sorted = expected.clone();
    sorted.sort_unstable();
    assert_eq!(arrived, sorted);
    let status = sink.status();
    assert_eq!((status.state, status.dead_letters, status.lag_entries), (SinkState::CaughtUp, 4, 0));
    let letters = sink.dead_letters().list().await.expect("readable");
    let lsns: Vec<u64> = letters.iter().map(|letter| letter.at.lsn.get()).collect();
    assert_eq!(lsns, [0, 41, 42, 99]);
    assert!(bench.faults.calls(SinkCall::Resume) < 60, "{} runs", bench.faults.calls(SinkCall::Resume));
    // What is parked stays left out, also after a restart, and is not asked for again.
    sink.stop().await;
    bench.put(100, 110);
    bench.spawn("out").await;
    seconds(3).await;
    assert_eq!(bench.keys().split_off(bench.keys().len() - 10), names(100..110));
}

#[tokio::test(start_paused = true)]
async fn f35_a_sink_that_stops_at_poison_says_where_and_loses_nothing() {
    let bench = Bench::new();
    bench.put(0, 20);
    bench.faults.reject(|change| change.key == "k7");
    let sink = bench.spawn("out").await;
    seconds(200).await;
    let status = sink.status();
    let reason = status.reason.expect("a reason");
    assert_eq!((status.state, status.durable.expect("known").lsn), (SinkState::Halted, Lsn::new(7)));
    assert!(reason.contains("record at 7 (dot a/") && reason.contains("dead_letter"), "{reason}");
    bench.faults.heal();
    sink.restart();
    seconds(3).await;
    assert_eq!((sink.status().state, sink.status().dead_letters), (SinkState::CaughtUp, 0));
    assert_eq!(bench.keys(), names(0..20));
}

#[tokio::test(start_paused = true)]
async fn full_dead_letters_stop_the_sink_and_park_nothing_more() {
    let mut bench = Bench::new();
    bench.settings.pump.on_poison = OnPoison::DeadLetter;
    bench.letter_bytes = 160;
    bench.put(0, 10);
    bench.faults.reject(|change| change.key == "k3" || change.key == "k5");
    let sink = bench.spawn("out").await;
    seconds(200).await;
    let status = sink.status();
    assert_eq!((status.state, status.dead_letters), (SinkState::Halted, 1));
    assert!(status.reason.expect("a reason").contains("dead-letters list"));
}

#[tokio::test(start_paused = true)]
async fn f42_a_destination_that_owes_an_answer_is_stalled_by_name() {
    let bench = Bench::new();
    bench.faults.order(SinkCall::Durable, 0, SinkFault::Hang);
    let sink = bench.spawn("out").await;
    seconds(100).await;
    assert_eq!(sink.status().state, SinkState::CaughtUp, "nothing is owed");
    bench.put(0, 3);
    seconds(29).await;
    assert_eq!(sink.status().state, SinkState::Running);
    seconds(5).await;
    let status = sink.status();
    assert_eq!((status.state, status.lag_entries), (SinkState::Stalled, 3));
    assert!(status.reason.expect("a reason").contains("no acknowledgement for"));
}

#[tokio::test(start_paused = true)]
async fn f41_a_panic_in_one_sink_touches_no_other() {
    let bench = Bench::new();
    let mut other = Bench::on(bench.meta.clone());
    other.log = bench.log.clone();
    bench.faults.order_next(SinkCall::Write, 1_000, SinkFault::Panic);
    let (bad, good) = (bench.spawn("bad").await, other.spawn("good").await);
    bench.put(0, 50);
    seconds(10).await;
    assert_eq!((good.status().state, other.keys()), (SinkState::CaughtUp, names(0..50)));
    let status = bad.status();
    assert_eq!(status.state, SinkState::BackingOff);
    assert!(status.reason.expect("a reason").contains("panics on order"));
    assert_eq!(bench.tasks.panics(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_sink_sleeps_until_there_is_something_and_a_paused_one_keeps_its_place() {
    let bench = Bench::new();
    let sink = bench.spawn("out").await;
    seconds(60).await;
    assert_eq!((sink.status().state, bench.faults.calls(SinkCall::Resume)), (SinkState::CaughtUp, 0));
    bench.put(0, 5);
    seconds(1).await;
    sink.pause().await;
    assert_eq!((sink.status().state, bench.keys()), (SinkState::Paused, names(0..5)));
    bench.put(5, 10);
    seconds(20).await;
    assert_eq!(
        (bench.keys(), sink.status().lag_entries, bench.stored("out").await),
        (names(0..5), 5, Some(5))
    );
    sink.resume();
    seconds(2).await;
    assert_eq!(bench.keys(), names(0..10));
}

#[tokio::test(start_paused = true)]
async fn a_new_sink_starts_where_it_is_told() {
    let mut bench = Bench::new();
    bench.put(0, 5);
    bench.log.trim(Lsn::new(2));
    bench.spawn("all").await;
    seconds(1).await;
    assert_eq!(bench.keys(), names(2..5), "from the beginning of what is retained");
    bench.destination = MemDestination::new();
    bench.settings.start = Start::Now;
    bench.spawn("new").await;
    seconds(1).await;
    bench.put(5, 7);
    seconds(1).await;
    assert_eq!(bench.keys(), names(5..7));
}

#[tokio::test(start_paused = true)]
async fn a_drain_delivers_what_is_there_before_it_ends() {
    let bench = Bench::new();
    let sink = bench.spawn("out").await;
    seconds(1).await;
    bench.put(0, 300);
    assert!(sink.drain(Duration::from_secs(5)).await);
    assert_eq!((bench.keys().len(), bench.stored("out").await), (300, Some(300)));
    sleep(Duration::from_secs(1)).await;
    bench.tasks.join().await;
}
