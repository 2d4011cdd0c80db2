//! What a shipper does when it cannot or must not ship.

use std::time::Duration;

use tidewire_core::causal::OriginMarks;
use tidewire_core::id::{Hlc, Incarnation, Lsn, Offset, PartitionId};
use tidewire_core::transport::marks::encode_origin;
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::LogView;
use tidewire_shipper::{ShipperHandle, ShipperState};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::Peer;
use crate::rig::{PARTITIONS, Rig, me};

const PLENTY: u64 = u64::MAX;

/// After the peer's welcome nothing comes, and the shipper shows why.
async fn refuses(rig: &Rig, peer: &mut Peer, welcome: wire::Welcome) -> (ShipperHandle, String) {
    let shipper = rig.ship();
    let mut conn = peer.meet().await;
    conn.send_welcome(welcome).await;
    assert!(!conn.listen_for(Duration::from_secs(5)).await, "the link ends");
    assert_eq!((conn.pages.len(), conn.heartbeats.len()), (0, 0), "nothing is sent");
    let reason = shipper.status().reason.unwrap();
    (shipper, reason)
}

#[tokio::test(start_paused = true)]
async fn f55_a_log_that_went_back_ships_nothing_until_the_peer_holds_less() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let (partition, tail) = rig.log.tails().iter().find(|(_, mark)| mark.next > Offset::ZERO).unwrap();
    let mut held = OriginMarks::new(me().incarnation, PARTITIONS);
    held.advance(partition, tail.next.advanced(3), Hlc::new(999));
    peer.held = held;
    let welcome = peer.welcome(PLENTY);
    let (shipper, reason) = refuses(&rig, &mut peer, welcome).await;
    assert_eq!(shipper.status().state, ShipperState::Refused);
    for part in [
        format!("partition {partition} b holds {} records", tail.next.advanced(3)),
        format!("here are {}", tail.next),
        "newest copy of its data directory".into(),
        "peers reseed".into(),
        "Delete nothing on the peers".into(),
    ] {
        assert!(reason.contains(&part), "{part:?} in {reason}");
    }
    assert!(rig.last_durable().is_none(), "nothing is acknowledged");
    // Tried again slowly, since the peer may change.
    let before = Instant::now();
    peer.held = OriginMarks::new(me().incarnation, PARTITIONS);
    let mut conn = peer.accept(PLENTY).await;
    assert!((20..=31).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    conn.until_records(5).await;
    assert_eq!(shipper.status().state, ShipperState::Streaming);
}

#[tokio::test(start_paused = true)]
async fn f55_another_record_at_the_same_place_is_also_a_log_that_went_back() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let (partition, tail) = rig.log.tails().iter().find(|(_, mark)| mark.next > Offset::ZERO).unwrap();
    peer.held.advance(partition, tail.next, tail.hlc.next());
    let welcome = peer.welcome(PLENTY);
    let (shipper, reason) = refuses(&rig, &mut peer, welcome).await;
    assert_eq!(shipper.status().state, ShipperState::Refused);
    assert!(
        reason.contains(&tail.hlc.next().to_string()) && reason.contains(&tail.hlc.to_string()),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn f04_writes_of_another_incarnation_of_this_log_are_never_compared() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let mut held = OriginMarks::new(Incarnation::new(4), PARTITIONS);
    held.advance(PartitionId::new(0), Offset::new(1), Hlc::new(1));
    let welcome =
        wire::Welcome { watermarks: vec![encode_origin(me().origin(), &held)], ..peer.welcome(PLENTY) };
    let (shipper, reason) = refuses(&rig, &mut peer, welcome).await;
    assert_eq!(shipper.status().state, ShipperState::Refused);
    assert!(reason.contains("incarnation 4") && reason.contains("incarnation 5"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_needs_what_is_trimmed_has_fallen_off() {
    let rig = Rig::new();
    rig.put(5);
    rig.log.trim(Lsn::new(3));
    let mut peer = Peer::listen(&rig.network).await;
    let welcome = peer.welcome(PLENTY);
    let (shipper, reason) = refuses(&rig, &mut peer, welcome).await;
    assert_eq!(shipper.status().state, ShipperState::FellOff);
    assert!(reason.contains("begins at 3"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn whoever_answers_in_the_place_of_the_peer_gets_nothing() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let welcome = wire::Welcome { cluster: "c".into(), ..peer.welcome(PLENTY) };
    let (shipper, reason) = refuses(&rig, &mut peer, welcome).await;
    assert_eq!(shipper.status().state, ShipperState::Refused);
    assert!(reason.contains("meant to call b") && reason.contains("\"c\""), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_shows_the_words_of_the_peer_and_is_tried_again() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let refusal = wire::Refusal {
        kind: "unknown_peer".into(),
        detail: "a is not a peer of b: add it there".into(),
        retry: true,
    };
    for _ in 0..4 {
        peer.meet().await.send_as(0, Body::Refusal(refusal.clone())).await;
        sleep(Duration::from_millis(5)).await;
        let status = shipper.status();
        assert_eq!(status.state, ShipperState::Refused);
        assert!(status.reason.unwrap().contains("add it there"));
    }
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    assert_eq!((shipper.status().state, shipper.status().reason), (ShipperState::Streaming, None));
}

#[tokio::test(start_paused = true)]
async fn f20_a_page_refused_for_the_clock_shows_as_refused_and_is_tried_slowly() {
    let rig = Rig::new();
    rig.put(5);
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    let detail = "the clock of a is 40000 ms ahead".to_owned();
    let refused = Some(wire::PageRefusal { page_id: 1, kind: "clock_skew".into(), detail });
    conn.send(Body::Ack(wire::Ack { refused, ..wire::Ack::default() })).await;
    sleep(Duration::from_millis(5)).await;
    let status = shipper.status();
    assert_eq!((status.state, status.lag.entries), (ShipperState::Refused, 5));
    assert!(status.reason.unwrap().contains("40000 ms"));
    assert!(timeout(Duration::from_secs(29), peer.meet()).await.is_err());
    peer.accept(PLENTY).await.until_records(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_cannot_be_reached_is_dialled_with_growing_waits_for_ever() {
    let rig = Rig::new();
    rig.put(5);
    let shipper = rig.ship();
    sleep(Duration::from_secs(300)).await;
    let status = shipper.status();
    assert_eq!((status.state, status.sessions, status.lag.entries), (ShipperState::Connecting, 0, 5));
    assert!(status.reason.unwrap().contains("link to b"));
    let mut peer = Peer::listen(&rig.network).await;
    let before = Instant::now();
    peer.accept(PLENTY).await.until_records(5).await;
    assert!(before.elapsed() <= Duration::from_secs(36), "{:?}", before.elapsed());
    rig.network.kill(&crate::rig::id("b"));
    sleep(Duration::from_secs(60)).await;
    let mut peer = Peer::listen(&rig.network).await;
    let before = Instant::now();
    shipper.restart();
    peer.accept(PLENTY).await;
    assert!(before.elapsed() < Duration::from_secs(1), "a restart does not wait");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_hello_is_given_up_after_five_seconds() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship();
    let mut conn = peer.meet().await;
    let before = Instant::now();
    assert!(!conn.listen_for(Duration::from_secs(60)).await);
    assert_eq!(before.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn f52_an_answer_that_cannot_be_ends_the_attempt() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let good = peer.welcome(PLENTY);
    let bad_origin = wire::OriginWatermarks {
        partitions: vec![wire::PartitionWatermark { partition: 99, next: 1, hlc: 1 }],
        ..wire::OriginWatermarks::default()
    };
    let answers = [
        Body::Welcome(wire::Welcome { session: 0, ..good.clone() }),
        Body::Welcome(wire::Welcome { session: 7, protocol: 2, ..good.clone() }),
        Body::Welcome(wire::Welcome { session: 7, watermarks: vec![bad_origin], ..good.clone() }),
        Body::Ack(wire::Ack::default()),
    ];
    for answer in answers {
        let mut conn = peer.meet().await;
        let session = Frame::new(0, answer.clone()).body.map_or(0, |body| match body {
            Body::Welcome(welcome) => welcome.session,
            _ => 0,
        });
        conn.send_as(session, answer).await;
        assert!(!conn.listen_for(Duration::from_millis(50)).await);
        assert_eq!(shipper.status().sessions, 0);
    }
    peer.accept(PLENTY).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!(shipper.status().sessions, 1);
}
