//! Who gets in, what there is, and how it ends.

use std::io::{Read, Write};
use std::time::Duration;

use tidewire_core::error::ErrorKind;
use tidewire_core::tasks::Threads;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::harness::{Parts, Served, read_answer};
use crate::http::{HttpConfig, HttpServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_token_lets_nobody_else_under_v1() {
    let mut parts = Parts::new(Threads::Spawn).await;
    parts.config.token = Some("s3cret".to_owned());
    assert!(!format!("{:?}", parts.config).contains("s3cret"));
    let empty = HttpConfig { token: Some(" ".to_owned()), ..parts.config.clone() };
    assert!(HttpServer::start(empty, parts.site.clone(), &parts.tasks).await.is_err());
    let server = parts.serve().await;
    let status = |authorization: Option<&str>| {
        let headers: Vec<(&str, &str)> =
            authorization.map(|value| ("Authorization", value)).into_iter().collect();
        server.send("GET /v1/status", &headers, b"")
    };
    assert_eq!(status(Some("Bearer s3cret")).status, 200);
    assert_eq!(status(Some("bearer s3cret")).status, 200);
    for wrong in [
        None,
        Some("Bearer s3creT"),
        Some("Bearer s3cre"),
        Some("Bearer s3cret1"),
        Some("Bearer"),
        Some("Bearer "),
        Some("Basic s3cret"),
        Some("s3cret"),
    ] {
        let answer = status(wrong);
        answer.refused(401, "unauthorized");
        assert_eq!(answer.header("WWW-Authenticate"), Some("Bearer"), "{wrong:?}");
    }
    for path in ["/v1/trees/orders/keys/k", "/v1/trees/nope/digest", "/v1/nope", "/v1"] {
        server.get(path).refused(401, "unauthorized");
    }
    server.put("k", b"v").refused(401, "unauthorized");
    assert!(server.parts.tree.get("k").is_none());
    for open in ["/", "/healthz", "/readyz", "/metrics"] {
        assert_eq!(server.get(open).status, 200, "{open}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_cluster_says_about_itself_is_there() {
    let server = Served::start().await;
    assert_eq!(server.get("/healthz").text(), "ok\n");
    let ready = server.get("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &true.into()));
    *server.parts.site.reasons.lock() = vec!["tree orders: the disk is full".to_owned()];
    let ready = server.get("/readyz");
    assert_eq!((ready.status, &ready.json()["reasons"][0]), (503, &"tree orders: the disk is full".into()));
    let status = server.get("/v1/status").json();
    assert_eq!(status["cluster"], "eu-west");
    assert_eq!(status["listen"]["http"], server.address.to_string());
    let metrics = server.get("/metrics");
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(metrics.header("Content-Type"), Some(openmetrics));
    assert!(metrics.text().ends_with("# EOF\n") && metrics.text().contains("tidewire_conflicts"));
    let page = server.get("/");
    assert!(page.text().contains("eu-west") && page.text().contains("/v1/trees/{tree}/changes"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_names_the_frontier_and_changes_with_the_state() {
    let server = Served::start().await;
    let digest = || server.get("/v1/trees/orders/digest").json();
    let empty = digest();
    assert_eq!(empty["entries"], 0);
    server.put("k", b"v");
    let one = digest();
    assert_eq!(one["entries"], 1);
    assert_eq!(one["digest"].as_str().expect("hex").len(), 32);
    assert_ne!(one["digest"], empty["digest"]);
    server.send("DELETE /v1/trees/orders/keys/k", &[], b"");
    assert_eq!(digest()["digest"], empty["digest"]);
    let frontier = digest()["frontier"].clone();
    assert!(frontier["eu-west"].as_str().is_some_and(|hlc| hlc.parse::<u64>().is_ok()), "{frontier}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_path_is_404_and_a_wrong_method_405_with_what_is_allowed() {
    let server = Served::start().await;
    for path in ["/nope", "/v1", "/v1/trees/orders", "/v1/trees/orders/nope", "/v1/admin/nope", "/../healthz"]
    {
        server.get(path).refused(404, "not_found");
    }
    for (request, allow) in [
        ("POST /v1/trees/orders/keys/k", "GET, HEAD, PUT, DELETE"),
        ("PUT /v1/trees/orders/keys", "GET, HEAD, DELETE"),
        ("GET /v1/trees/orders/batch", "POST"),
        ("DELETE /v1/trees/orders/changes", "GET, HEAD"),
        ("POST /metrics", "GET, HEAD"),
        ("OPTIONS /v1/status", "GET, HEAD"),
        ("PUT /v1/admin/peers", "GET, HEAD, POST"),
        ("GET /v1/admin/sinks/out/pause", "POST"),
    ] {
        let answer = server.send(request, &[], b"");
        assert!(answer.refused(405, "invalid").contains(allow), "{request}");
        assert_eq!(answer.header("Allow"), Some(allow), "{request}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_an_error_that_names_it_and_says_what_to_do() {
    let server = Served::start().await;
    let mut config = server.parts.config.clone();
    config.address = server.address;
    let error =
        HttpServer::start(config, server.parts.site.clone(), &server.parts.tasks).await.expect_err("in use");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let said = error.to_string();
    assert!(said.contains(&server.address.to_string()) && said.contains("listen.http"), "{said}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_requests_in_flight_end_and_closes_what_is_idle() {
    let server = Served::start().await;
    let mut idle = server.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(idle.read(&mut [0; 1024]).expect("an answer") > 0);
    let mut busy = server.connect();
    busy.write_all(b"PUT /v1/trees/orders/keys/k HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        .expect("sent");
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.parts.tasks.stop();
    assert_eq!(idle.read(&mut [0; 1024]).expect("an end"), 0);
    busy.write_all(b"cd").expect("still open");
    assert_eq!(read_answer(busy).status, 200);
    assert_eq!(server.parts.tree.get("k").expect("written").value, "abcd");
    let address = server.address;
    server.stop().await;
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_is_cut_off() {
    let server = Parts::new(Threads::Inline).await.serve().await;
    let put = "PUT /v1/trees/orders/keys/k HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab";
    for (sent, seconds) in [("GET /healthz HTTP/1.1\r\nHos", 30), (put, 60)] {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.expect("it listens");
        let began = Instant::now();
        stream.write_all(sent.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        // An end or a reset: what counts is that it is over.
        let _ended = stream.read_to_end(&mut answer).await;
        let took = began.elapsed().as_secs();
        assert!((seconds..seconds + 5).contains(&took), "{sent:?} took {took} s");
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    }
    server.stop().await;
}
