//! Draining and giving up: nobody hangs, whatever the provider does.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::rig::Rig;
use crate::error::{Error, StorageErrorKind};
use crate::id::Hlc;
use crate::limits::Limits;
use crate::wal::{WalCall, WalFault};

const BUDGET: Duration = Duration::from_secs(2);

/// Puts while a drain begins 20 ms later; the answers, and how long the drain took.
async fn drained(rig: &Rig, keys: &[&'static str]) -> (Vec<Result<Hlc, Error>>, Duration) {
    let puts = keys.iter().enumerate().map(|(at, key)| async move {
        tokio::time::sleep(Duration::from_millis(at as u64)).await;
        timeout(Duration::from_secs(60), rig.put(*key)).await.expect("nobody hangs")
    });
    let drain = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        timeout(Duration::from_secs(60), rig.writer.drain(BUDGET)).await.expect("a drain ends");
        began.elapsed()
    };
    let (answers, took) = tokio::join!(futures::future::join_all(puts), drain);
    assert!(rig.put("too late").await.expect_err("stopped").is_shutting_down());
    (answers, took)
}

#[tokio::test(start_paused = true)]
async fn a_drain_makes_durable_what_is_pending_and_in_flight() {
    for in_flight in [1, 4] {
        let rig = Rig::new(Limits::default(), in_flight, Duration::from_millis(1), 1).await;
        rig.faults.latency(Duration::from_millis(100), Duration::from_millis(200));
        let (answers, took) = drained(&rig, &["a", "b", "c", "d", "e", "f"]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert!(took < BUDGET, "{took:?}");
        assert_eq!(rig.readable_keys(), ["a", "b", "c", "d", "e", "f"]);
        rig.tasks.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_fails_what_is_left_by_name() {
    for in_flight in [1, 4] {
        let rig = Rig::new(Limits::default(), in_flight, Duration::from_millis(1), 1).await;
        rig.faults.always(WalCall::Append, WalFault::Hang);
        let (answers, took) = drained(&rig, &["a", "b", "c", "d", "e", "f"]).await;
        assert!(took >= BUDGET && took < BUDGET * 2, "{took:?}");
        for answer in answers {
            assert!(answer.expect_err("not durable").is_shutting_down());
        }
        rig.tasks.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_while_the_log_is_repaired_waits_for_the_repair_and_tells_the_cause() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.order(WalCall::Append, 1, WalFault::Fail(StorageErrorKind::Io));
    rig.faults.order(WalCall::Reconcile, 1, WalFault::Late(Duration::from_secs(1)));
    let (answers, took) = drained(&rig, &["a"]).await;
    assert!(took < BUDGET, "{took:?}");
    let error = answers.into_iter().next().expect("one").expect_err("failed");
    assert!(error.to_string().contains("failed on order"), "{error}");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drain_while_a_repair_hangs_ends_with_its_budget() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.order(WalCall::Append, 1, WalFault::Fail(StorageErrorKind::Io));
    rig.faults.always(WalCall::Reconcile, WalFault::Hang);
    let (answers, took) = drained(&rig, &["a"]).await;
    assert!(took >= BUDGET && took < BUDGET * 2, "{took:?}");
    assert!(answers.into_iter().next().expect("one").expect_err("failed").is_shutting_down());
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drain_while_repairs_fail_does_not_wait_for_one_that_works() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.always(WalCall::Append, WalFault::Fail(StorageErrorKind::Full));
    rig.faults.always(WalCall::Reconcile, WalFault::Fail(StorageErrorKind::Full));
    rig.put("a").await.expect_err("full");
    let (_, took) = drained(&rig, &[]).await;
    assert!(took < Duration::from_millis(50), "nothing is pending: {took:?}");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f26_a_repair_that_hangs_is_given_up_on_and_tried_again() {
    let rig = Rig::single(Limits { commit_deadline: Duration::from_secs(4), ..Limits::default() }).await;
    rig.faults.order(WalCall::Append, 1, WalFault::Fail(StorageErrorKind::Io));
    rig.faults.always(WalCall::Reconcile, WalFault::Hang);
    let error = timeout(Duration::from_secs(10), rig.put("a")).await.expect("the deadline answers it");
    assert!(error.expect_err("failed").to_string().contains("failed on order"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!rig.works(), "every repair hangs");
    rig.faults.heal();
    rig.storage.release();
    tokio::time::sleep(Duration::from_secs(15)).await;
    rig.put("b").await.expect("works again");
    assert_eq!(rig.readable_keys(), ["b"]);
    rig.tasks.abort();
}
