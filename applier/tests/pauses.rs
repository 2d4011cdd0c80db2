//! What a receiving end says of itself: that its peers are to pause, how far it is behind, how long the way was.

use std::time::Duration;

use tidewire_applier::{ReceiveState, Settings};
use tidewire_core::id::PageId;
use tidewire_core::transport::marks::encode_offsets;
use tidewire_core::transport::pages::split;
use tidewire_core::transport::wire::{ForwardedOrigin, Heartbeat, Hello, frame::Body};

use crate::rig::{Caller, Here, covered, hello, origin, settle};

/// Every acknowledgement within some seconds.
async fn acks_of(caller: &mut Caller, seconds: u64) -> Vec<tidewire_core::transport::wire::Ack> {
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mut acks = Vec::new();
    while let Ok(frame) = tokio::time::timeout_at(end, caller.link.receiver.receive()).await {
        match frame.unwrap().and_then(|frame| frame.body) {
            Some(Body::Ack(ack)) => acks.push(ack),
            other => panic!("{other:?}"),
        }
    }
    acks
}

#[tokio::test(start_paused = true)]
async fn f42_a_log_that_is_saturated_pauses_its_peers_by_name_and_ends_the_pause_itself() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    here.target.hang(true);
    caller.page(&x, 0, 1).await;
    let acks = acks_of(&mut caller, 3).await;
    let last = acks.last().expect("the pause is said");
    let pause = last.pause.clone().expect("it has a name");
    assert_eq!((pause.kind.as_str(), last.credit_bytes), ("log_busy", 0));
    let status = here.status("x");
    assert!(status.paused && status.state == ReceiveState::Waiting, "{status:?}");
    assert!(status.reason.is_some_and(|reason| reason.contains("asked to pause (log_busy)")));
    assert_eq!(peer_metric(&here, "tidewire_link_paused", "x"), 1);
    here.target.hang(false);
    let last = acks_of(&mut caller, 1).await.pop().expect("the end of the pause is said");
    assert_eq!((&last.pause, covered(&last)), (&None, 1));
    assert!(last.credit_bytes > 0);
    assert_eq!((here.status("x").paused, here.state("x")), (false, ReceiveState::CaughtUp));
    assert_eq!(peer_metric(&here, "tidewire_link_paused", "x"), 0);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_fails_pauses_its_peers_until_it_takes_groups_again() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    here.target.fail_next(5);
    caller.page(&x, 0, 1).await;
    let acks = acks_of(&mut caller, 10).await;
    let kinds: Vec<_> = acks.iter().map(|ack| ack.pause.as_ref().map(|pause| pause.kind.as_str())).collect();
    assert_eq!(kinds, [Some("log_failing"), None]);
    assert_eq!((acks[0].credit_bytes, covered(&acks[1])), (0, 1));
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_removed_while_the_log_fails_leaves_no_pause_to_the_others() {
    let here = Here::open(Settings::default()).await;
    let (mut x, y) = (origin("x"), origin("y"));
    x.commit(&[&["a"]]);
    let (mut from_x, mut from_y) = (here.call(&x).await, here.call(&y).await);
    here.target.fail_next(u32::MAX);
    from_x.page(&x, 0, 1).await;
    let last = acks_of(&mut from_y, 3).await.pop().expect("a log that fails is everybody's matter");
    assert!(last.pause.is_some_and(|pause| pause.kind == "log_failing"));
    here.server.remove(&x.cluster).await;
    here.target.fail_next(0);
    let last = acks_of(&mut from_y, 10).await.pop().expect("the end of the pause is said");
    assert!(last.pause.is_none() && last.credit_bytes > 0, "{last:?}");
    here.check();
}

#[tokio::test(start_paused = true)]
async fn buffers_full_of_what_waits_for_others_pause_the_link_that_brought_it() {
    let here =
        Here::open(Settings { buffer_bytes: 2_000, initial_credit_bytes: 2_000, ..Settings::default() })
            .await;
    let (mut x, mut y) = (origin("x"), origin("y"));
    y.commit(&[&["b"]]);
    x.see(&y);
    (0..8).for_each(|_| x.commit(&[&["a"]]));
    let (mut from_x, mut from_y) = (here.call(&x).await, here.call(&y).await);
    from_x.page(&x, 0, 8).await;
    let pause = from_x.last_ack().await.and_then(|ack| ack.pause).expect("a pause");
    assert_eq!(pause.kind, "held");
    assert!(here.status("x").paused && !here.status("y").paused);
    from_y.page(&y, 0, 1).await;
    from_x.acked(8).await;
    settle().await;
    assert!(!here.status("x").paused);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f51_what_a_peer_has_still_to_send_counts_at_the_receiving_end() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    (0..9).for_each(|_| x.commit(&[&["a"]]));
    let mut caller = here.call(&x).await;
    let mut parts = split(&x.page(PageId::new(1), 0, 1));
    let all = x.page(PageId::new(2), 0, 9);
    let last = parts.last_mut().unwrap();
    last.tails = encode_offsets(&all.through);
    last.tail_bytes = 5_000;
    for part in parts {
        caller.send(Body::Page(part)).await;
    }
    caller.acked(1).await;
    let lag = here.status("x").lag;
    assert_eq!((lag.entries, lag.bytes), (8, 5_000));
    tokio::time::sleep(Duration::from_secs(7)).await;
    let lag = here.status("x").lag;
    assert!(lag.seconds >= 7.0, "nothing arrives, and that shows: {lag:?}");
    for (name, least) in [("entries", 8), ("bytes", 5_000), ("seconds", 7)] {
        let shown = peer_metric(&here, &format!("tidewire_receive_lag_{name}"), "x");
        assert!(shown >= least, "{name}: {shown}");
    }
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f51_a_relays_promise_of_another_origin_does_not_say_that_nothing_is_still_to_come() {
    let here = Here::open(Settings::default()).await;
    let (mut x, mut y) = (origin("x"), origin("y"));
    (0..9).for_each(|_| x.commit(&[&["a"]]));
    let forwarded = vec![ForwardedOrigin { name: y.cluster.to_string(), incarnation: y.incarnation.get() }];
    let mut caller = here.hello_as(&x, Hello { forwarded, ..hello(&x, 1) }).await.unwrap();
    let mut parts = split(&x.page(PageId::new(1), 0, 1));
    let last = parts.last_mut().unwrap();
    last.tails = encode_offsets(&x.ends(9));
    last.tail_bytes = 5_000;
    for part in parts {
        caller.send(Body::Page(part)).await;
    }
    caller.acked(1).await;
    caller.send(Body::Heartbeat(y.heartbeat())).await;
    settle().await;
    let lag = here.status("x").lag;
    assert_eq!((lag.entries, lag.bytes), (8, 5_000), "what y promises says nothing of the log of x");
    let own = Heartbeat { tails: encode_offsets(&x.ends(1)), ..x.heartbeat() };
    caller.send(Body::Heartbeat(own)).await;
    settle().await;
    assert_eq!(here.status("x").lag.bytes, 0, "behind the own promise there is nothing");
    here.check();
}

#[tokio::test(start_paused = true)]
async fn the_way_of_a_write_and_of_a_canary_is_measured_once_each_when_it_is_visible() {
    let here = Here::open(Settings::default()).await;
    here.target.set_wall(1_000_000, Duration::from_secs(1_000_000));
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    let measured = || here.metric("tidewire_end_to_end_seconds_count", "x");
    assert_eq!(measured(), 0, "from the start");
    caller.page(&x, 0, 1).await;
    caller.acked(1).await;
    assert_eq!(measured(), 1);
    let heartbeat = x.heartbeat();
    caller.send(Body::Heartbeat(heartbeat.clone())).await;
    settle().await;
    assert_eq!(measured(), 1, "a plain promise is none");
    let closed = x.heartbeat().closed;
    caller.send(Body::Heartbeat(Heartbeat { canary: true, closed, ..heartbeat })).await;
    settle().await;
    assert_eq!(measured(), 2);
    here.check();
}

/// The value of a series of a peer.
fn peer_metric(here: &Here, metric: &str, peer: &str) -> i64 {
    here.server.status();
    let (text, label) = (here.metrics.render(), format!("peer=\"{peer}\""));
    let line = text.lines().find(|line| line.starts_with(&format!("{metric}{{")) && line.contains(&label));
    line.unwrap_or_else(|| panic!("no {metric}")).rsplit(' ').next().unwrap().parse().unwrap()
}
