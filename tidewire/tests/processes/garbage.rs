//! What strangers send to the replication port.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use tidewire_core::random::Random;

use super::server::Server;
use super::{eventually, now, random, sized};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Connections before memory is measured for the first time.
const WARM: usize = 200;
/// What memory may grow by afterwards.
const GROWTH_KIB: u64 = 32 << 10;
/// Connections at the same time.
const AT_A_TIME: usize = 8;

/// What the server with this id sends to A in its first moments: preface, settings, headers, hello, and the pages of a few
/// writes. Read on the way, because a dialler says little to somebody who does not answer. B gets the same writes, or
/// else it would have to hold back what depends on them.
fn recorded(id: &'static str, to: &Server, b: &Server) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut server = Server::new(id);
    let detour = listener.local_addr().expect("bound").port();
    server.configure(&[("a", detour), ("b", b.replication_port())], "");
    server.start();
    let (mut dialler, _) = listener.accept().expect("it dials");
    let mut dialled = TcpStream::connect(("127.0.0.1", to.replication_port())).expect("it listens");
    let (mut answers, mut back) =
        (dialled.try_clone().expect("cloned"), dialler.try_clone().expect("cloned"));
    let mut bytes = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::copy(&mut answers, &mut back));
        scope.spawn(|| (0..20).all(|number| server.api().wrote(&format!("{id}-{number}"), "recorded")));
        dialler.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
        let (until, mut part) = (now() + Duration::from_secs(2), [0; 4096]);
        while now() < until
            && let Ok(count) = dialler.read(&mut part)
            && count > 0
            && dialled.write_all(&part[..count]).is_ok()
        {
            bytes.extend_from_slice(&part[..count]);
        }
        let _gone = (dialled.shutdown(Shutdown::Both), dialler.shutdown(Shutdown::Both));
    });
    let has = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    assert!(bytes.starts_with(PREFACE) && has(b"lww"), "a hello is in {} bytes", bytes.len());
    bytes
}

fn noise(random: &Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.below(256) as u8).collect()
}

/// HTTP/2 frames with sound heads: any type, any flags, any stream, any payload.
fn frames(random: &Random) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    for _ in 0..random.below(12) {
        let payload = noise(random, 300);
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.push(random.below(11) as u8);
        bytes.push(random.below(256) as u8);
        bytes.extend_from_slice(&(random.below(6) as u32).to_be_bytes());
        bytes.extend_from_slice(&payload);
    }
    bytes
}

/// One stranger's bytes.
fn garbage(random: &Random, recordings: &[Vec<u8>]) -> Vec<u8> {
    let mut valid = recordings[random.below(recordings.len() as u64) as usize].clone();
    let place = |valid: &[u8]| random.below(valid.len() as u64) as usize;
    match random.below(5) {
        0 => noise(random, 4_000),
        1 => frames(random),
        2 => {
            valid.truncate(place(&valid));
            valid
        }
        3 => {
            for _ in 0..=random.below(8) {
                let at = place(&valid);
                valid[at] ^= 1 << random.below(8);
            }
            valid
        }
        _ => {
            valid.extend(noise(random, 4_000));
            valid
        }
    }
}

/// Sends it, and where asked waits for an answer before it closes. The server may end the connection at any time.
fn send(port: u16, bytes: &[u8], wait: bool, abrupt: bool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port stays open");
    stream.set_read_timeout(Some(Duration::from_millis(40))).expect("set");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("set");
    if let Err(error) = stream.write_all(bytes) {
        assert!(error.kind() != ErrorKind::WouldBlock, "the server neither reads nor closes");
        return;
    }
    if !abrupt {
        let _gone = stream.shutdown(Shutdown::Write);
    }
    if wait {
        let _any = stream.read(&mut [0; 1024]);
    }
}

fn attack(port: u16, random: &Random, recordings: &[Vec<u8>], connections: usize) {
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            let random = random.fork();
            scope.spawn(move || {
                for _ in 0..connections / AT_A_TIME {
                    let bytes = garbage(&random, recordings);
                    send(port, &bytes, random.chance(0.5), random.chance(0.5));
                }
            });
        }
    });
}

#[test]
fn strangers_with_garbage_cost_little_memory_and_stop_no_peer() {
    let claim = "strangers_with_garbage_cost_little_memory_and_stop_no_peer";
    let (random, connections) = (random(claim), sized(2_000, 10_000));
    let [mut a, mut b] = [Server::new("a"), Server::new("b")];
    a.configure(&[("b", b.replication_port()), ("c", 9)], "");
    b.configure(&[("a", a.replication_port()), ("c", 9)], "");
    a.start();
    b.start();
    // One whom nobody knows, and a known peer whose process is gone.
    let recordings = [recorded("x", &a, &b), recorded("c", &a, &b)];
    for api in [a.api(), b.api()] {
        assert_eq!(api.value("c-19").as_deref(), Some("recorded"), "the recording has pages");
    }
    let (to, begun) = (a.replication_port(), now());
    attack(to, &random, &recordings, WARM);
    let warm = a.resident_kib();
    let (mut most, rounds) = (warm, 10);
    for round in 0..rounds {
        attack(to, &random, &recordings, (connections - WARM) / rounds);
        let key = format!("round-{round}");
        assert!(b.api().wrote(&key, "there"), "b takes writes");
        eventually("the real peer's write arrives", 30, || a.api().value(&key));
        most = most.max(a.resident_kib());
    }
    println!("{connections} connections in {:?}: {warm} KiB at first, at most {most} KiB", begun.elapsed());
    assert!(most <= warm + GROWTH_KIB, "memory grew from {warm} to {most} KiB");
    assert!(a.runs() && !a.log().contains("panicked"), "{}", a.log());
    assert!(a.api().wrote("back", "too"));
    eventually("a's write arrives at the real peer", 30, || b.api().value("back"));
}
