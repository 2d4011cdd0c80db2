//! What arrives, what is applied, what is acknowledged, and what waits.

use std::time::Duration;

use tidewire_applier::{ReceiveState, Settings};
use tidewire_core::id::{Dot, PageId, PartitionId};
use tidewire_core::transport::pages::split;
use tidewire_core::transport::wire::{ForwardedOrigin, Hello, PartitionMark, frame::Body};
use tidewire_core::tree::ApplyTarget;

use crate::rig::{Caller, Here, Last, PARTITIONS, covered, frontier, hello, name, origin, settle, soon};

fn small(buffer_bytes: u64) -> Settings {
    Settings { buffer_bytes, initial_credit_bytes: buffer_bytes, ..Settings::default() }
}

#[tokio::test(start_paused = true)]
async fn f11_f57_nothing_is_acknowledged_before_the_tree_has_answered_for_it() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a", "b"]]);
    here.target.hang(true);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    caller.heartbeat(&mut x).await;
    while let Some(Body::Ack(ack)) = caller.hears().await {
        assert_eq!((covered(&ack), frontier(&ack, x.origin())), (0, None));
    }
    here.target.hang(false);
    let (mut records, mut promise) = (0, None);
    while records < 2 || promise != Some(x.hlc) {
        let Some(Body::Ack(ack)) = soon(caller.hears()).await else { panic!("no ack") };
        assert!(records < 2 || covered(&ack) == 0, "said once");
        records += covered(&ack);
        promise = frontier(&ack, x.origin()).or(promise);
    }
    assert_eq!(here.target.calls(), [1]);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn all_that_came_while_the_tree_was_busy_is_its_next_call() {
    let here = Here::open(Settings::default()).await;
    let (mut x, mut y) = (origin("x"), origin("y"));
    for _ in 0..6 {
        x.commit(&[&["a"]]);
        y.commit(&[&["b"]]);
    }
    let (mut from_x, mut from_y) = (here.call(&x).await, here.call(&y).await);
    here.target.hang(true);
    from_x.page(&x, 0, 1).await;
    settle().await;
    from_x.page(&x, 1, 2).await;
    from_x.page(&x, 2, 6).await;
    from_y.page(&y, 0, 6).await;
    settle().await;
    here.target.hang(false);
    from_x.acked(6).await;
    from_y.acked(6).await;
    assert_eq!(here.target.calls(), [1, 11]);
    assert_eq!(here.metric("tidewire_applied_records_total", "x"), 6);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f12_held_groups_take_the_credit_and_give_it_back_and_say_what_they_wait_for() {
    let here = Here::open(small(2_000)).await;
    let (mut x, mut y) = (origin("x"), origin("y"));
    y.commit(&[&["b"]]);
    x.see(&y);
    for _ in 0..8 {
        x.commit(&[&["a"]]);
    }
    let mut from_x = here.call(&x).await;
    assert_eq!(from_x.welcome.credit_bytes, 2_000);
    from_x.page(&x, 0, 8).await;
    let ack = from_x.last_ack().await.unwrap();
    assert_eq!((covered(&ack), ack.credit_bytes), (0, 0));
    assert!(ack.held_bytes > 0);
    let status = here.status("x");
    assert_eq!(status.state, ReceiveState::Waiting);
    let waits = status.waits_for.unwrap();
    assert_eq!((waits.origin.as_str(), waits.bytes), ("y", ack.held_bytes));
    assert_eq!(waits.hlc, y.observed.get(y.origin()).to_string());
    assert_eq!(
        (status.lag.entries, here.metric("tidewire_held_bytes", "x")),
        (8, i64::try_from(waits.bytes).unwrap())
    );
    let mut from_y = here.call(&y).await;
    from_y.page(&y, 0, 1).await;
    from_x.acked(8).await;
    let last = from_x.last_ack().await;
    assert_eq!(last.map_or(2_000, |ack| ack.credit_bytes), 2_000);
    assert_eq!(here.metric("tidewire_held_bytes", "x"), 0);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f16_f32_clusters_that_wait_for_each_other_pass_through_full_buffers() {
    let here = Here::open(small(1_000)).await;
    let mut all = [origin("x"), origin("y"), origin("z")];
    for _ in 0..20 {
        for who in 0..3 {
            let before = all[(who + 2) % 3].clone();
            all[who].see(&before);
            all[who].commit(&[&["a", "b"]]);
        }
    }
    let mut callers = Vec::new();
    for origin in &all {
        callers.push(here.call(origin).await);
    }
    let ships = callers.iter_mut().zip(&all).map(|(caller, origin)| async move {
        for group in 0..origin.len() {
            caller.page(origin, group, group + 1).await;
        }
        caller.acked(40).await;
    });
    // The first one pushes all it has before the next one begins: far more than the bound.
    soon(futures::future::join_all(ships)).await;
    assert_eq!(here.target.applied().len(), 120);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_link_is_not_read_beyond_the_bound() {
    let here = Here::open(small(10_000)).await;
    let network = here.network.clone().with_window(1_000);
    let (mut x, mut y) = (origin("x"), origin("y"));
    y.commit(&[&["b"]]);
    x.see(&y);
    x.value_bytes = 500;
    for _ in 0..100 {
        x.commit(&[&["a"]]);
    }
    let mut from_x = here.call(&x).await;
    let pushes = async {
        for group in 0..100 {
            from_x.page(&x, group, group + 1).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), pushes).await.is_err(), "at some point it waits");
    let waiting = here.status("x").lag.bytes;
    assert!((5_000..=10_000).contains(&waiting), "{waiting} bytes wait");
    drop(network);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f30_groups_that_the_log_does_not_take_are_kept_and_applied_once() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    x.commit(&[&["b"]]);
    here.target.fail_next(5);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    let ack = caller.last_ack().await.unwrap();
    assert_eq!((covered(&ack), ack.credit_bytes), (0, 0));
    let status = here.status("x");
    assert_eq!(status.state, ReceiveState::Waiting);
    assert!(status.reason.unwrap().contains("full"));
    caller.page(&x, 1, 2).await;
    caller.acked(2).await;
    assert_eq!(here.target.calls(), [2], "what came meanwhile goes with it");
    let credit = caller.last_ack().await.map(|ack| ack.credit_bytes);
    assert!(credit.is_none_or(|credit| credit > 0));
    here.check();
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_applied_for_long_the_ack_is_repeated() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    here.target.hang(true);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    settle().await;
    let heard = tokio::time::timeout(Duration::from_secs(15), caller.link.receiver.receive()).await;
    assert!(matches!(heard.unwrap().unwrap().unwrap().body, Some(Body::Ack(_))));
    here.target.hang(false);
    caller.acked(1).await;
}

#[tokio::test(start_paused = true)]
async fn f10_f14_what_a_lost_link_brought_stays_and_the_next_one_brings_nothing_twice() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    for _ in 0..4 {
        x.commit(&[&["a", "b"]]);
    }
    here.target.hang(true);
    let mut first = here.call(&x).await;
    first.page(&x, 0, 1).await;
    settle().await;
    first.page(&x, 1, 3).await;
    settle().await;
    drop(first);
    settle().await;
    let mut second = here.call(&x).await;
    assert!(second.welcome.watermarks.is_empty(), "nothing is applied yet");
    second.page(&x, 0, 2).await;
    second.page(&x, 2, 4).await;
    settle().await;
    here.target.hang(false);
    second.acked(8).await;
    assert_eq!(here.target.applied().len(), 8);
    assert_eq!(here.metric("tidewire_duplicate_records_total", "x"), 6);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f09_a_gap_is_answered_with_what_is_covered_and_the_next_session_goes_on_from_there() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    for _ in 0..3 {
        x.commit(&[&["a"]]);
    }
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    caller.page(&x, 2, 3).await;
    caller.page(&x, 1, 3).await;
    let (ack, last) = caller.ended().await;
    let ack = ack.unwrap();
    assert_eq!((covered(&ack), ack.refused.as_ref().unwrap().page_id), (1, 2));
    assert_eq!((ack.refused.unwrap().kind.as_str(), last.kind().as_str()), ("gap", "gap"));
    assert_eq!(here.target.applied().len(), 1, "what followed the refused page is not taken either");
    assert_eq!(here.metric("tidewire_gap_refused_total", "x"), 1);
    let mut again = here.call(&x).await;
    again.page(&x, 1, 3).await;
    again.acked(3).await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f02_a_heartbeat_ahead_of_the_records_is_a_gap() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    caller.heartbeat(&mut x).await;
    assert_eq!(caller.ended().await.1.kind(), "gap");
    assert!(here.target.progress().frontier.is_empty());
}

#[tokio::test(start_paused = true)]
async fn writes_that_wait_for_this_clusters_own_go_on_without_another_page() {
    let here = Here::open(Settings::default()).await;
    let (mut x, mut own) = (origin("x"), origin("here"));
    own.commit(&[&["a"]]);
    x.see(&own);
    x.commit(&[&["b"]]);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    settle().await;
    assert_eq!(here.status("x").waits_for.unwrap().origin, "here");
    here.target.write_own(own.hlc);
    caller.acked(1).await;
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f51_lag_is_known_from_what_the_peer_said_and_time_passes_without_it() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    assert_eq!(here.state("x"), ReceiveState::Connecting);
    x.commit(&[&["a", "b", "c"]]);
    here.target.hang(true);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let status = here.status("x");
    assert_eq!((status.state, status.last_page_seconds.map(f64::round)), (ReceiveState::Waiting, Some(4.0)));
    assert!(status.lag.bytes > 0 && status.lag.seconds >= 4.0);
    here.target.hang(false);
    caller.acked(3).await;
    caller.heartbeat(&mut x).await;
    settle().await;
    let status = here.status("x");
    assert_eq!((status.state, status.lag.entries, status.lag.seconds), (ReceiveState::CaughtUp, 0, 0.0));
    drop(caller);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let status = here.status("x");
    assert_eq!(status.state, ReceiveState::Connecting);
    assert!(status.lag.seconds >= 9.0);
}

#[tokio::test(start_paused = true)]
async fn f52_whatever_a_peer_claims_to_have_is_added_up() {
    let here = Here::open(Settings::default()).await;
    let (mut x, y) = (origin("x"), origin("y"));
    x.commit(&[&["a"]]);
    here.target.hang(true);
    let ask = Hello { known_clusters: vec!["x".into(), "y".into()], ..hello(&x, 7) };
    let (name, incarnation) = (y.cluster.to_string(), y.incarnation.get());
    let forwarded = vec![ForwardedOrigin { name, incarnation }];
    let mut caller = here.hello_as(&x, Hello { forwarded, ..ask }).await.unwrap();
    let most = (1 << 62) - 1;
    let tails: Vec<_> =
        (0..PARTITIONS.into()).map(|partition| PartitionMark { partition, offset: most }).collect();
    for mut part in split(&x.page(PageId::new(1), 0, 1)) {
        (part.tails, part.tail_bytes) = (tails.clone(), u64::MAX);
        caller.send(Body::Page(part)).await;
    }
    let mut promise = y.clone().heartbeat();
    promise.tails = tails;
    caller.send(Body::Heartbeat(promise)).await;
    settle().await;
    let lag = here.status("x").lag;
    assert_eq!((lag.entries, lag.bytes), (u64::MAX, u64::MAX));
    here.target.hang(false);
}

#[tokio::test(start_paused = true)]
async fn f42_a_peer_whose_page_takes_long_is_not_silent() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.value_bytes = 300_000;
    x.commit(&[&["a"], &["b"], &["c"], &["d"]]);
    let mut caller = here.call(&x).await;
    let parts = split(&x.page(PageId::new(1), 0, 1));
    assert!(parts.len() == 4);
    for part in parts {
        caller.send(Body::Page(part)).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        let status = here.status("x");
        assert_ne!(status.state, ReceiveState::Connecting, "{:?}", status.reason);
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(here.state("x"), ReceiveState::Connecting, "silence still shows");
    here.check();
}

#[tokio::test(start_paused = true)]
async fn every_series_is_there_from_the_start() {
    let here = Here::open(Settings::default()).await;
    let counters = ["applied_records", "own_origin_refused", "duplicate_records", "gap_refused"];
    for peer in ["x", "y", "z"] {
        for counter in counters {
            assert_eq!(here.metric(&format!("tidewire_{counter}_total"), peer), 0);
        }
        assert_eq!(here.metric("tidewire_held_bytes", peer), 0);
        assert_eq!(here.metric("tidewire_frontier_hlc_ms", peer), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_tree_says_goodbye_and_a_stopping_cluster_leaves_no_link() {
    let here = Here::open(Settings::default()).await;
    let (mut x, y) = (origin("x"), origin("y"));
    x.commit(&[&["a"]]);
    here.target.shut_down();
    let mut from_x = here.call(&x).await;
    from_x.page(&x, 0, 1).await;
    assert_eq!(from_x.ended().await.1, Last::Goodbye("shutting down".into()));
    let mut from_y: Caller = here.call(&y).await;
    let (stopped, said) = tokio::join!(here.server.stop(), async {
        let said = from_y.ended().await;
        drop((from_x, from_y));
        said
    });
    assert_eq!(((), Last::Goodbye("shutting down".into())), (stopped, said.1));
    assert_eq!(here.network.open_links(), 0);
    here.tasks.join().await;
    here.check();
}

#[tokio::test(start_paused = true)]
async fn an_abort_leaves_nothing_running() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    here.target.hang(true);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    settle().await;
    soon(here.tasks.abort_and_join()).await;
    assert!(caller.link.receiver.receive().await.is_err(), "the link broke");
    assert!(here.target.applied().is_empty());
    assert_eq!(here.server.status().len(), 3);
    assert_eq!(here.applier.identity().cluster, name("here"));
}

#[tokio::test(start_paused = true)]
async fn f35_a_record_that_the_target_refuses_is_tried_again_then_parked_and_the_rest_goes_on() {
    let here = Here::open(Settings::default()).await;
    here.target.keep_letters();
    let mut x = origin("x");
    x.commit(&[&["a", "b", "c"]]);
    x.commit(&[&["a"]]);
    let second = {
        let page = x.page(PageId::new(1), 0, 1);
        let run = page.blocks().next().unwrap().run(PartitionId::of(b"b", PARTITIONS)).unwrap();
        Dot { origin: x.origin(), incarnation: x.incarnation, partition: run.partition, offset: run.first }
    };
    here.target.poison(second);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 2).await;
    settle().await;
    assert!(here.target.letters().is_empty() && here.target.applied().is_empty(), "it is tried again first");
    caller.acked(4).await;
    let letters = here.target.letters();
    assert_eq!(
        letters.iter().map(|letter| (letter.dot(), letter.records())).collect::<Vec<_>>(),
        [(second, 1)]
    );
    let applied = here.target.applied();
    assert!(applied.len() == 3 && !applied.contains(&second), "{applied:?}");
    assert!(here.target.progress().frontier.get(x.origin()) < letters[0].hlc);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f35_a_page_with_a_record_that_can_never_be_applied_is_sent_three_times_before_it_is_parked() {
    let here = Here::open(Settings { max_record_bytes: 500, ..Settings::default() }).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    x.value_bytes = 501;
    x.commit(&[&["b"]]);
    x.value_bytes = 8;
    x.commit(&[&["c"]]);
    let mut refused = here.call(&x).await;
    refused.page(&x, 0, 3).await;
    assert_eq!(refused.ended().await.1.kind(), "too_large", "nothing is kept yet");
    here.target.keep_letters();
    for attempt in 1..3 {
        let mut caller = here.call(&x).await;
        caller.page(&x, 0, 3).await;
        assert_eq!(caller.ended().await.1.kind(), "unavailable", "attempt {attempt}");
        assert!(here.target.letters().is_empty());
    }
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 3).await;
    caller.acked(3).await;
    assert_eq!((here.target.letters().len(), here.target.applied().len()), (1, 2));
    assert_eq!(here.status("x").dead_letters, 0, "this target does not count them");
    here.check();
}
