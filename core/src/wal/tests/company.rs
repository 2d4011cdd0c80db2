//! Whom a committer on a thread of its own waits for.

use std::time::Duration;

use super::threaded::{LINGER, Threaded};
use crate::limits::Limits;
use crate::wal::WalCall;

#[tokio::test(start_paused = true)]
async fn a_committer_waits_until_all_have_come_who_write() {
    let log = Threaded::new().await.with_three_writers().await;
    log.comes_to(&[1]).await;
    log.stays_at(&[1]).await;
    log.put("d", 1);
    log.comes_to(&[1, 3]).await;
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_committer_waits_no_longer_than_a_moment_from_the_first_who_came() {
    let log = Threaded::new().await.with_three_writers().await;
    log.comes_to(&[1]).await;
    tokio::time::advance(LINGER / 2).await;
    log.stays_at(&[1]).await;
    tokio::time::advance(LINGER / 2).await;
    log.comes_to(&[1, 2]).await;
    // Two were answered and nobody waited: one of them alone is waited for again, and the moment begins with it.
    tokio::time::advance(LINGER * 10).await;
    log.put("d", 1);
    log.stays_at(&[1, 2]).await;
    tokio::time::advance(LINGER).await;
    log.comes_to(&[1, 2, 1]).await;
    // Now only one writes.
    log.put("e", 1);
    log.comes_to(&[1, 2, 1, 1]).await;
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_committer_waits_for_writers_and_not_for_as_many_records() {
    let log = Threaded::new().await;
    for (at, records) in [50, 1, 7, 2].into_iter().enumerate() {
        let before = log.groups();
        log.put("k", records);
        let expected: Vec<u64> = before.into_iter().chain([records as u64]).collect();
        log.comes_to(&expected).await;
        assert_eq!(log.faults.count(WalCall::Append), at as u64 + 1);
    }
    log.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_committer_rests_when_nothing_is_pending_however_many_wrote_before() {
    let tick = Duration::from_millis(10);
    let limits = Limits { linger: tick * 100, commit_deadline: tick * 8, ..Limits::default() };
    let log = Threaded::with(limits, 0).await.with_three_writers().await;
    log.comes_to(&[1]).await;
    log.put("d", 1);
    log.comes_to(&[1, 3]).await;
    // While a committer is at work the watch ticks, every eighth of the deadline.
    let (mut quiet, mut before) = (0, 0);
    for _ in 0..40 {
        tokio::time::advance(tick).await;
        log.until(Duration::from_millis(3), |_| false).await;
        let ticks = log.watched();
        quiet = if ticks == before { quiet + 1 } else { 0 };
        before = ticks;
    }
    log.ends().await;
    assert!(quiet > 20, "it waited for company with nothing to commit");
}
