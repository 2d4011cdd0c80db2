//! A server that is told to stop, or killed, while it is written to.

use std::io::Write;
use std::net::TcpStream;

use super::load::Stream;
use super::server::Server;
use super::{eventually, now, pause, random, sized};

/// Writes, ends the server in some way once enough is acknowledged, starts it again, and checks what was acknowledged.
fn write_and_end(server: &mut Server, stream: &Stream, more: usize, end: impl FnOnce(&mut Server)) {
    let enough = stream.count() + more;
    std::thread::scope(|scope| {
        let writers = stream.start(scope, server);
        eventually("enough writes are acknowledged", 60, || (stream.count() >= enough).then_some(()));
        end(server);
        stream.stop();
        writers.into_iter().for_each(|writer| writer.join().expect("no writer panics"));
    });
    server.start();
    stream.assert_kept(server);
}

#[test]
fn a_server_told_to_stop_under_load_exits_0_and_keeps_what_it_acknowledged() {
    let mut server = Server::new("a");
    let stream = Stream::default();
    server.start();
    for _ in 0..3 {
        write_and_end(&mut server, &stream, 200, |server| {
            let begun = now();
            server.terminate();
            let status = server.ended(10);
            assert_eq!(status.code(), Some(0), "after {:?}", begun.elapsed());
            println!("stopped in {:?}", begun.elapsed());
        });
    }
    println!("{} writes acknowledged, all kept", stream.count());
}

#[test]
fn a_second_signal_exits_at_once_with_1() {
    let mut server = Server::new("a");
    server.start();
    // A request that never ends keeps the server waiting.
    let mut request = TcpStream::connect(("127.0.0.1", server.http_port())).expect("it listens");
    let head = "PUT /v1/trees/t/keys/k HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf";
    request.write_all(head.as_bytes()).expect("sent");
    pause(100);
    server.terminate();
    eventually("it says that it stops", 10, || server.log().contains("stopping").then_some(()));
    pause(100);
    assert!(server.runs(), "nothing held it up:\n{}", server.log());
    let begun = now();
    server.terminate();
    assert_eq!(server.ended(5).code(), Some(1), "after {:?}", begun.elapsed());
}

#[test]
fn a_server_killed_under_load_keeps_what_it_acknowledged() {
    let claim = "a_server_killed_under_load_keeps_what_it_acknowledged";
    let (random, rounds) = (random(claim), sized(8, 100));
    let mut server = Server::new("a");
    let stream = Stream::default();
    server.start();
    for _ in 0..rounds {
        write_and_end(&mut server, &stream, 1 + random.below(300) as usize, |server| {
            pause(random.below(20));
            server.kill();
        });
    }
    println!("{rounds} rounds, {} writes acknowledged, all kept", stream.count());
}
