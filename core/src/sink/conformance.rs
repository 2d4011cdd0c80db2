//! The claims that every [`Sink`] must hold, to be run by a test of the implementation.
//!
//! ```ignore
//! conformance(async || Box::new(MyRig::new()) as Box<dyn SinkRig>).await;
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use tokio::time::timeout;

use super::contract::{Sink, SinkContext};
use super::mem_feed::MemFeed;
use crate::feed::{Batch, Cursor, FeedSource, StateRow};
use crate::id::{Hlc, Lsn, Version};
use crate::random::Random;
use crate::record::{Kind, Mutation};
use crate::tasks::{Tasks, Threads};
use crate::tree::{ChangeView, LogView};

/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a sink that owes nothing is watched.
const QUIET: Duration = Duration::from_millis(50);

/// A change as a destination holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The key.
    pub key: Bytes,
    /// What it was set to; None: it was deleted.
    pub value: Option<Bytes>,
}

/// A destination under test.
#[async_trait]
pub trait SinkRig: Send + Sync {
    /// A sink into the destination, as a process makes one when it starts. The one before is gone, closed or not.
    async fn sink(&self) -> Box<dyn Sink>;

    /// Every change that the destination would still hold after a crash of everything at this moment, in its order for
    /// each key; those that came twice, twice.
    async fn held(&self) -> Vec<Held>;
}

/// Runs all claims. `make` answers a new, empty destination at each call.
///
/// # Panics
/// When a claim does not hold; the message begins with the claim.
pub async fn conformance(make: impl AsyncFn() -> Box<dyn SinkRig>) {
    Trial::new(make().await).an_answer_is_never_ahead_of_the_destination().await;
    Trial::new(make().await).a_sync_makes_everything_durable_that_was_taken_over().await;
    Trial::new(make().await).what_was_answered_once_is_not_answered_again().await;
    Trial::new(make().await).a_wait_that_is_dropped_loses_nothing().await;
    Trial::new(make().await).progress_without_records_moves_the_cursor().await;
    Trial::new(make().await).rows_of_the_state_are_durable_after_a_sync().await;
    Trial::new(make().await).the_changes_of_a_key_keep_their_order_and_deletes_are_deletes().await;
    Trial::new(make().await).a_crash_loses_nothing_behind_the_last_answer().await;
    Trial::new(make().await).a_second_run_claims_nothing_of_the_first().await;
    Trial::new(make().await).closing_is_harmless_at_any_time().await;
}

struct Trial {
    rig: Box<dyn SinkRig>,
    log: MemFeed,
    tasks: Tasks,
    random: Random,
    writes: u64,
}

impl Trial {
    fn new(rig: Box<dyn SinkRig>) -> Self {
        let (log, random) = (MemFeed::sample(), Random::from_seed(11));
        Self { rig, log, tasks: Tasks::new(Threads::Inline), random, writes: 0 }
    }

    /// Commits a few writes of a few keys, each with a value of its own, and now and then a delete.
    fn commit(&mut self) {
        let count = 1 + self.random.below(4);
        let writes: Vec<Mutation> = (0..count)
            .map(|_| {
                self.writes += 1;
                let key = format!("key-{}", self.random.below(5));
                match self.writes % 7 {
                    0 => Mutation::delete(key),
                    _ => Mutation::set(key, format!("value-{}", self.writes)),
                }
            })
            .collect();
        self.log.push(&writes);
    }

    fn start(&self) -> Cursor {
        Cursor { lsn: Lsn::ZERO, ..self.log.end() }
    }

    /// What is in the log between two positions.
    fn between(&self, from: Cursor, to: Cursor) -> Batch {
        self.log.whole().slice(from.lsn, to.lsn)
    }

    /// Commits, and hands it over.
    async fn write(&mut self, sink: &mut dyn Sink) -> Cursor {
        let from = self.log.end();
        self.commit();
        let end = self.log.end();
        let written = timeout(PATIENCE, sink.write(self.between(from, end))).await;
        written.expect("write: no answer").expect("write: an error without a cause");
        end
    }

    async fn resume(&self, sink: &mut dyn Sink, checkpoint: Cursor) -> Cursor {
        let context = SinkContext {
            log: std::sync::Arc::new(self.log.clone()),
            changes: std::sync::Arc::new(self.log.clone()),
            checkpoint,
            tasks: self.tasks.clone(),
            random: self.random.fork(),
        };
        let resumed = timeout(PATIENCE, sink.resume(&context)).await;
        let own = resumed.expect("resume: no answer").expect("resume: an error without a cause");
        if let Some(own) = own {
            self.demand(own, "resume: the destination claims what it does not hold").await;
        }
        own.unwrap_or(checkpoint)
    }

    async fn durable(&self, sink: &mut dyn Sink) -> Cursor {
        let answer = timeout(PATIENCE, sink.durable()).await;
        answer
            .expect("durable: no answer for what was taken over")
            .expect("durable: an error without a cause")
    }

    async fn sync(&self, sink: &mut dyn Sink) -> Cursor {
        let answer = timeout(PATIENCE, sink.sync()).await;
        answer.expect("sync: no answer").expect("sync: an error without a cause")
    }

    /// Every change below a position, in the order of the log.
    fn expected(&self, below: Cursor) -> Vec<Held> {
        let changes = self.log.decode(&self.between(self.start(), below), Lsn::ZERO);
        changes
            .into_iter()
            .map(|change| Held { value: (change.kind == Kind::Set).then_some(change.value), key: change.key })
            .collect()
    }

    /// The destination holds every change below a position.
    async fn demand(&self, below: Cursor, claim: &str) {
        let mut held: BTreeMap<Held, u64> = BTreeMap::new();
        for change in self.rig.held().await {
            *held.entry(change).or_default() += 1;
        }
        for change in self.expected(below) {
            let left = held.get_mut(&change).filter(|left| **left > 0);
            assert!(left.is_some(), "{claim}: {change:?} is below {below} and not in the destination");
            if let Some(left) = left {
                *left -= 1;
            }
        }
    }

    async fn an_answer_is_never_ahead_of_the_destination(mut self) {
        const CLAIM: &str = "an answer is never ahead of the destination";
        let mut sink = self.rig.sink().await;
        let mut last = self.resume(sink.as_mut(), self.start()).await;
        for _ in 0..20 {
            let written = self.write(sink.as_mut()).await;
            while last.lsn < written.lsn {
                let answer = self.durable(sink.as_mut()).await;
                assert_eq!(answer.incarnation, written.incarnation, "{CLAIM}: another log");
                assert!(answer.lsn <= written.lsn, "{CLAIM}: {answer} of {written} that was taken over");
                assert!(answer.lsn > last.lsn, "{CLAIM}: it goes back from {last} to {answer}");
                self.demand(answer, CLAIM).await;
                last = answer;
            }
        }
    }

    async fn a_sync_makes_everything_durable_that_was_taken_over(mut self) {
        const CLAIM: &str = "a sync makes everything durable that was taken over";
        let mut sink = self.rig.sink().await;
        self.resume(sink.as_mut(), self.start()).await;
        for round in 0..5 {
            let mut written = self.write(sink.as_mut()).await;
            for _ in 0..round {
                written = self.write(sink.as_mut()).await;
            }
            assert_eq!(self.sync(sink.as_mut()).await, written, "{CLAIM}");
            self.demand(written, CLAIM).await;
            assert_eq!(self.sync(sink.as_mut()).await, written, "{CLAIM}: again");
        }
    }

    async fn what_was_answered_once_is_not_answered_again(mut self) {
        const CLAIM: &str = "what was answered once is not answered again";
        let mut sink = self.rig.sink().await;
        self.resume(sink.as_mut(), self.start()).await;
        let early = timeout(QUIET, sink.durable()).await;
        assert!(early.is_err(), "{CLAIM}: {early:?} before anything was taken over");
        let written = self.write(sink.as_mut()).await;
        while self.durable(sink.as_mut()).await != written {}
        let again = timeout(QUIET, sink.durable()).await;
        assert!(again.is_err(), "{CLAIM}: {again:?}");
        self.write(sink.as_mut()).await;
        self.sync(sink.as_mut()).await;
        let again = timeout(QUIET, sink.durable()).await;
        assert!(again.is_err(), "{CLAIM}: {again:?} after a sync had answered");
    }

    async fn a_wait_that_is_dropped_loses_nothing(mut self) {
        const CLAIM: &str = "a wait that is dropped loses nothing";
        let mut sink = self.rig.sink().await;
        self.resume(sink.as_mut(), self.start()).await;
        for round in 0..30_u64 {
            let written = self.write(sink.as_mut()).await;
            for _ in 0..round % 4 {
                // Polled once, or for a while, then dropped where it stands.
                drop(sink.durable().now_or_never());
                drop(timeout(Duration::from_micros(round * 100), sink.durable()).await);
            }
            if round % 3 == 2 {
                assert_eq!(self.sync(sink.as_mut()).await, written, "{CLAIM}");
                self.demand(written, CLAIM).await;
            }
        }
    }

    async fn progress_without_records_moves_the_cursor(mut self) {
        const CLAIM: &str = "progress without records moves the cursor";
        let mut sink = self.rig.sink().await;
        self.resume(sink.as_mut(), self.start()).await;
        let written = self.write(sink.as_mut()).await;
        if let Some(idle) = self.log.feed(written).idle().await.expect("a log in memory is readable") {
            timeout(PATIENCE, sink.write(idle))
                .await
                .expect("write: no answer")
                .expect("progress is no error");
        }
        // As after a stretch that a filter left out.
        let further = Cursor { lsn: written.lsn.advanced(100), ..written };
        let progress = Batch::progress(written, further);
        timeout(PATIENCE, sink.write(progress))
            .await
            .expect("write: no answer")
            .expect("progress is no error");
        assert_eq!(self.sync(sink.as_mut()).await, further, "{CLAIM}");
        self.demand(written, CLAIM).await;
    }

    async fn rows_of_the_state_are_durable_after_a_sync(mut self) {
        const CLAIM: &str = "rows of the state are durable after a sync, though they do not move the cursor";
        let mut sink = self.rig.sink().await;
        let mut at = self.resume(sink.as_mut(), self.start()).await;
        for round in 0..3_u64 {
            let version = Version { hlc: Hlc::new(round), origin: self.log.identity().origin() };
            let row = |key: String, value: Option<Bytes>| StateRow {
                key: key.into(),
                value,
                deadline_ms: None,
                version,
            };
            let rows = vec![row(format!("row-{round}"), Some("a value".into())), row("gone".into(), None)];
            let wanted = rows.iter().map(|row| Held { key: row.key.clone(), value: row.value.clone() });
            let wanted: Vec<Held> = wanted.collect();
            let written = timeout(PATIENCE, sink.write(Batch::of_rows(rows, at))).await;
            written.expect("write: no answer").expect("write: an error without a cause");
            assert_eq!(self.sync(sink.as_mut()).await, at, "{CLAIM}");
            let held = self.rig.held().await;
            for row in wanted {
                assert!(held.contains(&row), "{CLAIM}: {row:?} is not in the destination");
            }
            at = self.write(sink.as_mut()).await;
            assert_eq!(self.sync(sink.as_mut()).await, at, "{CLAIM}: and the log goes on");
        }
    }

    async fn the_changes_of_a_key_keep_their_order_and_deletes_are_deletes(mut self) {
        let mut sink = self.rig.sink().await;
        self.resume(sink.as_mut(), self.start()).await;
        let mut written = self.start();
        for _ in 0..40 {
            written = self.write(sink.as_mut()).await;
        }
        self.sync(sink.as_mut()).await;
        self.demand_order(written).await;
    }

    /// For each key: without what came again, the destination holds the changes in the order of the log, and the last
    /// one is the last one.
    async fn demand_order(&self, below: Cursor) {
        const CLAIM: &str = "the changes of a key keep their order";
        let (held, expected) = (by_key(self.rig.held().await), by_key(self.expected(below)));
        for (key, expected) in expected {
            let held = held.get(&key).cloned().unwrap_or_default();
            let (mut first_times, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
            for value in held.iter().flatten() {
                if seen.insert(value.clone()) {
                    first_times.push(value.clone());
                }
            }
            let sets: Vec<Bytes> = expected.iter().flatten().cloned().collect();
            assert_eq!(first_times, sets, "{CLAIM}: {key:?}");
            assert_eq!(held.last(), expected.last(), "{CLAIM}: the last change of {key:?}");
        }
    }

    async fn a_crash_loses_nothing_behind_the_last_answer(mut self) {
        const CLAIM: &str = "a crash loses nothing behind the last answer";
        let mut checkpoint = self.start();
        for round in 0..12_u64 {
            let mut sink = self.rig.sink().await;
            let mut from = self.resume(sink.as_mut(), checkpoint).await;
            for step in 0..4 + round {
                // What lies behind the start comes first, then what is new.
                if from.lsn < self.log.end().lsn {
                    let again = self.between(from, self.log.end());
                    from = again.end();
                    let written = timeout(PATIENCE, sink.write(again)).await;
                    written.expect("write: no answer").expect("write: an error without a cause");
                } else {
                    from = self.write(sink.as_mut()).await;
                }
                if (step + round) % 3 == 0 {
                    checkpoint = self.durable(sink.as_mut()).await;
                    self.demand(checkpoint, CLAIM).await;
                }
            }
            // Dropped where it stands.
        }
        let mut sink = self.rig.sink().await;
        let from = self.resume(sink.as_mut(), checkpoint).await;
        let end = self.log.end();
        let rest = self.between(from, end);
        timeout(PATIENCE, sink.write(rest)).await.expect("write: no answer").expect("write: an error");
        self.sync(sink.as_mut()).await;
        self.demand(end, CLAIM).await;
        self.demand_order(end).await;
    }

    async fn a_second_run_claims_nothing_of_the_first(mut self) {
        const CLAIM: &str = "a second run claims nothing of the first";
        let mut sink = self.rig.sink().await;
        let start = self.resume(sink.as_mut(), self.start()).await;
        for _ in 0..3 {
            self.write(sink.as_mut()).await;
        }
        sink.close().await.expect("close: an error without a cause");
        let from = self.resume(sink.as_mut(), start).await;
        let early = timeout(QUIET, sink.durable()).await;
        assert!(early.is_err(), "{CLAIM}: {early:?} before anything was taken over");
        let first = self.between(from, Cursor { lsn: from.lsn.next(), ..from });
        if first.records() > 0 {
            timeout(PATIENCE, sink.write(first.clone())).await.expect("write: no answer").expect("write");
            assert_eq!(self.sync(sink.as_mut()).await, first.end(), "{CLAIM}");
        }
        let end = self.log.end();
        let rest = self.between(first.end(), end);
        timeout(PATIENCE, sink.write(rest)).await.expect("write: no answer").expect("write: an error");
        assert_eq!(self.sync(sink.as_mut()).await, end, "{CLAIM}");
        self.demand(end, CLAIM).await;
    }

    async fn closing_is_harmless_at_any_time(mut self) {
        const CLAIM: &str = "closing is harmless at any time";
        let mut sink = self.rig.sink().await;
        sink.close().await.expect("close before the first run");
        self.resume(sink.as_mut(), self.start()).await;
        let written = self.write(sink.as_mut()).await;
        self.sync(sink.as_mut()).await;
        for _ in 0..2 {
            let closed = timeout(PATIENCE, sink.close()).await;
            closed.expect("close: no answer").expect("close: an error without a cause");
            self.demand(written, CLAIM).await;
        }
    }
}

fn by_key(changes: Vec<Held>) -> BTreeMap<Bytes, Vec<Option<Bytes>>> {
    let mut keys: BTreeMap<Bytes, Vec<Option<Bytes>>> = BTreeMap::new();
    for Held { key, value } in changes {
        keys.entry(key).or_default().push(value);
    }
    keys
}
