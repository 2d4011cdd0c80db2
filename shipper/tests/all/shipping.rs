//! What a session does while nothing is refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_core::id::Hlc;
use tidewire_core::transport::wire::{self, frame::Body};
use tidewire_core::tree::LogView;
use tidewire_shipper::{Lag, ShipperState};
use tokio::time::{Instant, sleep};

use crate::peer::{Peer, covers, tag};
use crate::rig::{Rig, id};

const PLENTY: u64 = u64::MAX;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn hello_says_who_calls_about_what_and_nothing_of_positions() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship();
    let hello = peer.meet().await.hello;
    let expected = wire::Hello {
        cluster: "a".into(),
        boot_id: 3,
        protocol_min: 1,
        protocol_max: 1,
        tree: "orders".into(),
        incarnation: 5,
        partitions: 4,
        merge_mode: "lww".into(),
        known_clusters: vec!["a".into(), "b".into(), "c".into()],
        capabilities: vec!["zstd".into()],
        forwarded: vec![],
        interest: Vec::new(),
    };
    assert_eq!(hello, expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_arrives_and_what_is_acknowledged_is_durable() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(300);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(300).await;
    assert!(conn.hlcs().is_sorted());
    assert_eq!(conn.pages[0].origin.get(), tag("a"));
    assert_eq!(shipper.status().lag.entries, 300);
    peer.hold(&conn, conn.pages.len());
    let ack = peer.ack(PLENTY);
    conn.send(Body::Ack(ack)).await;
    sleep(millis(5)).await;
    assert_eq!(rig.last_durable(), Some(rig.log.end()));
    let status = shipper.status();
    assert_eq!((status.state, status.lag, status.sessions), (ShipperState::CaughtUp, Lag::default(), 1));
    assert!(status.last_ack.unwrap() < millis(10));
}

#[tokio::test(start_paused = true)]
async fn after_a_break_it_starts_from_what_the_peer_holds() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    for records in 1..=2 {
        rig.put(1);
        conn.until_records(records).await;
    }
    peer.hold(&conn, 1);
    // The acknowledgement is lost with the link; the next welcome says the same.
    rig.network.break_links(&id("a"), &id("b"));
    rig.put(3);
    let sent = conn.hlcs();
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(4).await;
    assert_eq!(
        conn.hlcs()[0],
        sent[1],
        "the record that the peer had not taken comes again, the other one does not"
    );
    assert_eq!((shipper.status().sessions, rig.last_durable().unwrap().lsn.get()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_answered_by_sending_again_from_where_the_peer_stands() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship();
    rig.put(10);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(10).await;
    let refused = wire::PageRefusal { page_id: 2, kind: "gap".into(), detail: "lost one".into() };
    let ack = wire::Ack { refused: Some(refused), ..peer.ack(PLENTY) };
    conn.send(Body::Ack(ack)).await;
    let before = Instant::now();
    let mut again = peer.accept(PLENTY).await;
    assert!(before.elapsed() < millis(200), "{:?}", before.elapsed());
    again.until_records(10).await;
    assert_eq!(again.hlcs(), conn.hlcs());
    assert_eq!(again.pages[0].id.get(), 1, "pages are numbered by session");
}

#[tokio::test(start_paused = true)]
async fn no_credit_stops_and_a_later_acknowledgement_resumes() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(50);
    let mut conn = peer.accept(0).await;
    assert!(conn.listen_for(Duration::from_secs(60)).await, "the link stays");
    assert_eq!((conn.records(), conn.heartbeats.len()), (0, 0));
    let status = shipper.status();
    assert_eq!(status.state, ShipperState::Waiting);
    assert!(status.reason.unwrap().contains("no credit"));
    let ack = peer.ack(PLENTY);
    conn.send(Body::Ack(ack)).await;
    conn.until_records(50).await;
    peer.hold(&conn, conn.pages.len());
    let ack = peer.ack(PLENTY);
    conn.send(Body::Ack(ack)).await;
    conn.listen_for(millis(5)).await;
    assert_eq!(shipper.status().state, ShipperState::CaughtUp);
}

#[tokio::test(start_paused = true)]
async fn f02_no_heartbeat_overtakes_a_page() {
    let rig = Rig::new();
    rig.network.set_delay(&id("a"), &id("b"), millis(0), millis(30));
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship();
    let mut conn = peer.accept(3_000).await;
    let (mut seen, mut closed) = (0, Hlc::ZERO);
    for round in 0..200 {
        rig.put(round % 3);
        conn.listen_for(millis(70 * (round % 5))).await;
        for page in &conn.pages[seen..] {
            let first = page.groups[0].blocks[0].first_hlc();
            assert!(first > closed, "a record at or below what a heartbeat has closed");
        }
        for heartbeat in &conn.heartbeats {
            closed = closed.max(Hlc::new(heartbeat.closed));
        }
        peer.held = conn.covered();
        assert!(conn.heartbeats.iter().all(|heartbeat| covers(&peer.held, heartbeat)));
        seen = conn.pages.len();
        if round % 2 == 0 {
            let ack = peer.ack(1_000 * (round % 4));
            conn.send(Body::Ack(ack)).await;
        }
    }
    assert!(conn.heartbeats.len() > 10 && conn.records() > 50);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_log_sends_heartbeats_that_slow_down_to_one_a_second() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    conn.listen_for(Duration::from_secs(60)).await;
    assert!((58..=66).contains(&conn.heartbeats.len()), "{}", conn.heartbeats.len());
    assert!(conn.heartbeats.is_sorted_by_key(|heartbeat| heartbeat.closed));
    assert_eq!(shipper.status().state, ShipperState::CaughtUp);
}

#[tokio::test(start_paused = true)]
async fn f12_keep_alives_alone_move_no_cursor() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(5);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    let start = rig.last_durable();
    for _ in 0..100 {
        let ack = peer.ack(PLENTY);
        conn.send(Body::Ack(ack)).await;
        conn.listen_for(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.last_durable(), start, "acknowledgements of nothing");
    let status = shipper.status();
    assert_eq!((status.state, status.sessions), (ShipperState::Waiting, 1));
    assert!(status.last_ack.unwrap() <= Duration::from_secs(1), "alive, and not moving");
}

#[tokio::test(start_paused = true)]
async fn f42_a_peer_that_acknowledges_nothing_shows_as_waiting_and_is_then_given_up() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(5);
    let mut conn = peer.accept(PLENTY).await;
    assert!(conn.listen_for(Duration::from_secs(9)).await);
    assert_eq!(shipper.status().state, ShipperState::Streaming);
    assert!(conn.listen_for(Duration::from_secs(2)).await);
    assert_eq!(shipper.status().state, ShipperState::Waiting);
    assert!(!conn.listen_for(Duration::from_secs(20)).await, "the link is given up after 30 s");
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    assert_eq!(shipper.status().sessions, 2);
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_an_older_session_changes_nothing() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(5);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    peer.hold(&conn, conn.pages.len());
    conn.send_as(1, Body::Goodbye(wire::Goodbye::default())).await;
    let ack = peer.ack(0);
    conn.send_as(1, Body::Ack(ack)).await;
    conn.listen_for(millis(50)).await;
    assert_eq!((shipper.status().lag.entries, shipper.status().sessions), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_of_the_peer_is_no_failure_to_wait_for() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    conn.send(Body::Goodbye(wire::Goodbye { reason: "shutting down".into() })).await;
    let before = Instant::now();
    peer.accept(PLENTY).await;
    assert!(before.elapsed() < millis(150), "{:?}", before.elapsed());
    sleep(millis(5)).await;
    assert_eq!(shipper.status().sessions, 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_says_goodbye_and_the_next_start_goes_on() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(5);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    peer.hold(&conn, conn.pages.len());
    let ack = peer.ack(PLENTY);
    conn.send(Body::Ack(ack)).await;
    shipper.stop().await;
    assert!(!conn.listen_for(millis(50)).await);
    assert!(conn.goodbye.is_some());
    assert_eq!(shipper.status().state, ShipperState::Paused);
    rig.put(5);
    assert_eq!(shipper.status().lag.entries, 5, "a paused shipper says what it holds back");
    let resumed = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    assert_eq!(resumed.status().lag.entries, 5);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ships_what_is_there_or_says_that_it_could_not() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    rig.put(400);
    let (drained, ()) = tokio::join!(shipper.drain(Duration::from_secs(10)), async {
        let mut conn = peer.accept(PLENTY).await;
        conn.until_records(400).await;
        peer.hold(&conn, conn.pages.len());
        let ack = peer.ack(PLENTY);
        conn.send(Body::Ack(ack)).await;
        conn.listen_for(millis(50)).await;
    });
    assert!(drained);
    rig.put(1);
    let shipper = rig.ship();
    let (drained, _conn) = tokio::join!(shipper.drain(Duration::from_secs(10)), peer.accept(PLENTY));
    assert!(!drained, "nobody acknowledged");
}

#[tokio::test(start_paused = true)]
async fn f51_lag_counts_entries_bytes_and_seconds_and_every_series_is_there_from_the_start() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    let text = rig.metrics.render();
    for series in ["shipped_records_total", "shipped_bytes_total", "lag_entries", "lag_bytes", "lag_seconds"]
    {
        let line = format!("tidewire_{series}{{tree=\"orders\",peer=\"b\"}} 0");
        assert!(text.contains(&line), "{line} in {text}");
    }
    // Records of the log in memory carry the clock of its second 1.
    rig.wall.0.store(61_000, Ordering::Relaxed);
    rig.put(5);
    let lag = shipper.status().lag;
    assert_eq!((lag.entries, lag.seconds), (5, 0), "before the first session, since it was seen");
    rig.wall.0.store(63_000, Ordering::Relaxed);
    assert_eq!(shipper.status().lag.seconds, 2);
    let mut conn = peer.accept(PLENTY).await;
    conn.until_records(5).await;
    sleep(millis(5)).await;
    let lag = shipper.status().lag;
    assert_eq!((lag.entries, lag.seconds), (5, 62), "the age of the oldest record in flight");
    assert!(lag.bytes > 500);
    let text = rig.metrics.render();
    assert!(text.contains("tidewire_shipped_records_total{tree=\"orders\",peer=\"b\"} 5"), "{text}");
    assert!(text.contains("tidewire_lag_seconds{tree=\"orders\",peer=\"b\"} 62"), "{text}");
    rig.network.kill(&id("b"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(shipper.status().lag, lag, "a peer that is gone is still behind");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_many_parts_arrives_whole() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship();
    let mut conn = peer.accept(PLENTY).await;
    for record in 0..12 {
        rig.log.put(&format!("k{record}"), 200_000);
    }
    while conn.records() < 12 {
        conn.until_records(conn.records() + 1).await;
        peer.held = conn.covered();
        let ack = peer.ack(PLENTY);
        conn.send(Body::Ack(ack)).await;
    }
    assert!(
        conn.pages.iter().any(|page| page.groups.len() >= 5),
        "some page filled while acknowledgements were due"
    );
    assert_eq!(conn.covered().covered(), rig.log.tails().covered());
    assert!(conn.hlcs().is_sorted());
}
