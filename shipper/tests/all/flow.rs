//! The flow on a link: pauses, limits, packing, canaries.

use std::time::Duration;

use tidewire_core::transport::ZSTD;
use tidewire_core::transport::wire::{self, Welcome, frame::Body};
use tidewire_shipper::{Compression, RateLimit, Settings, ShipperState};
use tokio::time::{Instant, sleep};

use crate::peer::{Conn, Peer};
use crate::rig::Rig;

const PLENTY: u64 = u64::MAX;

fn gauge(rig: &Rig, name: &str) -> i64 {
    let text = rig.metrics.render();
    let line =
        text.lines().find(|line| line.starts_with(&format!("tidewire_{name}{{"))).expect("it is there");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn f42_a_pause_of_the_peer_has_a_name_here_at_once_and_ends_with_the_next_word() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship();
    assert_eq!(gauge(&rig, "link_paused"), 0, "from the start");
    let mut conn = peer.accept(PLENTY).await;
    rig.put(5);
    conn.until_records(5).await;
    let pause = wire::Pause { kind: "disk_full".into(), detail: "no room on /data".into() };
    conn.send(Body::Ack(wire::Ack { pause: Some(pause), ..peer.ack(0) })).await;
    sleep(Duration::from_millis(5)).await;
    let status = shipper.status();
    assert_eq!(status.state, ShipperState::Waiting);
    assert_eq!(status.reason.unwrap(), "b asks for a pause (disk_full): no room on /data");
    assert_eq!(gauge(&rig, "link_paused"), 1);
    rig.put(5);
    // The peer repeats its word as long as the pause lasts, however long that is.
    for _ in 0..30 {
        assert!(conn.listen_for(Duration::from_secs(10)).await, "the link stays");
        let pause = wire::Pause { kind: "disk_full".into(), detail: "no room on /data".into() };
        conn.send(Body::Ack(wire::Ack { pause: Some(pause), ..peer.ack(0) })).await;
    }
    assert_eq!(conn.records(), 5, "nothing leaves meanwhile");
    peer.hold(&conn, conn.pages.len());
    conn.send(Body::Ack(peer.ack(PLENTY))).await;
    conn.until_records(10).await;
    peer.hold(&conn, conn.pages.len());
    peer.held = conn.covered();
    conn.send(Body::Ack(peer.ack(PLENTY))).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!((shipper.status().state, gauge(&rig, "link_paused")), (ShipperState::CaughtUp, 0));
}

#[tokio::test(start_paused = true)]
async fn f42_a_link_that_was_ended_on_request_flows_no_more() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let shipper = rig.ship_with(Settings { rate: Some(RateLimit::new(100_000)), ..Settings::default() });
    let mut conn = peer.accept(PLENTY).await;
    (0..1_000).for_each(|_| rig.log.put("k", 1_000));
    take_all(&mut peer, &mut conn, 300).await;
    let pause = wire::Pause { kind: "disk_full".into(), detail: "no room on /data".into() };
    conn.send(Body::Ack(wire::Ack { pause: Some(pause), ..peer.ack(PLENTY) })).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!((gauge(&rig, "link_paused"), gauge(&rig, "rate_limited")), (1, 1));
    shipper.stop().await;
    assert_eq!((gauge(&rig, "link_paused"), gauge(&rig, "rate_limited")), (0, 0));
}

/// Acknowledges all that comes until so many records have.
async fn take_all(peer: &mut Peer, conn: &mut Conn, records: u64) {
    while conn.records() < records {
        assert!(conn.listen_for(Duration::from_millis(10)).await, "the link ended");
        peer.held = conn.covered();
        conn.send(Body::Ack(peer.ack(PLENTY))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limited_link_keeps_to_its_rate_says_so_and_promises_again_once_all_is_sent() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let rate = Some(RateLimit::new(100_000));
    let shipper = rig.ship_with(Settings { rate, compression: Compression::None, ..Settings::default() });
    let mut conn = peer.accept(PLENTY).await;
    conn.listen_for(Duration::from_secs(2)).await;
    (0..1_000).for_each(|_| rig.log.put("k", 1_000));
    let start = Instant::now();
    take_all(&mut peer, &mut conn, 500).await;
    let status = shipper.status();
    assert_eq!(status.state, ShipperState::Streaming);
    assert_eq!(status.reason.unwrap(), "limited to 100000 bytes a second by rate_limit");
    assert_eq!(gauge(&rig, "rate_limited"), 1);
    take_all(&mut peer, &mut conn, 1_000).await;
    let (took, bytes) =
        (start.elapsed().as_secs_f64(), conn.pages.iter().map(|page| page.bytes()).sum::<u64>());
    let rate = bytes as f64 / took;
    assert!((85_000.0..=103_000.0).contains(&rate), "{bytes} bytes in {took} s");
    let before = conn.heartbeats.len();
    assert!(conn.listen_for(Duration::from_secs(3)).await);
    assert!(conn.heartbeats.len() > before);
    assert_eq!((shipper.status().state, gauge(&rig, "rate_limited")), (ShipperState::CaughtUp, 0));
}

/// A session with a peer that can unpack, or cannot; how many bytes of blocks came, and how many of them were packed.
async fn packed(compression: Compression, unpacks: bool) -> (u64, u64) {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let _shipper = rig.ship_with(Settings { compression, ..Settings::default() });
    let mut conn = peer.meet().await;
    let capabilities = if unpacks { vec![ZSTD.to_owned()] } else { Vec::new() };
    let welcome = Welcome { capabilities, ..peer.welcome(PLENTY) };
    conn.send_welcome(welcome).await;
    (0..200).for_each(|_| rig.log.put("k", 2_000));
    take_all(&mut peer, &mut conn, 200).await;
    let bytes = conn.pages.iter().map(|page| page.bytes()).sum();
    let text = rig.metrics.render();
    let line = text.lines().find(|line| line.starts_with("tidewire_wire_bytes_total{")).unwrap();
    let sent: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    if conn.packed > 0 {
        assert!(sent < bytes / 2, "{sent} of {bytes}");
    } else {
        assert_eq!(sent, bytes);
    }
    (bytes, conn.packed)
}

#[tokio::test(start_paused = true)]
async fn pages_are_packed_on_request_and_only_for_a_peer_that_can_unpack() {
    let (bytes, came) = packed(Compression::Zstd, true).await;
    assert!(came > 0 && came < bytes / 4, "{came} of {bytes}");
    assert_eq!(packed(Compression::Zstd, false).await.1, 0, "an older peer");
    assert_eq!(packed(Compression::None, true).await.1, 0);
    assert_eq!(packed(Compression::Auto, true).await.1, 0, "nothing says that the link is slow");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_slow_packs_by_itself() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let settings = Settings { window_bytes: 64 * 1024, page_bytes: 16 * 1024, ..Settings::default() };
    let _shipper = rig.ship_with(settings);
    let mut conn = peer.meet().await;
    let welcome = Welcome { capabilities: vec![ZSTD.to_owned()], ..peer.welcome(1024 * 1024) };
    conn.send_welcome(welcome).await;
    (0..4_000).for_each(|_| rig.log.put("k", 1_000));
    let mut taken = 0;
    while conn.records() < 4_000 {
        // What is on its way takes 50 ms, and is taken at once then: one page after the other.
        assert!(conn.listen_for(Duration::from_millis(50)).await);
        while taken < conn.pages.len() {
            taken += 1;
            peer.held = Conn::covered_by(&conn.pages[..taken]);
            conn.send(Body::Ack(peer.ack(1024 * 1024))).await;
        }
    }
    let bytes = conn.pages.iter().map(|page| page.bytes()).sum::<u64>();
    assert!(conn.packed > 0 && conn.packed < bytes / 4, "{} of {bytes}", conn.packed);
}

#[tokio::test(start_paused = true)]
async fn canaries_are_marked_in_their_time_and_only_on_request() {
    for (canary, marked) in [(None, 0..1), (Some(Duration::from_secs(10)), 6..8)] {
        let rig = Rig::new();
        let mut peer = Peer::listen(&rig.network).await;
        let _shipper = rig.ship_with(Settings { canary, ..Settings::default() });
        let mut conn = peer.accept(PLENTY).await;
        conn.listen_for(Duration::from_secs(61)).await;
        let canaries = conn.heartbeats.iter().filter(|heartbeat| heartbeat.canary).count();
        assert!(marked.contains(&canaries), "{canaries} of {}", conn.heartbeats.len());
    }
}

#[tokio::test(start_paused = true)]
async fn f51_pages_tell_what_there_is_beyond_them() {
    let rig = Rig::new();
    let mut peer = Peer::listen(&rig.network).await;
    let settings = Settings { window_bytes: 64 * 1024, page_bytes: 16 * 1024, ..Settings::default() };
    let _shipper = rig.ship_with(settings);
    (0..400).for_each(|_| rig.log.put("k", 1_000));
    let mut conn = peer.accept(PLENTY).await;
    assert!(conn.listen_for(Duration::from_secs(1)).await);
    assert!(conn.records() < 100, "the window is full");
    let (tails, bytes) = conn.beyond.last().expect("it was told").clone();
    assert_eq!(tails.iter().map(|mark| mark.offset).sum::<u64>(), 400);
    assert!(bytes > 200_000, "{bytes}");
}
