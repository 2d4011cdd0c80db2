//! Which peers are asked for what is waited for, and when they are let off.

use std::time::Duration;

use tidewire_applier::Settings;
use tidewire_core::transport::wire::{Frame, Hello, RELAY, frame::Body};

use crate::origin::MemOrigin;
use crate::rig::{Caller, Here, hello, origin, settle, soon};

/// A caller that sends on what it is asked for.
async fn relay(here: &Here, origin: &MemOrigin) -> Caller {
    let mut link = here.dial(&origin.cluster).await;
    let hello = Hello { capabilities: vec!["more".into(), RELAY.into()], ..hello(origin, 7) };
    soon(link.sender.send(Frame::new(0, Body::Hello(hello)))).await.unwrap();
    match soon(link.receiver.receive()).await.unwrap().and_then(|frame| frame.body) {
        Some(Body::Welcome(welcome)) => Caller::new(link, welcome),
        other => panic!("{other:?}"),
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn f15_only_a_peer_that_relays_is_asked_after_a_while_and_let_off_when_the_origin_is_back() {
    let here = Here::open(Settings::default()).await;
    let (mut x, mut y, z) = (origin("x"), origin("y"), origin("z"));
    y.commit(&[&["cause"]]);
    x.see(&y);
    x.commit(&[&["effect"]]);
    let (mut relaying, mut plain) = (relay(&here, &x).await, here.call(&z).await);
    relaying.page(&x, 0, 1).await;
    seconds(4).await;
    assert_eq!(relaying.last_ack().await.expect("it holds something").wanted, [], "not for long yet");
    seconds(2).await;
    assert_eq!(relaying.last_ack().await.expect("asked").wanted, [y.origin().get()]);
    assert!(here.applier.held()[0].asked);

    // The origin comes by itself, and it offers as much: it is not asked for itself.
    let mut direct = relay(&here, &y).await;
    direct.page(&y, 0, 1).await;
    relaying.acked(1).await;
    for _ in 0..4 {
        seconds(1).await;
        direct.heartbeat(&mut y).await;
    }
    settle().await;
    let own = direct.last_ack().await.expect("acknowledged");
    assert_eq!(own.wanted, [], "who is wanted is not asked for itself");
    assert_eq!(relaying.last_ack().await.expect("let off").wanted, []);
    assert!(plain.last_ack().await.is_none_or(|ack| ack.wanted.is_empty()), "it has not offered");
    here.check();
}

#[tokio::test(start_paused = true)]
async fn with_a_bound_of_zero_nobody_is_ever_asked() {
    let here = Here::open(Settings { relay_after: Duration::ZERO, ..Settings::default() }).await;
    let (mut x, mut y) = (origin("x"), origin("y"));
    y.commit(&[&["cause"]]);
    x.see(&y);
    x.commit(&[&["effect"]]);
    let mut relaying = relay(&here, &x).await;
    relaying.page(&x, 0, 1).await;
    seconds(100).await;
    assert_eq!(relaying.last_ack().await.expect("it holds something").wanted, []);
    assert!(!here.applier.held()[0].asked && here.applier.held()[0].seconds >= 99.0);
    here.check();
}
