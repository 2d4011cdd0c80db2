//! When a caller commits in its own thread, for itself and for others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::threaded::{LINGER, Threaded};
use crate::record::Mutation;
use crate::wal::{WalCall, WalFault};

/// Longer than a leader is waited for, and less than until the watch looks.
const LATE: Duration = Duration::from_millis(2);

/// One thread of callers may be used, three write, and the log has been written to.
async fn three_writers() -> Threaded {
    let log = Threaded::lending(1).await.with_three_writers().await;
    // The two who waited meanwhile come after the longest wait for a third.
    comes_in_time(&log, &[1, 2]).await;
    log
}

/// Virtual time goes on until these groups were applied, and whoever applied them rests.
async fn comes_in_time(log: &Threaded, groups: &[u64]) {
    for _ in 0..1_000 {
        if log.until(Duration::from_millis(5), |log| log.groups() == groups).await {
            return log.stays_at(groups).await;
        }
        tokio::time::advance(LINGER).await;
    }
    panic!("{:?} and not {groups:?}", log.groups());
}

/// Whether the last group was committed in this thread.
fn here(log: &Threaded) -> bool {
    log.applied.1.lock().last() == Some(&std::thread::current().id())
}

fn one(key: &'static str) -> [Mutation; 1] {
    [Mutation::set(key, "v")]
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_the_log_idle_waits_for_those_who_wrote_with_it_and_commits_for_all() {
    let log = three_writers().await;
    assert!(!here(&log), "who waited while others committed is left to a committer");
    log.put("d", 1);
    log.stays_at(&[1, 2]).await;
    log.put("e", 1);
    log.comes_to(&[1, 2, 2]).await;
    assert!(here(&log));
    // Nobody more comes: no longer than a moment from the first.
    log.put("f", 1);
    log.stays_at(&[1, 2, 2]).await;
    tokio::time::advance(LINGER).await;
    log.comes_to(&[1, 2, 2, 1]).await;
    assert!(here(&log));
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn while_commits_take_long_a_committer_commits_for_company() {
    let log = three_writers().await;
    log.faults.order(WalCall::Append, 1, WalFault::Hang);
    log.put("d", 1);
    log.put("e", 1);
    let hangs = log.until(Duration::from_secs(10), |log| log.faults.hanging() == 1).await;
    assert!(hangs && log.groups() == [1, 2]);
    tokio::time::advance(Duration::from_millis(1)).await;
    log.storage.release();
    log.comes_to(&[1, 2, 2]).await;
    log.stays_at(&[1, 2, 2]).await;
    log.put("f", 1);
    log.put("g", 1);
    log.comes_to(&[1, 2, 2, 2]).await;
    log.stays_at(&[1, 2, 2, 2]).await;
    assert!(!here(&log), "a slow disk would hold a thread of the runtime nearly all the time");
    log.put("h", 1);
    log.put("i", 1);
    log.comes_to(&[1, 2, 2, 2, 2]).await;
    assert!(here(&log), "that one was brief");
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_threads_are_used_than_may_be_lent() {
    let log = three_writers().await;
    let other = log.runner.lend_thread().expect("one may be lent");
    assert!(log.runner.lend_thread().is_none());
    log.put("d", 1);
    log.put("e", 1);
    log.comes_to(&[1, 2, 2]).await;
    log.stays_at(&[1, 2, 2]).await;
    assert!(!here(&log), "another tree has the only one");
    drop(other);
    log.put("f", 1);
    log.put("g", 1);
    log.comes_to(&[1, 2, 2, 2]).await;
    assert!(here(&log));
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn who_writes_alone_commits_at_once_and_gives_way_to_others_now_and_then() {
    let log = Threaded::lending(1).await;
    // The first write after a quiet time is a committer's.
    log.put("a", 1);
    comes_in_time(&log, &[1]).await;
    let alone = one("alone");
    assert!(futures::poll!(std::pin::pin!(log.writer.append(&alone))).is_ready());
    assert!(here(&log));
    for _ in 0..3 {
        let (had, mut turn) = tokio::sync::oneshot::channel();
        log.tasks.spawn("beside", async move { had.send(()).expect("the test waits") });
        for _ in 0..4 {
            log.writer.append(&alone).await.expect("a sound log takes writes");
        }
        // On the only thread that there is, nobody else has a turn unless it gives way.
        turn.try_recv().expect("one of four commits gives way");
    }
    // Whoever follows was woken by the commit before, and may wait for this very thread.
    log.applied.2.store(true, Ordering::Relaxed);
    for _ in 0..4 {
        let before = log.groups().len();
        assert!(futures::poll!(std::pin::pin!(log.writer.append(&alone))).is_pending());
        // Dropped, it is a committer's.
        assert!(log.until(Duration::from_secs(10), |log| log.groups().len() > before).await);
        log.until(Duration::from_millis(40), |_| false).await;
    }
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_who_writes_has_committed_what_a_leader_that_is_not_polled_left() {
    let log = three_writers().await;
    let (writer, leads) = (log.writer.clone(), one("leads"));
    let mut held = std::pin::pin!(writer.append(&leads));
    assert!(futures::poll!(held.as_mut()).is_pending());
    log.stays_at(&[1, 2]).await;
    tokio::time::advance(LATE).await;
    log.stays_at(&[1, 2]).await;
    log.put("next", 1);
    log.comes_to(&[1, 2, 2]).await;
    // Whoever writes next has a leader again, also after a time in which nobody watched.
    for (at, quiet) in [LATE, Duration::from_secs(60)].into_iter().enumerate() {
        log.stays_at(&[1, 2, 2, 1][..3 + at]).await;
        tokio::time::advance(quiet).await;
        log.until(Duration::from_millis(5), |_| false).await;
        log.put("later", 1);
        // Less time than the watch takes to look.
        for _ in 0..4 {
            log.until(Duration::from_millis(20), |log| log.groups().len() > 3 + at).await;
            tokio::time::advance(LINGER).await;
        }
        log.comes_to(&[1, 2, 2, 1, 1][..4 + at]).await;
    }
    held.await.expect("it was committed for it");
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_that_is_not_polled_left_is_committed_soon_though_nobody_else_writes_later() {
    let log = three_writers().await;
    let (writer, leads) = (log.writer.clone(), one("leads"));
    let mut held = std::pin::pin!(writer.append(&leads));
    assert!(futures::poll!(held.as_mut()).is_pending());
    log.put("beside", 1);
    log.stays_at(&[1, 2]).await;
    tokio::time::advance(Duration::from_millis(50)).await;
    log.comes_to(&[1, 2, 2]).await;
    held.await.expect("it was committed for it");
    log.ends().await;
}
