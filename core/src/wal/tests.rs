//! Claims about writer and committer over a provider that does what a test says.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{
    Bounds, CommitRunner, Completion, DurableGroups, WalMetrics, WalStorage, Writer, WriterConfig,
    WriterStart,
};
use crate::causal::OriginMarks;
use crate::clock::{CeilingStore, HybridClock, WallClock};
use crate::error::{MetaError, StorageError, StorageErrorKind};
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, OriginTag, TreeName};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::record::{Group, Mutation};
use crate::tasks::{Tasks, Threads};

/// What the provider does with the next append.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Succeed,
    Fail,
    /// Answer only when the test says so.
    Hold,
}

#[derive(Default)]
struct Provider {
    orders: Mutex<Vec<Order>>,
    held: Mutex<Vec<Completion>>,
    stored: Mutex<Vec<Arc<Group>>>,
    repairs: Mutex<Vec<bool>>,
    repaired: Mutex<u32>,
}

#[async_trait]
impl WalStorage for Provider {
    fn append(&self, group: Arc<Group>, done: Completion) {
        let order = self.orders.lock().pop().unwrap_or(Order::Succeed);
        match order {
            Order::Succeed => {
                self.stored.lock().push(group);
                done.complete(Ok(()));
            }
            Order::Fail => done.complete(Err(StorageError::new(StorageErrorKind::Io, "failed on order"))),
            Order::Hold => self.held.lock().push(done),
        }
    }

    async fn read(&self, _from: Lsn, _limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        Ok(self.stored.lock().clone())
    }

    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    fn bytes_after(&self, _lsn: Lsn) -> u64 {
        0
    }

    fn first_uncovered(&self, _origin: OriginTag, _held: Option<&OriginMarks>) -> Lsn {
        Lsn::ZERO
    }

    fn trimmed_end(&self, _origin: OriginTag, _partition: crate::id::PartitionId) -> crate::id::Offset {
        crate::id::Offset::ZERO
    }

    async fn trim(&self, _before: Lsn) -> Result<(), StorageError> {
        Ok(())
    }

    fn reconcile(&self, done: Completion) {
        *self.repaired.lock() += 1;
        let works = self.repairs.lock().pop().unwrap_or(true);
        done.complete(if works {
            Ok(())
        } else {
            Err(StorageError::new(StorageErrorKind::Full, "still full"))
        });
    }

    async fn enroll(&self, _origin: &ClusterId, _incarnation: Incarnation) -> Result<(), StorageError> {
        Ok(())
    }
}

#[derive(Default)]
struct Applied(Mutex<Vec<Lsn>>);

impl DurableGroups for Applied {
    fn apply(&self, group: &Arc<Group>) {
        self.0.lock().push(group.first_lsn());
    }
}

struct Fixed;

impl WallClock for Fixed {
    fn now_millis(&self) -> u64 {
        1_000
    }
}

#[async_trait]
impl CeilingStore for Fixed {
    async fn load(&self) -> Result<Hlc, MetaError> {
        Ok(Hlc::ZERO)
    }

    async fn store(&self, _ceiling: Hlc) -> Result<(), MetaError> {
        Ok(())
    }
}

struct Rig {
    provider: Arc<Provider>,
    applied: Arc<Applied>,
    writer: Writer,
    tasks: Tasks,
}

impl Rig {
    async fn new(limits: Limits) -> Self {
        let (provider, applied) = (Arc::new(Provider::default()), Arc::new(Applied::default()));
        let clock = HybridClock::open(Arc::new(Fixed), Arc::new(Fixed), Duration::from_secs(30))
            .await
            .expect("opens");
        let tasks = Tasks::new(Threads::Inline);
        let writer = Writer::new(
            WriterConfig {
                tree: TreeName::new("t").expect("name"),
                origin: OriginTag::new(1),
                incarnation: Incarnation::new(1),
                partitions: 4,
                limits,
                clock: Arc::new(clock),
                storage: provider.clone(),
                runner: CommitRunner::simulated(
                    tasks.clone(),
                    Duration::from_millis(1),
                    Random::from_seed(1),
                ),
                groups: applied.clone(),
                metrics: WalMetrics::new(&Metrics::default()),
            },
            WriterStart::default(),
        );
        let watched = writer.clone();
        tasks.spawn("deadlines", async move { watched.watch_deadlines().await });
        Self { provider, applied, writer, tasks }
    }

    fn order(&self, orders: &[Order]) {
        *self.provider.orders.lock() = orders.iter().rev().copied().collect();
    }

    async fn put(&self, key: &'static str) -> Result<Hlc, crate::error::Error> {
        self.writer.append(&[Mutation::set(key, "v")]).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_failed_group_and_what_is_pending_behind_it_fail_with_one_cause_after_the_repair() {
    let rig = Rig::new(Limits::default()).await;
    rig.order(&[Order::Hold]);
    let (first, second, ()) = tokio::join!(
        rig.put("a"),
        async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            rig.put("b").await
        },
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(*rig.provider.repaired.lock(), 0);
            let held = rig.provider.held.lock().pop().expect("the first group is held");
            held.complete(Err(StorageError::new(StorageErrorKind::Io, "failed late")));
        }
    );
    let (first, second) = (first.expect_err("failed"), second.expect_err("failed with it"));
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(*rig.provider.repaired.lock(), 1);
    assert!(rig.applied.0.lock().is_empty(), "nothing of it is applied");
    rig.put("c").await.expect("the log works again");
    assert!(rig.applied.0.lock()[0] > Lsn::ZERO, "positions that were given out are not given out again");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f25_f26_a_write_given_up_on_at_the_deadline_stays_invisible_when_it_lands() {
    let rig = Rig::new(Limits { commit_deadline: Duration::from_secs(4), ..Limits::default() }).await;
    rig.order(&[Order::Hold]);
    let began = tokio::time::Instant::now();
    let error = rig.put("a").await.expect_err("the provider hangs");
    assert!(error.to_string().contains("did not answer within 4 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    rig.put("b").await.expect("another group goes on");
    let applied = rig.applied.0.lock().len();
    rig.provider.held.lock().pop().expect("held").complete(Ok(()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.applied.0.lock().len(), applied, "what lands late is not applied");
    rig.put("c").await.expect("the log goes on");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_repair_keeps_the_latch_and_a_later_write_has_it_tried_again() {
    let rig = Rig::new(Limits::default()).await;
    rig.order(&[Order::Fail]);
    *rig.provider.repairs.lock() = vec![true, false, false];
    rig.put("a").await.expect_err("failed");
    rig.put("b").await.expect_err("the latch is set: fails at once");
    assert_eq!(*rig.provider.repaired.lock(), 1, "not tried again that soon");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.put("c").await.expect_err("answers while the repair is tried");
        tokio::time::sleep(Duration::from_millis(50)).await;
        if rig.writer.failure().is_none() {
            break;
        }
    }
    rig.put("d").await.expect("works again");
    assert_eq!(*rig.provider.repaired.lock(), 3);
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f32_at_the_bound_in_bytes_an_append_waits_and_a_large_one_alone_goes_through() {
    let rig = Rig::new(Limits { pending_bytes: 1_000, ..Limits::default() }).await;
    rig.order(&[Order::Hold]);
    let big = [Mutation::set("big", vec![0; 900])];
    let waits = [Mutation::set("waits", vec![0; 900])];
    let (first, second, third, ()) =
        tokio::join!(rig.put("a"), rig.writer.append(&big), rig.writer.append(&waits), async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert!(rig.provider.stored.lock().is_empty());
            rig.provider.held.lock().pop().expect("held").complete(Ok(()));
        });
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let sizes: Vec<u64> = rig.provider.stored.lock().iter().map(|group| group.records()).collect();
    assert_eq!(sizes, [1], "the third did not fit the group that was held, and came in one of its own");
    rig.writer.append(&[Mutation::set("huge", vec![0; 5_000])]).await.expect("a large record travels alone");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_fails_what_is_left_and_nobody_hangs() {
    let rig = Rig::new(Limits::default()).await;
    rig.order(&[Order::Hold]);
    let (first, second, ()) = tokio::join!(
        async { tokio::time::timeout(Duration::from_secs(60), rig.put("a")).await },
        async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            tokio::time::timeout(Duration::from_secs(60), rig.put("b")).await
        },
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            rig.writer.drain(Duration::from_secs(2)).await;
        }
    );
    assert!(first.expect("the deadline answers it").is_err());
    assert!(second.expect("answered by the drain").expect_err("not durable").is_shutting_down());
    rig.tasks.abort();
}
