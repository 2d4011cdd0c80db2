//! What strangers on the replication port cost: a constant.

use std::time::Duration;

use bytes::Bytes;
use tidewire_connectors::transports::grpc::{HELLO_DEADLINE, MAX_STRANGERS};
use tidewire_core::random::Random;
use tidewire_core::transport::{Link, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::grpc::{PROCESS, hello, joined, page, target, transport};

/// Waits until the far side has closed a connection, reading what it says.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = timeout(HELLO_DEADLINE * 2, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "still open after {:?}", HELLO_DEADLINE * 2);
}

/// What a real client writes for a dial and a few frames.
async fn recorded(address: &str) -> Vec<u8> {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = proxy.local_addr().unwrap().to_string();
    let client = async {
        let mut link = transport().dial(&target(&through)).await.unwrap();
        link.sender.send(hello()).await.unwrap();
        link.sender.send(page(1, Bytes::from(vec![1; 20_000]))).await.unwrap();
        link.sender.close().await;
        let _ = timeout(Duration::from_millis(200), link.receiver.receive()).await;
    };
    let pass = async {
        let (inbound, _) = proxy.accept().await.unwrap();
        let (mut from, mut to) = inbound.into_split();
        let (mut back, mut out) = TcpStream::connect(address).await.unwrap().into_split();
        let mut seen = Vec::new();
        let forward = async {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = from.read(&mut buffer).await {
                seen.extend_from_slice(&buffer[..read]);
                if out.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! { biased;
            () = forward => {}
            _ = tokio::io::copy(&mut back, &mut to) => {}
        }
        seen
    };
    let ((), seen) = tokio::join!(client, pass);
    assert!(seen.len() > 20_000);
    seen
}

/// A recording without the frames that end its stream and its connection: the client would still be there.
fn without_the_end(real: &[u8]) -> Vec<u8> {
    const RESET: u8 = 3;
    const GO_AWAY: u8 = 7;
    let (preface, mut rest) = real.split_at(24);
    let mut kept = preface.to_vec();
    while let [a, b, c, kind, ..] = *rest {
        let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        let (frame, after) = rest.split_at(length.min(rest.len()));
        if kind != RESET && kind != GO_AWAY {
            kept.extend_from_slice(frame);
        }
        rest = after;
    }
    kept
}

/// One connection's worth of garbage.
fn garbage(random: &Random, real: &[u8]) -> Vec<u8> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let noise = |most: u64| (0..random.below(most)).map(|_| random.next_u64() as u8).collect::<Vec<_>>();
    let place = || random.below(real.len() as u64) as usize;
    match random.below(6) {
        0 => noise(4096),
        1 => PREFACE.to_vec(),
        2 => [PREFACE, &noise(4096)].concat(),
        3 => real[..place()].to_vec(),
        // A frame header that promises the largest frame of a random type.
        4 => [PREFACE, &[0, 255, 255, random.below(12) as u8, 0, 0, 0, 0, 1], &noise(70_000)].concat(),
        _ => {
            let mut flipped = real.to_vec();
            // Mostly near the front, where the framing is.
            for _ in 0..=random.below(8) {
                let place = if random.chance(0.7) { place() % 400 } else { place() };
                flipped[place] ^= 1 << random.below(8);
            }
            flipped
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "the kernel's figures are not data")]
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Sends garbage on so many connections, more at a time than may be strangers; half of them hang up by themselves, half
/// wait to be closed.
async fn bombard(address: &str, connections: u64, random: &Random, real: &'static [u8]) {
    let mut running = JoinSet::new();
    for number in 0..connections {
        while running.len() >= 2 * MAX_STRANGERS {
            running.join_next().await.unwrap().unwrap();
        }
        let (address, bytes) = (address.to_owned(), garbage(random, real));
        running.spawn(async move {
            let Ok(mut stream) = TcpStream::connect(&address).await else { return };
            let _ = stream.write_all(&bytes).await;
            if number % 2 == 0 {
                closed(&mut stream).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Sends pages over a link and has them come back, until told to stop; returns how many did.
async fn echo(link: &mut (Link, Link), stop: &std::sync::atomic::AtomicBool) -> u64 {
    let (mine, theirs) = link;
    let mut count = 0;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        count += 1;
        mine.sender.send(page(count, Bytes::from(vec![5; 10_000]))).await.unwrap();
        let frame =
            timeout(Duration::from_secs(10), theirs.receiver.receive()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.session, count);
        theirs.sender.send(frame).await.unwrap();
        assert_eq!(mine.receiver.receive().await.unwrap().unwrap().session, count);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    count
}

async fn survive_garbage(connections: u64) {
    let _alone = PROCESS.write().await;
    let mut listener = transport().listen().await.unwrap();
    let address = listener.address();
    let real: &'static [u8] = recorded(&address).await.leak();
    drop(listener.accept().await.unwrap());
    let mut link = joined(&address, &mut *listener).await;
    let random = Random::from_seed(11);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let attack = async {
        bombard(&address, 200, &random, real).await;
        let before = resident();
        bombard(&address, connections - 200, &random, real).await;
        let grown = resident().saturating_sub(before);
        println!("{connections} connections of garbage: resident memory {before} bytes, then {grown} more");
        assert!(grown <= 32 * 1024 * 1024, "grew by {grown} bytes");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    // Garbage that is still a Hello becomes a link; the session would refuse it.
    let accept = async { while listener.accept().await.is_ok() {} };
    let work = async { tokio::join!(attack, echo(&mut link, &stop)).1 };
    let count = tokio::select! { biased;
        count = work => count,
        () = accept => panic!("the listener stopped"),
    };
    assert!(count > 10, "the real link went on: {count} round trips");
    joined(&address, &mut *listener).await;
}

#[tokio::test]
async fn garbage_connections_cost_no_memory_and_do_not_disturb_a_real_link() {
    survive_garbage(2_000).await;
}

#[tokio::test]
#[ignore = "takes minutes: the full number of the claim"]
async fn ten_thousand_garbage_connections_cost_no_memory() {
    survive_garbage(10_000).await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_deadline_and_the_oldest_first_when_they_are_many() {
    let _shared = PROCESS.read().await;
    let mut listener = transport().listen().await.unwrap();
    let address = listener.address();
    let start = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..MAX_STRANGERS + 10 {
        idle.push(TcpStream::connect(&address).await.unwrap());
    }
    // A real peer comes through a full house, and stays.
    let (mut mine, mut theirs) = joined(&address, &mut *listener).await;
    let (early, late) = idle.split_at_mut(10);
    for stream in early {
        closed(stream).await;
    }
    assert!(start.elapsed() < HELLO_DEADLINE, "the oldest make room: {:?}", start.elapsed());
    for stream in late {
        closed(stream).await;
    }
    assert!(start.elapsed() >= HELLO_DEADLINE, "{:?}", start.elapsed());
    mine.sender.send(page(3, Bytes::new())).await.unwrap();
    assert_eq!(theirs.receiver.receive().await.unwrap().unwrap().session, 3);
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_a_hello_is_ended_with_the_reason() {
    let _shared = PROCESS.read().await;
    let listener = transport().listen().await.unwrap();
    let address = listener.address();
    for (frame, reason) in [
        (page(1, Bytes::new()), "must be a Hello"),
        (page(1, Bytes::from(vec![0; 100_000])), "at most 49152"),
    ] {
        let mut link = transport().dial(&target(&address)).await.unwrap();
        link.sender.send(frame).await.unwrap();
        let error = link.receiver.receive().await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let mut mute = transport().dial(&target(&address)).await.unwrap();
    let start = Instant::now();
    let end = timeout(HELLO_DEADLINE * 2, mute.receiver.receive()).await.unwrap();
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
    assert!(start.elapsed() < HELLO_DEADLINE + Duration::from_secs(1));
}

#[tokio::test]
async fn a_connection_whose_last_link_has_ended_is_a_stranger_again() {
    let _shared = PROCESS.read().await;
    let mut listener = transport().listen().await.unwrap();
    let address = listener.address();
    let real = without_the_end(&recorded(&address).await);
    drop(listener.accept().await.unwrap());
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&real).await.unwrap();
    drop(listener.accept().await.unwrap());
    closed(&mut stream).await;
}
