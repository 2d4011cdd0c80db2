//! Changes as lines.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use axum::response::IntoResponse;
use futures::StreamExt;
use serde_json::{Value, json};
use tidewire_core::error::ErrorKind;
use tidewire_core::tasks::Threads;
use tokio::time::Instant;

use super::harness::{Parts, Served};
use crate::http::failure::Failure;

struct Watch(Box<dyn BufRead>);

impl Watch {
    fn open(server: &Served, query: &str) -> Self {
        let config = ureq::Agent::config_builder().timeout_per_read(Some(Duration::from_secs(20))).build();
        let url = format!("http://{}/v1/trees/orders/changes?{query}", server.address);
        let response = config.new_agent().get(&url).call().expect("a stream");
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Self(Box::new(BufReader::new(response.into_body().into_reader())))
    }

    /// The next line; None at the end.
    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        (!line.is_empty())
            .then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
    }

    fn next(&mut self) -> Value {
        self.line().expect("the stream goes on")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_says_what_happened_where_and_how_to_go_on() {
    let server = Served::start().await;
    let put = server.put("k", b"v");
    server.put("%FF", b"\xfe");
    server.send("DELETE /v1/trees/orders/keys/k2", &[], b"");
    let mut watch = Watch::open(&server, "from=beginning");
    let first = watch.next();
    let version = put.header("Tidewire-Version").expect("a version");
    let hlc: u64 = version.split('@').next().and_then(|hlc| hlc.parse().ok()).expect("a number");
    let dot = first["dot"].as_str().expect("a dot");
    assert!(dot.starts_with("eu-west/") && dot.ends_with("/0") && dot.split('/').count() == 3, "{dot}");
    assert_eq!(
        first,
        json!({"tree": "orders", "key": "k", "op": "set", "value": "v", "version": version, "hlc_ms": hlc >> 16,
            "origin": "eu-west", "dot": dot, "cursor": first["cursor"]})
    );
    let second = watch.next();
    assert_eq!((&second["key_base64"], &second["value_base64"]), (&json!("/w=="), &json!("/g==")));
    assert!(second.get("key").is_none() && second.get("value").is_none());
    let third = watch.next();
    assert_eq!((&third["op"], &third["key"]), (&json!("delete"), &json!("k2")));
    assert!(third.get("value").is_none() && third.get("value_base64").is_none());
    server.send("PUT /v1/trees/orders/keys/t", &[("Tidewire-TTL", "60")], b"v");
    let deadline = server.parts.tree.get("t").and_then(|found| found.deadline_ms).expect("a deadline");
    assert_eq!(watch.next()["deadline_ms"], json!(deadline.to_string()));
    server.send("DELETE /v1/trees/orders/keys?from=k&to=%FF", &[], b"");
    let range = watch.next();
    assert_eq!(
        (&range["op"], &range["key"], &range["end_key_base64"]),
        (&json!("delete_range"), &json!("k"), &json!("/w=="))
    );
    assert!(range.get("value").is_none() && range.get("end_key").is_none(), "{range}");
    drop(watch);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_resumes_at_any_cursor_without_a_repeat_or_a_gap() {
    let server = Served::start().await;
    let ops: Vec<String> =
        (0..40).map(|at| format!(r#"{{"op":"set","key":"k{at:02}","value":"{at}"}}"#)).collect();
    for part in ops.chunks(10) {
        assert_eq!(server.post_batch(&format!("{{\"ops\":[{}]}}", part.join(","))).status, 200);
    }
    let mut watch = Watch::open(&server, "from=beginning");
    let all: Vec<Value> = (0..40).map(|_| watch.next()).collect();
    for at in [0, 3, 9, 10, 25, 38] {
        let mut resumed =
            Watch::open(&server, &format!("cursor={}", all[at]["cursor"].as_str().expect("text")));
        for expected in &all[at + 1..] {
            assert_eq!(&resumed.next(), expected, "resumed after {at}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_from_now_brings_what_comes_and_marks_how_far_it_is_complete() {
    let server = Served::start().await;
    server.put("before", b"1");
    let mut watch = Watch::open(&server, "resolved=true");
    let mut silent = Watch::open(&server, "from=now");
    let put = server.put("after", b"2");
    let change = watch.next();
    assert_eq!(change["key"], "after");
    assert_eq!(silent.next(), change);
    let mark = watch.next();
    assert_eq!(mark["cursor"], change["cursor"]);
    let resolved: u64 =
        mark["resolved"]["eu-west"].as_str().and_then(|hlc| hlc.parse().ok()).expect("a reading");
    assert!(resolved > 0, "{mark}");
    assert!(put.header("Tidewire-Version").is_some());
    server.put("last", b"3");
    assert_eq!(silent.next()["key"], "last", "marks come only where they are asked for");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_falls_behind_by_megabytes_misses_nothing() {
    let server = Served::start().await;
    let mut watch = Watch::open(&server, "from=now");
    for at in 0..400_u32 {
        server.parts.tree.put(format!("{at}"), vec![b'x'; 50_000]).await.expect("put");
    }
    for at in 0..400_u32 {
        assert_eq!(watch.next()["key"], at.to_string());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stream_cannot_be_asked_is_an_answer_and_no_stream() {
    let server = Served::start().await;
    server.put("k", b"v");
    let changes = "/v1/trees/orders/changes";
    for (query, names) in [
        ("format=debezium", "debezium"),
        ("resolved=1", "true or false"),
        ("from=c1-1-1", "beginning"),
        ("from=now&cursor=c1-1-1", "exclude"),
        ("cursor=x", "cursor"),
        ("form=now", "form"),
    ] {
        let message = server.get(&format!("{changes}?{query}")).refused(400, "invalid");
        assert!(message.contains(names), "{query}: {message}");
    }
    server.get(&format!("{changes}?cursor=c1-1-0")).refused(409, "conflict");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_in_order_when_the_server_stops() {
    let server = Served::start().await;
    let mut watch = Watch::open(&server, "from=beginning");
    server.put("k", b"v");
    assert_eq!(watch.next()["key"], "k");
    let began = Instant::now();
    server.stop().await;
    assert!(watch.line().is_none(), "the end is orderly");
    assert!(began.elapsed() < Duration::from_secs(4), "nothing waited for the stream");
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_sends_an_empty_line_every_15_seconds() {
    let parts = Parts::new(Threads::Inline).await;
    let response = parts.api().changes(&parts.tree, Some("from=now")).expect("a stream");
    let mut lines = response.into_body().into_data_stream();
    let began = Instant::now();
    for round in 1..=3 {
        assert_eq!(lines.next().await.expect("goes on").expect("no error"), "\n");
        assert_eq!(began.elapsed().as_secs(), round * 15);
    }
    parts.tasks.join().await;
    assert!(lines.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn streams_over_their_number_are_429_until_one_ends() {
    let parts = Parts::new(Threads::Inline).await;
    let api = parts.api();
    let open = || api.changes(&parts.tree, None);
    let mut streams: Vec<_> = (0..512).map(|_| open().expect("there is a place")).collect();
    let error = open().expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Busy);
    let response = Failure::from(error).into_response();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"1".parse().expect("text"))
    );
    streams.pop();
    assert!(open().is_ok());
    parts.tasks.join().await;
}
