//! Links over gRPC on loopback.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire_connectors::transports::grpc::{CLOSE_GRACE, GrpcConfig, GrpcTransport, MAX_STREAMS};
use tidewire_core::error::LinkErrorKind;
use tidewire_core::id::ClusterId;
use tidewire_core::transport::conformance::{self, Sides};
use tidewire_core::transport::wire::{Frame, Hello, Page, PageGroup, frame::Body};
use tidewire_core::transport::{CuttableTransport, DialTarget, Link, Listener, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, timeout};

/// Held for writing by a test that measures the process, for reading by the others.
pub(crate) static PROCESS: RwLock<()> = RwLock::const_new(());

pub(crate) fn transport() -> GrpcTransport {
    GrpcTransport::new(GrpcConfig { listen: "127.0.0.1:0".into(), ..GrpcConfig::default() }).unwrap()
}

pub(crate) fn target(address: &str) -> DialTarget {
    DialTarget { peer: ClusterId::new("b").unwrap(), url: format!("http://{address}") }
}

pub(crate) fn hello() -> Frame {
    Frame::new(0, Body::Hello(Hello { cluster: "a".into(), boot_id: 1, ..Hello::default() }))
}

pub(crate) fn page(number: u64, block: Bytes) -> Frame {
    let groups = vec![PageGroup { blocks: vec![block], ..PageGroup::default() }];
    Frame::new(number, Body::Page(Page { groups, ..Page::default() }))
}

/// A link to a listener, with the `Hello` received.
pub(crate) async fn joined(address: &str, listener: &mut dyn Listener) -> (Link, Link) {
    let mut mine = transport().dial(&target(address)).await.unwrap();
    mine.sender.send(hello()).await.unwrap();
    let mut theirs = listener.accept().await.unwrap();
    assert_eq!(theirs.receiver.receive().await.unwrap(), Some(hello()));
    (mine, theirs)
}

fn url(address: &str) -> String {
    format!("http://{address}")
}

#[tokio::test]
async fn grpc_is_a_transport() {
    let _shared = PROCESS.read().await;
    conformance::run(|| Sides { dialler: Arc::new(transport()), answerer: Arc::new(transport()), url }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_under_switches_is_a_transport_on_several_threads() {
    let _shared = PROCESS.read().await;
    let cuttable = || Arc::new(CuttableTransport::new(Arc::new(transport())));
    conformance::run(|| Sides { dialler: cuttable(), answerer: cuttable(), url }).await;
}

#[tokio::test]
async fn https_is_refused_by_name_and_not_tried() {
    let target = DialTarget { url: "https://127.0.0.1:1".into(), ..target("") };
    let error = transport().dial(&target).await.unwrap_err();
    assert_eq!(error.kind(), LinkErrorKind::Config);
    assert!(error.to_string().contains("TLS does not exist yet"), "{error}");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let listener = transport().listen().await.unwrap();
    let config = GrpcConfig { listen: listener.address(), ..GrpcConfig::default() };
    let error = GrpcTransport::new(config).unwrap().listen().await.err().unwrap();
    assert_eq!(error.kind(), LinkErrorKind::Config);
    assert!(error.to_string().contains(&listener.address()), "{error}");
}

#[tokio::test]
async fn a_frame_above_the_limit_is_refused_before_it_is_sent_and_the_link_goes_on() {
    let _shared = PROCESS.read().await;
    let mut listener = transport().listen().await.unwrap();
    let (mut mine, mut theirs) = joined(&listener.address(), &mut *listener).await;
    let error = mine.sender.send(page(1, vec![0; 1200 * 1024].into())).await.unwrap_err();
    assert_eq!(error.kind(), LinkErrorKind::Protocol, "{error}");
    mine.sender.send(page(2, vec![0; 1024 * 1024].into())).await.unwrap();
    assert_eq!(theirs.receiver.receive().await.unwrap().unwrap().session, 2);
}

#[tokio::test]
async fn a_frame_above_the_receivers_limit_breaks_the_link_and_says_so() {
    let _shared = PROCESS.read().await;
    let mut listener = transport().listen().await.unwrap();
    let large = GrpcTransport::new(GrpcConfig { max_record_bytes: 4 * 1024 * 1024, ..GrpcConfig::default() })
        .unwrap();
    let mut mine = large.dial(&target(&listener.address())).await.unwrap();
    mine.sender.send(hello()).await.unwrap();
    let mut theirs = listener.accept().await.unwrap();
    theirs.receiver.receive().await.unwrap();
    mine.sender.send(page(1, vec![0; 2 * 1024 * 1024].into())).await.unwrap();
    let error = theirs.receiver.receive().await.unwrap_err();
    assert_eq!(error.kind(), LinkErrorKind::Protocol, "{error}");
    assert!(error.to_string().contains("limit"), "{error}");
}

#[tokio::test]
async fn something_else_on_the_port_is_told_apart_from_nobody() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answer = async {
        let (mut stream, _) = other.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let transport = transport();
    let target = target(&address);
    tokio::select! { biased;
        error = transport.dial(&target) => { error.unwrap_err(); }
        () = answer => panic!("the dial should have ended first"),
    }
}

#[tokio::test]
async fn a_closed_listener_leaves_no_task_even_if_links_do_not_end() {
    let _shared = PROCESS.read().await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let mut listener = transport().listen().await.unwrap();
    let address = listener.address();
    let (mut mine, _theirs) = joined(&address, &mut *listener).await;
    let _mute = transport().dial(&target(&address)).await.unwrap();
    let _idle = TcpStream::connect(&address).await.unwrap();
    let start = Instant::now();
    listener.close().await;
    assert!(start.elapsed() < CLOSE_GRACE + Duration::from_secs(1), "{:?}", start.elapsed());
    let end = timeout(Duration::from_secs(5), mine.receiver.receive()).await.unwrap();
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
    drop((mine, _theirs, _mute, _idle));
    let gone = async {
        while alive() > before {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.unwrap_or_else(|_| panic!("{} tasks left", alive() - before));
}

/// Passes bytes on until told to swallow them.
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    silent: tokio::sync::watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !*silent.borrow() && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Stands between one caller and an address.
async fn swallowing_proxy(
    address: String,
    listener: TcpListener,
    silent: tokio::sync::watch::Receiver<bool>,
) {
    let (from, to) = listener.accept().await.unwrap().0.into_split();
    let (back, out) = TcpStream::connect(address).await.unwrap().into_split();
    tokio::join!(pass(from, out, silent.clone()), pass(back, to, silent));
}

#[tokio::test]
#[ignore = "takes 20 s: the keep-alive interval and its timeout"]
async fn a_dead_peer_is_noticed_on_both_sides() {
    let mut listener = transport().listen().await.unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = proxy.local_addr().unwrap().to_string();
    #[expect(clippy::disallowed_methods, reason = "one follower, on a real runtime")]
    let (silence, silent) = tokio::sync::watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(swallowing_proxy(listener.address(), proxy, silent));
    let (mut mine, mut theirs) = joined(&through, &mut *listener).await;
    silence.send_replace(true);
    let start = Instant::now();
    let noticed = async { tokio::join!(mine.receiver.receive(), theirs.receiver.receive()) };
    let (left, right) = timeout(Duration::from_secs(30), noticed).await.unwrap();
    assert!(!matches!(left, Ok(Some(_))) && !matches!(right, Ok(Some(_))));
    println!("noticed after {:?}: {left:?} and {right:?}", start.elapsed());
}

/// A link of a transport that is kept, answered by the far side.
async fn answered(transport: &GrpcTransport, listener: &mut dyn Listener) -> (Link, Link) {
    let mut mine = transport.dial(&target(&listener.address())).await.unwrap();
    mine.sender.send(hello()).await.unwrap();
    let mut theirs = listener.accept().await.unwrap();
    theirs.receiver.receive().await.unwrap();
    theirs.sender.send(page(1, Bytes::from_static(b"welcome"))).await.unwrap();
    mine.receiver.receive().await.unwrap();
    (mine, theirs)
}

#[tokio::test]
async fn links_to_one_url_share_a_connection_until_it_is_full_and_the_last_closes_it() {
    let _shared = PROCESS.read().await;
    let (transport, mut listener) = (transport(), transport().listen().await.unwrap());
    let mut links = Vec::new();
    for count in 1..=MAX_STREAMS as usize + 1 {
        links.push(answered(&transport, &mut *listener).await);
        assert_eq!(transport.connections(), count.div_ceil(MAX_STREAMS as usize), "{count} links");
    }
    drop(links);
    timeout(Duration::from_secs(5), async {
        while transport.connections() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("no connection without a link");
    answered(&transport, &mut *listener).await;
}

#[tokio::test]
async fn trees_that_are_not_read_hold_back_no_other_on_their_connection() {
    let _shared = PROCESS.read().await;
    let (transport, mut listener) = (transport(), transport().listen().await.unwrap());
    let mut paused = Vec::new();
    for _ in 1..MAX_STREAMS {
        let (mut mine, theirs) = answered(&transport, &mut *listener).await;
        let block = Bytes::from(vec![7; 512 * 1024]);
        // Until nothing more gets in: the windows of the stream are full.
        while timeout(Duration::from_millis(100), mine.sender.send(page(1, block.clone()))).await.is_ok() {}
        paused.push((mine, theirs));
    }
    let (mut mine, mut theirs) = answered(&transport, &mut *listener).await;
    assert_eq!(transport.connections(), 1);
    for number in 1..100 {
        let block = Bytes::from(vec![9; 256 * 1024]);
        let sent = async { mine.sender.send(page(number, block)).await.unwrap() };
        let came = async { theirs.receiver.receive().await.unwrap().unwrap().session };
        let (_, came) =
            timeout(Duration::from_secs(5), async { tokio::join!(sent, came) }).await.expect("it flows");
        assert_eq!(came, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_tree_gets_its_turn_beside_one_that_drains_a_backlog() {
    let _shared = PROCESS.read().await;
    let (transport, mut listener) = (transport(), transport().listen().await.unwrap());
    let (mut backlog, mut sink) = answered(&transport, &mut *listener).await;
    let (mut live, mut heard) = answered(&transport, &mut *listener).await;
    assert_eq!(transport.connections(), 1);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let block = Bytes::from(vec![7; 256 * 1024]);
        while backlog.sender.send(page(1, block.clone())).await.is_ok() {}
    });
    tasks.spawn(async move { while let Ok(Some(_)) = sink.receiver.receive().await {} });
    let mut behind = Vec::new();
    for number in 0..50 {
        let start = Instant::now();
        live.sender.send(page(number, Bytes::from_static(b"live"))).await.unwrap();
        timeout(Duration::from_secs(5), heard.receiver.receive()).await.expect("its turn comes").unwrap();
        behind.push(start.elapsed());
        sleep(Duration::from_millis(2)).await;
    }
    behind.sort();
    // The far side reads hundreds of megabytes a second meanwhile: behind even one full window it would be more.
    assert!(behind[25] < Duration::from_millis(50), "{behind:?}");
    tasks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
async fn throughput_of_pages_on_loopback() {
    let mut listener = transport().listen().await.unwrap();
    for size in [256, 4 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024] {
        let (mut mine, mut theirs) = joined(&listener.address(), &mut *listener).await;
        let count = (1 << 31) / size.max(8 * 1024) as u64;
        let block = Bytes::from(vec![7; size]);
        let start = Instant::now();
        let mut sending = tokio::task::JoinSet::new();
        sending.spawn(async move {
            for number in 0..count {
                mine.sender.send(page(number, block.clone())).await.unwrap();
            }
            mine
        });
        for _ in 0..count {
            theirs.receiver.receive().await.unwrap().unwrap();
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{size:>8} bytes: {:>6.0} MB/s, {:>8.0} pages/s",
            count as f64 * size as f64 / 1e6 / seconds,
            count as f64 / seconds
        );
    }
}
