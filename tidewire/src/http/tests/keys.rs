//! Put, get and delete of one key.

use std::io::Write;
use std::time::Duration;

use tidewire_core::causal::VersionVector;
use tidewire_core::id::{ClusterId, Hlc};
use tidewire_core::tasks::Threads;
use tidewire_core::tree::{ApplyTarget, Token};

use super::harness::{Parts, Served, encoded};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_comes_back_as_it_was_put_with_its_version() {
    let server = Served::start().await;
    let put = server.put("order-17", b"paid\xff\x00");
    assert_eq!((put.status, &put.body[..]), (200, &b""[..]));
    let version = put.header("Tidewire-Version").expect("a version");
    let (hlc, origin) = version.split_once('@').expect("hlc@origin");
    assert!(hlc.parse::<u64>().is_ok() && origin == "eu-west", "{version}");
    assert!(put.header("Tidewire-Token").expect("a token").parse::<Token>().is_ok());

    let got = server.get("/v1/trees/orders/keys/order-17");
    assert_eq!((got.status, &got.body[..]), (200, &b"paid\xff\x00"[..]));
    assert_eq!(got.header("Tidewire-Version"), Some(version));
    assert_eq!(got.header("Content-Type"), Some("application/octet-stream"));
    let head = server.send("HEAD /v1/trees/orders/keys/order-17", &[], b"");
    assert_eq!((head.status, head.header("Content-Length"), head.body.len()), (200, Some("6"), 0));

    for _ in 0..2 {
        let deleted = server.send("DELETE /v1/trees/orders/keys/order-17", &[], b"");
        assert_eq!(deleted.status, 200);
        assert!(deleted.header("Tidewire-Version").expect("a version") > version);
        assert!(deleted.header("Tidewire-Token").is_some());
    }
    server.get("/v1/trees/orders/keys/order-17").refused(404, "not_found");
    server.put("empty", b"");
    assert_eq!(server.get("/v1/trees/orders/keys/empty").status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_can_be_a_key() {
    let server = Served::start().await;
    for byte in 0..=255_u8 {
        assert_eq!(server.put(&encoded(&[byte]), &[byte]).status, 200, "{byte}");
    }
    for byte in 0..=255_u8 {
        assert_eq!(server.parts.tree.get([byte]).expect("there").value, vec![byte]);
        assert_eq!(server.get(&format!("/v1/trees/orders/keys/%{byte:02x}")).body, [byte]);
    }
    let long = "x".repeat(4096);
    for (sent, key) in [
        ("a/b", "a/b"),
        ("a%2Fc", "a/c"),
        ("%2E%2E", ".."),
        ("..", ".."),
        ("%2E%2E/%2E%2E/healthz", "../../healthz"),
        ("a//b/", "a//b/"),
        ("%F0%9F%A6%80", "🦀"),
        ("🦀🦀", "🦀🦀"),
        ("a%252Fb", "a%2Fb"),
        ("a+b%20c;d=e,f:g@h", "a+b c;d=e,f:g@h"),
        (&long, &long),
    ] {
        assert_eq!(server.put(sent, sent.as_bytes()).status, 200, "{sent}");
        assert_eq!(server.parts.tree.get(key).expect(key).value, sent.as_bytes());
        assert_eq!(server.get(&format!("/v1/trees/orders/keys/{sent}")).body, sent.as_bytes(), "{sent}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_a_limit_is_413_and_names_the_limit() {
    let server = Served::start().await;
    assert!(server.put(&"k".repeat(4097), b"").refused(413, "too_large").contains("4096"));
    assert!(server.put(&encoded(&[7; 4096]), b"v").status == 200);
    let most = server.parts.config.max_record_bytes;
    assert!(
        server.put("k", &vec![1; most + 1]).refused(413, "too_large").contains("max_record_bytes = 65536")
    );
    // Fits as a body, not as a record with its key and header.
    assert!(server.put("k", &vec![1; most]).refused(413, "too_large").contains("max_record_bytes = 65536"));
    assert_eq!(server.put("k", &vec![1; most - 100]).status, 200);
    // Without a length in front the body is cut off while it is read.
    let piece = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let chunked = |pieces: usize| {
        let body = piece.repeat(pieces) + "0\r\n\r\n";
        let headers = [("Transfer-Encoding", "chunked")];
        server.send("PUT /v1/trees/orders/keys/chunked", &headers, body.as_bytes())
    };
    assert_eq!(chunked(1).status, 200);
    chunked(3).refused(413, "too_large");
    assert_eq!(server.parts.tree.get("chunked").expect("the first").value.len(), 0x8000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_still_writing_gets_its_refusal_to_read() {
    let server = Served::start().await;
    let body = vec![1; 4 * 1024 * 1024];
    for _ in 0..20 {
        server.put("k", &body).refused(413, "too_large");
        server.send("PUT /v1/trees/nope/keys/k", &[], &body).refused(404, "not_found");
    }
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let url = format!("http://{}/v1/trees/orders/keys/k", server.address);
    assert_eq!(agent.put(&url).send(&body[..]).expect("an answer").status(), 413);
    assert_eq!(agent.put(&url).send(&body[..9]).expect("an answer").status(), 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_the_budget_of_all_are_429_and_wait_for_nobody() {
    let server = Served::start().await;
    // Each claims a whole batch and then keeps silent.
    let most = server.parts.config.max_batch_bytes;
    let slow: Vec<_> = (0..64 * 1024 * 1024 / most)
        .map(|_| {
            let mut stream = server.connect();
            let head = format!(
                "POST /v1/trees/orders/batch HTTP/1.1\r\nHost: x\r\nContent-Length: {most}\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let answer = server.put("k", b"v");
    answer.refused(429, "busy");
    assert_eq!(answer.header("Retry-After"), Some("1"));
    assert_eq!(server.get("/healthz").status, 200);
    drop(slow);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.put("k", b"v").status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_asked_is_400_and_changes_nothing() {
    let server = Served::start().await;
    server.put("k", b"v");
    let keys = "/v1/trees/orders/keys";
    for (request, names) in [
        (format!("PUT {keys}/%zz"), "%25"),
        (format!("GET {keys}/%4"), "%25"),
        (format!("PUT {keys}/"), "one byte"),
        (format!("DELETE {keys}/"), "one byte"),
        (format!("PUT {keys}/a?b"), "%3F"),
        (format!("DELETE {keys}"), "from and to"),
        (format!("DELETE {keys}?from=a"), "from and to"),
        (format!("DELETE {keys}?from=&to=z"), "one byte"),
        (format!("DELETE {keys}?from=z&to=a"), "behind its beginning"),
        (format!("DELETE {keys}?from=k&to=k"), "behind its beginning"),
        (format!("DELETE {keys}?prefix=a"), "prefix"),
    ] {
        let message = server.send(&request, &[], b"x").refused(400, "invalid");
        assert!(message.contains(names), "{request}: {message}");
    }
    let put = format!("PUT {keys}/k");
    for bad in ["0", "-1", "1.5", "5s", "", "99999999999999999999", "18446744073709551615"] {
        let answer = server.send(&put, &[("Tidewire-TTL", bad)], b"x");
        let message = answer.refused(400, "invalid");
        assert!(message.contains("Tidewire-TTL") || message.contains("time to live"), "{bad}: {message}");
    }
    assert_eq!(server.get(&format!("{keys}/k")).body, b"v");
    assert_eq!(server.parts.tree.size().entries, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_deleted_up_to_its_end_and_nothing_else_is() {
    let server = Served::start().await;
    for key in ["a", "b", "b%FF", "c", "d"] {
        server.put(key, b"v");
    }
    let deleted = server.send("DELETE /v1/trees/orders/keys?from=b&to=d", &[], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert!(deleted.header("Tidewire-Version").is_some() && deleted.header("Tidewire-Token").is_some());
    let left: Vec<_> = server.parts.tree.scan(b"", None, 9).into_iter().map(|row| row.key).collect();
    assert_eq!(left, ["a", "d"]);
    server.put("%FF", b"v");
    let deleted = server.send("DELETE /v1/trees/orders/keys?from_base64=/w==&to_base64=/wA=", &[], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(server.parts.tree.size().entries, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_with_a_ttl_is_there_until_it_is_over() {
    let server = Served::start().await;
    let put = "PUT /v1/trees/orders/keys/k";
    assert_eq!(server.send(put, &[("Tidewire-TTL", "3600")], b"v").status, 200);
    let deadline = server.parts.tree.get("k").and_then(|found| found.deadline_ms).expect("a deadline");
    let version = server.parts.tree.get("k").expect("there").version;
    assert!(deadline.abs_diff(version.hlc.millis() + 3_600_000) < 60_000, "{deadline}");
    let batch =
        r#"{"ops":[{"op":"set","key":"b","value":"1","ttl_seconds":1},{"op":"set","key":"c","value":"2"}]}"#;
    assert_eq!(server.post_batch(batch).status, 200);
    assert_eq!(server.get("/v1/trees/orders/keys/b").status, 200);
    tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
    server.get("/v1/trees/orders/keys/b").refused(404, "not_found");
    assert_eq!(server.get("/v1/trees/orders/keys/c").status, 200);
    assert_eq!(server.parts.tree.size().entries, 2);
    for bad in [
        r#"{"ops":[{"op":"set","key":"b","value":"1","ttl_seconds":0}]}"#,
        r#"{"ops":[{"op":"delete","key":"b","ttl_seconds":1}]}"#,
        r#"{"ops":[{"op":"delete_range","key":"b"}]}"#,
    ] {
        server.post_batch(bad).refused(400, "invalid");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_tree_is_404_and_a_put_does_not_create_it() {
    let server = Served::start().await;
    for request in ["PUT", "GET", "DELETE"] {
        let message =
            server.send(&format!("{request} /v1/trees/nope/keys/k"), &[], b"v").refused(404, "not_found");
        assert!(message.contains("\"nope\"") && message.contains("orders"), "{message}");
    }
    for path in ["keys", "changes", "digest"] {
        server.get(&format!("/v1/trees/%FF/{path}")).refused(404, "not_found");
        server.get(&format!("/v1/trees/nope/{path}")).refused(404, "not_found");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_its_token_and_says_409_when_it_does_not_come() {
    let server = Served::start().await;
    let put = server.put("k", b"v");
    let own = put.header("Tidewire-Token").expect("a token");
    let get = |token: &str, wait: &str| {
        let headers = [("Tidewire-Token", token), ("Tidewire-Wait", wait)];
        server.send("GET /v1/trees/orders/keys/k", &headers, b"")
    };
    assert_eq!(get(own, "0").status, 200);

    let other = ClusterId::new("us-east").expect("a name");
    let frontier: VersionVector = [(other.tag(), Hlc::new(77))].into_iter().collect();
    let foreign = Token::new(frontier).to_string();
    assert!(get(&foreign, "50").refused(409, "conflict").contains("77"));
    let scan = [("Tidewire-Token", &foreign[..]), ("Tidewire-Wait", "10")];
    server.send("GET /v1/trees/orders/keys", &scan, b"").refused(409, "conflict");

    let (tree, tag) = (server.parts.tree.clone(), other.tag());
    server.parts.tasks.spawn("arrives", async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tree.advance(tag, Hlc::new(77));
    });
    assert_eq!(get(&foreign, "15000").status, 200);

    for (token, wait) in [("t1.x", "5"), (own, "60001"), (own, "-1"), (own, "soon"), (own, "")] {
        get(token, wait).refused(400, "invalid");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_cannot_become_durable_is_503_and_did_not_happen() {
    let server = Served::start().await;
    server.put("k", b"before");
    server.parts.disk.set_quota(server.parts.disk.used());
    let mut failed = 0;
    for key in ["a", "b", "c", "d"] {
        let answer = server.put(key, &[1; 60_000]);
        if answer.status != 200 {
            answer.refused(503, "unavailable");
            server.get(&format!("/v1/trees/orders/keys/{key}")).refused(404, "not_found");
            failed += 1;
        }
    }
    assert!(failed > 0, "the quota was reached");
    assert_eq!(server.get("/v1/trees/orders/keys/k").body, b"before");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_tree_answers_writes_with_503_and_reads_as_before() {
    let server = Parts::new(Threads::Spawn).await.serve().await;
    server.put("k", b"v");
    server.parts.tree.drain(Duration::from_secs(5)).await;
    assert!(server.put("k", b"w").refused(503, "unavailable").contains("shutting down"));
    server.send("DELETE /v1/trees/orders/keys/k", &[], b"").refused(503, "unavailable");
    server.post_batch(r#"{"ops":[{"op":"delete","key":"k"}]}"#).refused(503, "unavailable");
    assert_eq!(server.get("/v1/trees/orders/keys/k").body, b"v");
    server.stop().await;
}
