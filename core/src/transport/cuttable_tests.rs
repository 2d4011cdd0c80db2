//! Claims about the switches: cuts, heals and delays, over the network in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::conformance::{self, Sides};
use super::wire::{Frame, Goodbye, Hello, frame::Body};
use super::{CuttableTransport, DialTarget, Link, Listener, MemNetwork, Transport};
use crate::id::ClusterId;
use crate::random::Random;

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

fn hello() -> Frame {
    Frame::new(0, Body::Hello(Hello { cluster: "a".into(), ..Hello::default() }))
}

fn frame(number: u64) -> Frame {
    Frame::new(number, Body::Goodbye(Goodbye::default()))
}

/// Cuttable transports of `a` and `b` with `b` listening.
async fn sides() -> (CuttableTransport, CuttableTransport, Box<dyn Listener>) {
    let network = MemNetwork::new(&Random::from_seed(1));
    let a = CuttableTransport::new(Arc::new(network.endpoint(&id("a"))));
    let b = CuttableTransport::new(Arc::new(network.endpoint(&id("b"))));
    let listener = b.listen().await.unwrap();
    (a, b, listener)
}

fn b() -> DialTarget {
    DialTarget { peer: id("b"), url: "mem://b".into() }
}

async fn joined(a: &CuttableTransport, listener: &mut dyn Listener) -> (Link, Link) {
    let mut mine = a.dial(&b()).await.unwrap();
    mine.sender.send(hello()).await.unwrap();
    let mut theirs = listener.accept().await.unwrap();
    assert_eq!(theirs.receiver.receive().await.unwrap(), Some(hello()));
    (mine, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_cut_breaks_links_at_once_on_both_sides_and_a_heal_lets_new_ones_through() {
    let (a, _b, mut listener) = sides().await;
    let (mut mine, mut theirs) = joined(&a, &mut *listener).await;
    let start = Instant::now();
    let cut = async { a.cut(&id("b")) };
    let (left, right, ()) = tokio::join!(mine.receiver.receive(), theirs.receiver.receive(), cut);
    assert!(left.is_err() && right.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(a.dial(&b()).await.is_err() && a.is_cut(&id("b")));
    a.heal(&id("b"));
    assert!(mine.sender.send(frame(1)).await.is_err(), "a link that was cut stays broken");
    joined(&a, &mut *listener).await;
}

#[tokio::test(start_paused = true)]
async fn the_accepting_side_cuts_by_the_name_in_the_hello() {
    let (a, b_side, mut listener) = sides().await;
    let (mut mine, mut theirs) = joined(&a, &mut *listener).await;
    b_side.cut(&id("a"));
    assert!(theirs.receiver.receive().await.is_err() && theirs.sender.send(frame(1)).await.is_err());
    assert!(mine.receiver.receive().await.is_err(), "the dialling side learns it");
    let mut again = a.dial(&b()).await.unwrap();
    again.sender.send(hello()).await.unwrap();
    assert!(listener.accept().await.unwrap().receiver.receive().await.is_err(), "no Hello passes a cut");
}

#[tokio::test(start_paused = true)]
async fn a_cut_that_is_healed_before_anybody_looked_still_breaks_the_link() {
    let (a, _b, mut listener) = sides().await;
    let (mut mine, _theirs) = joined(&a, &mut *listener).await;
    a.cut(&id("b"));
    a.heal(&id("b"));
    assert!(mine.receiver.receive().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_frames_back_in_order_without_slowing_the_stream() {
    let (a, b_side, mut listener) = sides().await;
    let (mut mine, mut theirs) = joined(&a, &mut *listener).await;
    b_side.set_delay(&id("a"), Duration::from_millis(500));
    let start = Instant::now();
    for number in 0..100 {
        mine.sender.send(frame(number)).await.unwrap();
    }
    mine.sender.close().await;
    assert!(timeout(Duration::from_millis(499), theirs.receiver.receive()).await.is_err());
    for number in 0..100 {
        assert_eq!(theirs.receiver.receive().await.unwrap().unwrap().session, number);
    }
    assert!(theirs.receiver.receive().await.unwrap().is_none());
    assert!(start.elapsed() < Duration::from_millis(505), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_transport_under_switches_is_a_transport() {
    conformance::run(|| {
        let network = MemNetwork::new(&Random::from_seed(1));
        let dialler = CuttableTransport::new(Arc::new(network.endpoint(&id("a"))));
        let answerer = CuttableTransport::new(Arc::new(network.endpoint(&id("b"))));
        answerer.set_delay(&id("dialler"), Duration::from_millis(3));
        Sides { dialler: Arc::new(dialler), answerer: Arc::new(answerer), url: str::to_owned }
    })
    .await;
}
