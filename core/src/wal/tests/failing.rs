//! What becomes of writes when the provider fails.

use std::time::Duration;

use super::rig::Rig;
use crate::error::StorageErrorKind;
use crate::id::Lsn;
use crate::limits::Limits;
use crate::record::Mutation;
use crate::wal::{LogState, WalCall, WalFault};

const IO: WalFault = WalFault::Fail(StorageErrorKind::Io);
const FULL: WalFault = WalFault::Fail(StorageErrorKind::Full);

#[tokio::test(start_paused = true)]
async fn the_failed_group_and_what_is_pending_behind_it_fail_with_one_cause_after_the_repair() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.latency(Duration::from_millis(30), Duration::from_millis(30));
    rig.faults.order(WalCall::Append, 1, IO);
    rig.faults.order(WalCall::Reconcile, 1, WalFault::Late(Duration::from_millis(100)));
    let (first, second, ()) = tokio::join!(
        rig.put("a"),
        async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let failed = rig.put("b").await;
            assert!(rig.works(), "the errors are told when the latch is gone");
            failed
        },
        async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            assert!(matches!(rig.writer.log_state(), LogState::Repairing { .. }));
            assert_eq!(rig.metric("tidewire_wal_failing"), 1);
            let began = tokio::time::Instant::now();
            rig.put("c").await.expect_err("fails at once");
            assert!(began.elapsed() < Duration::from_millis(2), "and does not wait for the repair");
        }
    );
    let (first, second) = (first.expect_err("failed"), second.expect_err("failed with it"));
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(rig.faults.count(WalCall::Reconcile), 1);
    assert!(rig.applied().is_empty(), "nothing of it is applied");
    rig.put("d").await.expect("the log works again");
    assert_eq!(rig.applied(), [Lsn::new(1)], "positions that were given out are not given out again");
    assert_eq!(rig.metric("tidewire_failed_groups_total"), 2);
    assert_eq!(rig.metric("tidewire_failed_records_total"), 2);
    assert_eq!(rig.metric("tidewire_wal_failing"), 0);
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f25_f26_a_write_given_up_on_at_the_deadline_stays_invisible_when_it_lands() {
    let rig = Rig::single(Limits { commit_deadline: Duration::from_secs(4), ..Limits::default() }).await;
    rig.faults.order(WalCall::Append, 1, WalFault::Hang);
    let began = tokio::time::Instant::now();
    let error = rig.put("a").await.expect_err("the provider hangs");
    assert!(error.to_string().contains("did not answer within 4 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    rig.put("b").await.expect("another group goes on");
    rig.storage.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.readable_keys(), ["b"], "what lands late is not visible");
    assert_eq!(rig.metric("tidewire_late_groups_total"), 1);
    rig.put("c").await.expect("the log goes on");
    rig.applied_is_what_is_readable();
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f25_offsets_of_writes_that_failed_are_never_given_out_again() {
    let rig = Rig::single(Limits::default()).await;
    for round in 0..6 {
        rig.faults.order(WalCall::Append, 1, IO);
        rig.put("same key").await.expect_err("failed");
        rig.put("same key").await.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let offsets: Vec<u64> = rig
        .memory
        .groups()
        .iter()
        .flat_map(|group| group.blocks()[0].block.runs().map(|run| run.first.get()).collect::<Vec<_>>())
        .collect();
    assert_eq!(offsets, [1, 3, 5, 7, 9, 11], "every second one was given to a write that failed");
    assert_eq!(rig.applied(), [1, 3, 5, 7, 9, 11].map(Lsn::new));
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f25_what_landed_in_time_is_durable_however_late_its_answer() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.order(WalCall::Append, 1, WalFault::AnswerLate(Duration::from_secs(100)));
    let began = tokio::time::Instant::now();
    let (first, second) = tokio::join!(rig.put("a"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.put("b").await
    });
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "the deadline does not wait for the answer");
    assert_eq!(rig.readable_keys(), ["a", "b"]);
    assert_eq!((rig.faults.count(WalCall::Reconcile), rig.metric("tidewire_failed_groups_total")), (0, 0));
    rig.applied_is_what_is_readable();
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_repair_keeps_the_latch_and_a_later_write_has_it_tried_again() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.order(WalCall::Append, 1, IO);
    rig.faults.order(WalCall::Reconcile, 1, FULL);
    rig.put("a").await.expect_err("failed");
    rig.put("b").await.expect_err("the latch is set: fails at once");
    assert_eq!(rig.faults.count(WalCall::Reconcile), 1, "not tried again that soon");
    tokio::time::sleep(Duration::from_millis(600)).await;
    rig.put("c").await.expect_err("answers while the repair is tried");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.faults.count(WalCall::Reconcile), 2, "the write had it tried again");
    rig.put("d").await.expect("works again");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f30_a_log_that_was_full_opens_itself_again_without_a_write_being_tried() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.always(WalCall::Append, FULL);
    rig.faults.always(WalCall::Reconcile, FULL);
    let error = rig.put("a").await.expect_err("full");
    assert!(error.to_string().contains("make room"), "{error}");
    tokio::time::sleep(Duration::from_secs(31)).await;
    let tries = rig.faults.count(WalCall::Reconcile);
    assert!((5..=7).contains(&tries), "{tries} tries in 31 s: after 1, 2, 4, 8, 10 s");
    let LogState::Failed { repairs, next_try, cause } = rig.writer.log_state() else {
        panic!("it has failed: {:?}", rig.writer.log_state());
    };
    assert_eq!((u64::from(repairs), rig.metric("tidewire_wal_failed_repairs_total")), (tries, tries));
    assert!(next_try <= Duration::from_secs(10) && cause.to_string().contains("full"), "{cause}");
    rig.faults.heal();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(rig.works(), "nobody had to write");
    rig.put("b").await.expect("takes writes again");
    assert_eq!(rig.readable_keys(), ["b"]);
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f31_a_record_above_the_size_of_a_block_has_one_of_its_own_and_blocks_nobody() {
    let rig = Rig::single(Limits { max_record_bytes: 4 << 20, ..Limits::default() }).await;
    let large = [Mutation::set("large", vec![1; 1_500_000])];
    let (before, oversize, after) =
        tokio::join!(rig.put("before"), rig.writer.append(&large), rig.put("after"));
    assert!(before.is_ok() && oversize.is_ok() && after.is_ok());
    let groups = rig.memory.groups();
    let sizes: Vec<Vec<u32>> = groups
        .iter()
        .map(|group| group.blocks().iter().map(|framed| framed.block.count()).collect())
        .collect();
    assert_eq!(sizes, [vec![1, 1, 1]], "one group of three blocks, the large record alone in its own");
    assert!(groups[0].blocks()[1].block.bytes().len() > 1_500_000);
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f32_at_the_bound_in_bytes_an_append_waits_and_a_large_one_alone_goes_through() {
    let rig = Rig::single(Limits { pending_bytes: 1_000, ..Limits::default() }).await;
    rig.faults.latency(Duration::from_millis(50), Duration::from_millis(50));
    let big = [Mutation::set("big", vec![0; 900])];
    let waits = [Mutation::set("waits", vec![0; 900])];
    let bounded = async {
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(rig.writer.pending_bytes() <= 1_000);
        }
        assert!(rig.memory.groups().is_empty());
    };
    let (first, second, third, ()) =
        tokio::join!(rig.put("a"), rig.writer.append(&big), rig.writer.append(&waits), bounded);
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let sizes: Vec<u64> = rig.memory.groups().iter().map(|group| group.records()).collect();
    assert_eq!(sizes, [2, 1], "the third did not fit, and came in a group of its own");
    rig.writer.append(&[Mutation::set("huge", vec![0; 5_000])]).await.expect("a large record travels alone");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_leaves_nobody_waiting_and_the_log_says_that_only_a_restart_helps() {
    let rig = Rig::single(Limits::default()).await;
    rig.put("before").await.expect("works");
    rig.faults.order(WalCall::Append, 1, WalFault::Panic);
    let error = tokio::time::timeout(Duration::from_secs(60), rig.put("a")).await.expect("answered");
    assert!(error.expect_err("failed").to_string().contains("restart"));
    assert!(rig.put("b").await.expect_err("still").to_string().contains("restart"));
    assert!(matches!(rig.writer.log_state(), LogState::Broken { .. }));
    tokio::time::timeout(Duration::from_secs(1), rig.writer.drain(Duration::from_secs(75)))
        .await
        .expect("there is nothing to wait for");
    rig.tasks.abort();
}
