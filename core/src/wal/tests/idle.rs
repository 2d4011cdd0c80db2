//! What a writer costs while nothing is written.

use std::time::Duration;

use tokio::time::Instant;

use super::rig::Rig;
use crate::limits::Limits;
use crate::wal::{WalCall, WalFault};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn an_idle_log_has_no_timer() {
    let rig = Rig::single(Limits::default()).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(rig.watch_polls(), 1, "it was looked at once, when it was opened");
    for round in 0..3 {
        rig.put("a").await.expect("works");
        tokio::time::sleep(Duration::from_secs(30)).await;
        let polls = rig.watch_polls();
        tokio::time::sleep(HOUR).await;
        assert_eq!(
            rig.watch_polls(),
            polls,
            "round {round}: nothing ticks half a minute after the last write"
        );
    }
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f26_a_provider_that_hangs_after_a_quiet_time_is_noticed_as_well() {
    let rig = Rig::single(Limits::default()).await;
    rig.put("a").await.expect("works");
    tokio::time::sleep(HOUR).await;
    rig.faults.order(WalCall::Append, 1, WalFault::Hang);
    let began = Instant::now();
    rig.put("b").await.expect_err("the deadline");
    assert!(began.elapsed() <= Limits::default().commit_deadline * 5 / 4, "{:?}", began.elapsed());
    rig.put("c").await.expect("goes on");
    rig.tasks.abort();
}
