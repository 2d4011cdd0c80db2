//! Several groups in flight: their order, their rate, and what becomes of those behind one that fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::rig::Rig;
use crate::error::StorageErrorKind;
use crate::id::Lsn;
use crate::limits::Limits;
use crate::wal::{WalCall, WalFault};

const LATENCY: Duration = Duration::from_millis(20);

async fn rig(in_flight: usize) -> Rig {
    Rig::new(Limits::default(), in_flight, Duration::ZERO, 7).await
}

/// Groups a second while four writes come in every millisecond, and the provider takes 20 ms for each group.
async fn rate(in_flight: usize) -> f64 {
    let rig = Arc::new(rig(in_flight).await);
    rig.faults.latency(LATENCY, LATENCY);
    let began = Instant::now();
    for at in 0..4_000_u64 {
        for _ in 0..4 {
            let writing = rig.clone();
            rig.tasks.spawn("writer", async move {
                writing.put(format!("{at}")).await.expect("a sound log takes writes");
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let groups = rig.applied().len() as f64 / began.elapsed().as_secs_f64();
    rig.writer.drain(Duration::from_secs(5)).await;
    rig.applied_is_what_is_readable();
    assert!(rig.tasks.panics().is_empty());
    rig.tasks.abort();
    groups
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_20_ms_is_kept_busy_with_as_many_groups_as_it_takes() {
    for in_flight in [1, 4, 16] {
        let (groups, most) = (rate(in_flight).await, in_flight as f64 / LATENCY.as_secs_f64());
        println!("{in_flight} in flight: {groups:.0} groups a second, {:.2} of {most:.0}", groups / most);
        assert!(
            groups >= 0.8 * most,
            "{groups} groups a second with {in_flight} in flight; {most} are possible"
        );
        assert!(groups <= 1.01 * most, "more than {in_flight} were in flight: {groups} a second");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_applied_and_answered_in_the_order_of_their_groups_whatever_the_order_of_answers() {
    for seed in 0..20 {
        let rig = Rig::new(Limits::default(), 8, Duration::from_millis(1), seed).await;
        rig.faults.latency(Duration::ZERO, Duration::from_millis(200));
        let answered = Mutex::new(Vec::new());
        let puts = (0..30_u64).map(|at| {
            let (rig, answered) = (&rig, &answered);
            async move {
                tokio::time::sleep(Duration::from_millis(5 * at)).await;
                rig.put(format!("{at}")).await.expect("a sound log takes writes");
                answered.lock().push(at);
            }
        });
        futures::future::join_all(puts).await;
        assert_eq!(*answered.lock(), (0..30).collect::<Vec<_>>(), "seed {seed}");
        assert!(rig.applied().len() > 8, "seed {seed}: several groups were in flight");
        rig.applied_is_what_is_readable();
        rig.tasks.abort();
    }
}

/// Six groups, each of one write; what the writes are answered.
async fn six_groups(rig: &Rig) -> Vec<Result<crate::id::Hlc, crate::error::Error>> {
    let puts = (0..6).map(|at| async move {
        tokio::time::sleep(Duration::from_millis(2 * at)).await;
        rig.put(format!("{at}")).await
    });
    futures::future::join_all(puts).await
}

#[tokio::test(start_paused = true)]
async fn f25_what_is_in_flight_behind_a_failed_group_fails_with_it_and_stays_invisible_though_it_landed() {
    let rig = rig(8).await;
    rig.faults.order(WalCall::Append, 3, WalFault::Fail(StorageErrorKind::Io));
    // The third fails at once, the first two take their time; those behind have landed by then.
    rig.faults.order(WalCall::Append, 1, WalFault::Late(Duration::from_millis(50)));
    let answers = six_groups(&rig).await;
    assert!(answers[0].is_ok() && answers[1].is_ok());
    let causes: BTreeSet<String> =
        answers[2..].iter().map(|answer| answer.as_ref().expect_err("failed").to_string()).collect();
    assert_eq!(causes.len(), 1, "one cause: {causes:?}");
    rig.put("after").await.expect("the log works again");
    assert_eq!(rig.readable_keys(), ["0", "1", "after"]);
    let next = rig.applied().last().copied().expect("applied");
    assert!(next >= Lsn::new(3), "positions of what failed leave a gap: {next}");
    let sequences: Vec<u64> = rig.memory.groups().iter().map(|group| group.sequence().get()).collect();
    assert_eq!(sequences, [0, 1, 2], "numbers of groups leave none");
    rig.applied_is_what_is_readable();
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f26_a_group_that_hangs_takes_those_behind_it_along_and_those_before_it_stand() {
    let rig = rig(8).await;
    rig.faults.order(WalCall::Append, 3, WalFault::Hang);
    let began = Instant::now();
    let answers = six_groups(&rig).await;
    assert!(began.elapsed() < Duration::from_secs(18), "{:?}", began.elapsed());
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false, false, false, false]
    );
    rig.put("after").await.expect("the log works again");
    rig.storage.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.put("later").await.expect("what landed late disturbs nothing");
    assert_eq!(rig.readable_keys(), ["0", "1", "after", "later"]);
    rig.applied_is_what_is_readable();
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_promised_about_the_log_while_a_group_is_in_flight() {
    let rig = rig(4).await;
    rig.faults.latency(LATENCY, LATENCY);
    let promise = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(rig.writer.resolved().await.expect("the clock works"), None);
        assert_eq!(rig.writer.local_promise().await, None);
    };
    let (put, ()) = tokio::join!(rig.put("a"), promise);
    let (closed, next) =
        rig.writer.resolved().await.expect("the clock works").expect("nothing is on its way");
    assert!(closed > put.expect("durable") && next == Lsn::new(1));
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn f32_what_is_in_flight_is_bounded_in_bytes() {
    let limits = Limits { pending_bytes: 4_000, ..Limits::default() };
    let rig = Rig::new(limits, 16, Duration::ZERO, 1).await;
    rig.faults.always(WalCall::Append, WalFault::Hang);
    let keys: Vec<String> = (0..64).map(|at| format!("{at}")).collect();
    let puts = keys.iter().map(|key| async {
        let large = [crate::record::Mutation::set(key.clone(), vec![0; 3_000])];
        tokio::time::timeout(Duration::from_secs(1), rig.writer.append(&large)).await
    });
    futures::future::join_all(puts).await;
    let sent = rig.faults.count(WalCall::Append);
    assert!((4..=6).contains(&sent), "{sent} groups of 3,000 bytes are in flight, and 16,000 bytes may be");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_sent_behind_a_group_that_has_failed() {
    let rig = rig(8).await;
    // The second fails at once; the first takes its time, so the failure cannot be dealt with yet.
    rig.faults.order(WalCall::Append, 1, WalFault::Late(Duration::from_millis(50)));
    rig.faults.order(WalCall::Append, 2, WalFault::Fail(StorageErrorKind::Io));
    let sent = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        assert_eq!(rig.faults.count(WalCall::Append), 2, "four more writes came meanwhile");
        assert_eq!(rig.faults.count(WalCall::Reconcile), 0);
    };
    let (answers, ()) = tokio::join!(six_groups(&rig), sent);
    assert!(answers[0].is_ok() && answers[1..].iter().all(Result::is_err));
    rig.put("after").await.expect("the log works again");
    let places: Vec<u64> = rig.applied().iter().map(|lsn| lsn.get()).collect();
    assert_eq!(places, [0, 2], "what was never sent has used up no position");
    rig.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_group_that_failed_is_told_why_though_the_deadline_has_passed_since() {
    let rig = rig(4).await;
    // The watch ticks already: when the first one is late, the second one is as well.
    rig.put("before").await.expect("works");
    tokio::time::sleep(Limits::default().commit_deadline / 16).await;
    // The first is durable at once and answered after the deadline; until then the second waits with its failure.
    rig.faults.order(WalCall::Append, 1, WalFault::AnswerLate(Duration::from_secs(60)));
    rig.faults.order(WalCall::Append, 2, WalFault::Fail(StorageErrorKind::Full));
    let second = async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        rig.put("b").await
    };
    let (first, second) = tokio::join!(rig.put("a"), second);
    first.expect("it had landed");
    let said = second.expect_err("failed").to_string();
    assert!(said.contains("the disk is full"), "{said}");
    rig.tasks.abort();
}
