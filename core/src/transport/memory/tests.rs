//! Claims about the network in memory: delay, cuts, killed endpoints, lost and repeated frames, and the same seed twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::MemNetwork;
use crate::error::LinkErrorKind;
use crate::id::ClusterId;
use crate::random::Random;
use crate::transport::conformance::{self, Sides};
use crate::transport::wire::{Frame, Goodbye, frame::Body};
use crate::transport::{DialTarget, Link, Transport};

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

fn frame(number: u64) -> Frame {
    Frame::new(number, Body::Goodbye(Goodbye { reason: "x".repeat(100) }))
}

/// A network with a link from `a` to `b`: the two ends.
async fn joined(network: &MemNetwork) -> (Link, Link) {
    let mut listener = network.endpoint(&id("b")).listen().await.unwrap();
    let target = DialTarget { peer: id("b"), url: listener.address() };
    let mine = network.endpoint(&id("a")).dial(&target).await.unwrap();
    (mine, listener.accept().await.unwrap())
}

fn network() -> MemNetwork {
    MemNetwork::new(&Random::from_seed(1))
}

#[tokio::test(start_paused = true)]
async fn frames_take_their_delay_and_keep_their_order() {
    let network = network();
    network.set_delay(&id("a"), &id("b"), Duration::from_millis(10), Duration::from_millis(50));
    let (mut mine, mut theirs) = joined(&network).await;
    let start = Instant::now();
    for number in 0..100 {
        mine.sender.send(frame(number)).await.unwrap();
    }
    for number in 0..100 {
        assert_eq!(theirs.receiver.receive().await.unwrap().unwrap().session, number);
    }
    assert!((10..60).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_one_way_cut_is_silent_and_what_waited_arrives_after_the_heal() {
    let network = network();
    let (mut mine, mut theirs) = joined(&network).await;
    network.cut_one_way(&id("a"), &id("b"));
    mine.sender.send(frame(1)).await.unwrap();
    theirs.sender.send(frame(2)).await.unwrap();
    assert_eq!(mine.receiver.receive().await.unwrap().unwrap().session, 2);
    assert!(timeout(Duration::from_secs(10), theirs.receiver.receive()).await.is_err());
    network.heal(&id("a"), &id("b"));
    assert_eq!(theirs.receiver.receive().await.unwrap().unwrap().session, 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_cut_breaks_the_link_for_both_ends_and_a_dial_into_it_times_out() {
    let network = network();
    let (mut mine, mut theirs) = joined(&network).await;
    let start = Instant::now();
    network.cut(&id("a"), &id("b"));
    let (left, right) = tokio::join!(mine.receiver.receive(), theirs.receiver.receive());
    assert_eq!(left.unwrap_err().kind(), LinkErrorKind::Unreachable);
    assert_eq!(right.unwrap_err().kind(), LinkErrorKind::Unreachable);
    assert_eq!(start.elapsed().as_secs(), 20);
    assert!(mine.sender.send(frame(1)).await.is_err());
    let target = DialTarget { peer: id("b"), url: "mem://b".into() };
    let error = network.endpoint(&id("a")).dial(&target).await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (LinkErrorKind::Unreachable, 25));
}

#[tokio::test(start_paused = true)]
async fn killing_an_endpoint_breaks_its_links_and_loses_what_is_on_the_way() {
    let network = network();
    let (mut mine, mut theirs) = joined(&network).await;
    mine.sender.send(frame(1)).await.unwrap();
    network.kill(&id("a"));
    assert!(theirs.receiver.receive().await.is_err());
    assert!(mine.sender.send(frame(2)).await.is_err());
    assert_eq!(network.open_links(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unlucky_frame_breaks_the_link_and_does_not_arrive() {
    let network = network();
    network.set_break_chance(&id("a"), &id("b"), 0.1);
    let (mut mine, mut theirs) = joined(&network).await;
    let mut sent = 0;
    while mine.sender.send(frame(sent)).await.is_ok() {
        sent += 1;
    }
    assert!(sent > 1, "broke at the first frame");
    assert!(theirs.receiver.receive().await.is_err());
    assert!(mine.receiver.receive().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_adversary_repeats_and_reorders_but_loses_nothing() {
    let network = network().with_window(1 << 20);
    network.set_adversary(&id("a"), &id("b"), 0.3, 0.3);
    let (mut mine, mut theirs) = joined(&network).await;
    for number in 0..500 {
        mine.sender.send(frame(number)).await.unwrap();
    }
    mine.sender.close().await;
    let mut seen = Vec::new();
    while let Some(frame) = theirs.receiver.receive().await.unwrap() {
        seen.push(frame.session);
    }
    assert!(seen.len() > 550 && !seen.is_sorted());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_arrivals() {
    async fn run(seed: u64) -> Vec<(u64, u128)> {
        let network = MemNetwork::new(&Random::from_seed(seed));
        network.set_delay(&id("a"), &id("b"), Duration::ZERO, Duration::from_millis(40));
        network.set_adversary(&id("a"), &id("b"), 0.2, 0.2);
        let (mut mine, mut theirs) = joined(&network).await;
        let start = Instant::now();
        for number in 0..50 {
            mine.sender.send(frame(number)).await.unwrap();
        }
        mine.sender.close().await;
        let mut trace = Vec::new();
        while let Some(frame) = theirs.receiver.receive().await.unwrap() {
            trace.push((frame.session, start.elapsed().as_millis()));
        }
        trace
    }
    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}

#[tokio::test(start_paused = true)]
async fn the_network_in_memory_is_a_transport() {
    conformance::run(|| {
        let network = network();
        let (dialler, answerer) = (network.endpoint(&id("a")), network.endpoint(&id("b")));
        Sides { dialler: Arc::new(dialler), answerer: Arc::new(answerer), url: str::to_owned }
    })
    .await;
}
