//! Who is let in, and what ends a session.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_applier::{ReceiveState, Settings};
use tidewire_core::id::{Hlc, Incarnation, TreeName};
use tidewire_core::transport::wire::{Frame, Heartbeat, Page, frame::Body};
use tidewire_core::tree::ApplyTarget;

use crate::origin::MemOrigin;
use crate::rig::{Caller, Here, Last, hello, name, origin, settle, soon, tree};

#[tokio::test(start_paused = true)]
async fn f52_strangers_are_refused_with_a_reason_and_cost_nothing() {
    let here = Here::open(Settings::default()).await;
    let refusal = here.hello(&origin("stranger"), 1).await.unwrap_err();
    assert_eq!((refusal.kind.as_str(), refusal.retry), ("unknown_peer", true));
    assert!(refusal.detail.contains("stranger"));
    assert_eq!(here.server.status().len(), 3, "nothing is kept of a stranger");
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_does_not_say_hello_is_closed_after_five_seconds() {
    let here = Here::open(Settings::default()).await;
    let mut silent = here.dial(&name("x")).await;
    let before = tokio::time::Instant::now();
    let _end = soon(silent.receiver.receive()).await;
    assert_eq!(before.elapsed().as_secs(), 5);
    let mut rude = here.dial(&name("x")).await;
    rude.sender.send(Frame::new(0, Body::Page(Page::default()))).await.unwrap();
    let frame = soon(rude.receiver.receive()).await.unwrap().unwrap();
    assert!(matches!(frame.body, Some(Body::Refusal(refusal)) if refusal.kind == "malformed"));
    here.check();
}

#[tokio::test(start_paused = true)]
async fn strangers_that_stay_silent_only_delay_those_behind_them() {
    let here = Here::open(Settings::default()).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(here.dial(&name("y")).await);
        settle().await;
    }
    let before = tokio::time::Instant::now();
    here.call(&origin("x")).await;
    assert!((4..=5).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn f13_own_records_trip_the_link() {
    let here = Here::open(Settings::default()).await;
    let mut own = origin("here");
    own.commit(&[&["a"]]);
    let mut caller = here.call(&origin("x")).await;
    caller.page(&own, 0, 1).await;
    let (ack, last) = caller.ended().await;
    assert_eq!(ack.unwrap().refused.unwrap().kind, "own_origin");
    assert!(matches!(last, Last::Refusal(refusal) if refusal.kind == "own_origin" && !refusal.retry));
    assert_eq!(here.metric("tidewire_own_origin_refused_total", "x"), 1);
    assert_eq!(here.state("x"), ReceiveState::Refused);
    assert!(here.target.applied().is_empty());
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f20_a_clock_too_far_ahead_is_shown_with_the_figure_and_passes_once_it_is_right() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.hlc = Hlc::from_millis(100_000);
    x.commit(&[&["a"]]);
    here.target.set_wall(20_000, Duration::from_secs(30));
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    let (ack, last) = caller.ended().await;
    assert_eq!(
        (ack.unwrap().refused.unwrap().kind, last.kind()),
        ("clock_skew".to_owned(), "clock_skew".to_owned())
    );
    let status = here.status("x");
    assert_eq!(status.state, ReceiveState::Refused);
    assert!(status.reason.unwrap().contains("80000 ms"));
    assert!(here.target.applied().is_empty());
    here.target.set_wall(90_000, Duration::from_secs(30));
    let mut again = here.call(&x).await;
    again.page(&x, 0, 1).await;
    again.acked(1).await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp);
}

#[tokio::test(start_paused = true)]
async fn f04_a_log_created_anew_is_refused_before_and_after_something_was_applied() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    let mut anew = origin("x");
    anew.incarnation = Incarnation::new(77);
    here.call(&x).await;
    assert_eq!(here.hello(&anew, 8).await.unwrap_err().kind, "incarnation", "it is enrolled");
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    caller.acked(1).await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp, "what was refused did not replace it");
    assert_eq!(here.hello(&anew, 8).await.unwrap_err().kind, "incarnation", "something is applied");
    assert_eq!(here.state("x"), ReceiveState::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_new_link_replaces_the_one_before_it() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    x.commit(&[&["a"]]);
    let mut old = here.hello(&x, 1).await.unwrap();
    let mut new = here.hello(&x, 2).await.unwrap();
    assert_ne!(old.welcome.session, new.welcome.session);
    assert_eq!(old.ended().await.1, Last::Goodbye("replaced by a newer link".into()));
    new.page(&x, 0, 1).await;
    new.acked(1).await;
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f53_two_copies_are_both_refused_until_the_peer_is_added_again() {
    let here = Here::open(Settings::default()).await;
    let x = origin("x");
    let mut original = here.hello(&x, 1).await.unwrap();
    let mut copy = here.hello(&x, 2).await.unwrap();
    original.ended().await;
    let refusal = here.hello(&x, 1).await.unwrap_err();
    assert_eq!((refusal.kind.as_str(), refusal.retry), ("two_copies", false));
    assert_eq!(copy.ended().await.1.kind(), "two_copies");
    assert_eq!(here.hello(&x, 2).await.unwrap_err().kind, "two_copies");
    assert_eq!(here.state("x"), ReceiveState::Refused);
    assert_eq!(here.metric("tidewire_two_copies_refused_total", "x"), 2);
    here.server.remove(&name("x")).await;
    here.server.allow(&name("x"), None);
    here.hello(&x, 2).await.unwrap();
    here.check();
}

/// A peer that has brought what waits for another one.
async fn waiting(here: &Here) -> (MemOrigin, MemOrigin, Caller) {
    let (mut x, mut y) = (origin("x"), origin("y"));
    y.commit(&[&["b"]]);
    x.see(&y);
    x.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    settle().await;
    (x, y, caller)
}

#[tokio::test(start_paused = true)]
async fn a_removed_peer_is_cut_off_and_what_waited_of_it_is_dropped() {
    let here = Here::open(Settings::default()).await;
    let (x, y, mut caller) = waiting(&here).await;
    assert!(here.status("x").lag.bytes > 0);
    here.server.remove(&name("x")).await;
    assert_eq!(caller.ended().await.1.kind(), "unknown_peer");
    assert_eq!(here.hello(&x, 7).await.unwrap_err().kind, "unknown_peer");
    here.server.allow(&name("x"), None);
    settle().await;
    assert_eq!(here.status("x").lag.bytes, 0);
    let mut again = here.call(&x).await;
    again.page(&x, 0, 1).await;
    let mut from_y = here.call(&y).await;
    from_y.page(&y, 0, 1).await;
    again.acked(1).await;
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_peer_ships_only_the_trees_that_are_its_own() {
    let here = Here::open(Settings::default()).await;
    let x = origin("x");
    let mut caller = here.call(&x).await;
    let other = BTreeSet::from([TreeName::new("other").unwrap()]);
    here.server.allow(&name("x"), Some(other));
    assert_eq!(caller.ended().await.1.kind(), "unknown_tree");
    assert_eq!(here.hello(&x, 7).await.unwrap_err().kind, "unknown_tree");
    here.server.allow(&name("x"), Some(BTreeSet::from([tree()])));
    let mut caller = here.call(&x).await;
    here.server.close_tree(&tree());
    assert_eq!(caller.ended().await.1, Last::Goodbye("the tree was closed".into()));
    assert_eq!(here.hello(&x, 7).await.unwrap_err().kind, "unknown_tree");
}

#[tokio::test(start_paused = true)]
async fn frames_that_cannot_be_meant_end_the_session_and_nothing_else() {
    let here = Here::open(Settings::default()).await;
    let (mut x, y) = (origin("x"), origin("y"));
    x.commit(&[&["a"]]);
    let nonsense = [
        Body::Page(Page::default()),
        Body::Page(Page { page_id: u64::MAX, part: u32::MAX, origin: x.origin().get(), ..Page::default() }),
        Body::Heartbeat(Heartbeat { closed: u64::MAX, ..Heartbeat::default() }),
        Body::Hello(hello(&x, 1)),
    ];
    for body in nonsense {
        let mut caller = here.call(&y).await;
        caller.send(body).await;
        assert!(matches!(caller.ended().await.1, Last::Refusal(_)));
    }
    let mut caller = here.call(&x).await;
    caller.page(&x, 0, 1).await;
    caller.acked(1).await;
    assert!(here.target.progress().watermarks.origin(y.origin()).is_none());
    here.check();
}

#[tokio::test(start_paused = true)]
async fn f13_a_link_that_loops_stays_shut_for_longer_each_time_and_is_well_when_it_has_proven_itself() {
    let here = Here::open(Settings::default()).await;
    let (mut own, mut x) = (origin("here"), origin("x"));
    own.commit(&[&["a"]]);
    x.commit(&[&["b"]]);
    for shut in [30, 60] {
        let mut caller = here.call(&x).await;
        caller.page(&x, 0, 1).await;
        caller.page(&own, 0, 1).await;
        assert_eq!(caller.ended().await.1.kind(), "own_origin");
        tokio::time::sleep(Duration::from_secs(shut - 2)).await;
        let refusal = here.hello(&x, 7).await.unwrap_err();
        assert_eq!(refusal.kind, "own_origin");
        assert!(
            refusal.detail.contains("id of its own") && refusal.detail.contains("tried again in"),
            "{refusal:?}"
        );
        assert_eq!(here.state("x"), ReceiveState::Refused);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    // A session that brings something is believed after ten seconds.
    let mut caller = here.call(&x).await;
    caller.heartbeat(&mut x).await;
    settle().await;
    assert_eq!(here.state("x"), ReceiveState::Refused, "it is on trial");
    tokio::time::sleep(Duration::from_secs(11)).await;
    caller.heartbeat(&mut x).await;
    settle().await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp);
    assert_eq!(here.metric("tidewire_own_origin_refused_total", "x"), 2);
    here.check();
}

#[tokio::test(start_paused = true)]
async fn an_order_to_begin_anew_clears_a_tripped_link_and_two_copies() {
    let here = Here::open(Settings::default()).await;
    let (mut own, x) = (origin("here"), origin("x"));
    own.commit(&[&["a"]]);
    let mut caller = here.call(&x).await;
    caller.page(&own, 0, 1).await;
    caller.ended().await;
    here.hello(&x, 7).await.unwrap_err();
    here.server.restart(&name("x"));
    assert_eq!(here.state("x"), ReceiveState::Connecting);
    here.hello(&x, 1).await.unwrap();
    here.hello(&x, 2).await.unwrap();
    let refusal = here.hello(&x, 1).await.unwrap_err();
    assert!(
        refusal.kind == "two_copies" && refusal.detail.contains("tidewire peers restart x"),
        "{refusal:?}"
    );
    here.server.restart(&name("x"));
    here.hello(&x, 2).await.unwrap();
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_paused_peer_is_sent_away_until_it_is_resumed_and_what_has_come_goes_on() {
    let here = Here::open(Settings::default()).await;
    let (x, y, mut caller) = waiting(&here).await;
    here.server.pause(&name("x"));
    assert_eq!(caller.ended().await.1.kind(), "paused");
    let refusal = here.hello(&x, 7).await.unwrap_err();
    assert_eq!((refusal.kind.as_str(), refusal.retry), ("paused", true));
    assert_eq!(here.state("x"), ReceiveState::Paused);
    let mut from_y = here.call(&y).await;
    from_y.page(&y, 0, 1).await;
    from_y.acked(1).await;
    settle().await;
    assert_eq!(here.target.applied().len(), 2, "what x had brought waited for y alone");
    here.server.resume(&name("x"));
    assert_eq!(here.state("x"), ReceiveState::Connecting);
    here.call(&x).await;
    here.check();
}

#[tokio::test(start_paused = true)]
async fn a_link_over_which_nothing_comes_is_not_shown_as_caught_up() {
    let here = Here::open(Settings::default()).await;
    let mut x = origin("x");
    let mut caller = here.call(&x).await;
    caller.heartbeat(&mut x).await;
    settle().await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp);
    tokio::time::sleep(Duration::from_secs(12)).await;
    let status = here.status("x");
    assert_eq!(status.state, ReceiveState::Connecting);
    assert!(status.reason.expect("why").contains("nothing for 12 s"));
    caller.heartbeat(&mut x).await;
    settle().await;
    assert_eq!(here.state("x"), ReceiveState::CaughtUp);
}
