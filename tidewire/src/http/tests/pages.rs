//! Scans and batches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::harness::{Served, encoded};

fn keys_of(page: &serde_json::Value) -> Vec<Vec<u8>> {
    let key = |entry: &serde_json::Value| match (entry["key"].as_str(), entry["key_base64"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).expect("base64"),
        other => panic!("{other:?}"),
    };
    page["entries"].as_array().expect("entries").iter().map(key).collect()
}

/// Follows `next` as a client does.
fn follow(server: &Served, query: &str) -> (Vec<Vec<u8>>, usize) {
    let (mut keys, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let page = server.get(&format!("/v1/trees/orders/keys?{query}{after}")).json();
        keys.extend(keys_of(&page));
        pages += 1;
        after = match (&page.get("next"), &page["next_base64"]) {
            (Some(serde_json::Value::String(next)), serde_json::Value::Null) => {
                format!("&after={}", encoded(next.as_bytes()))
            }
            (None, serde_json::Value::String(next)) => format!("&after_base64={}", encoded(next.as_bytes())),
            (Some(serde_json::Value::Null), serde_json::Value::Null) => return (keys, pages),
            other => panic!("{other:?}"),
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_bring_every_key_once_in_order_whatever_its_bytes() {
    let server = Served::start().await;
    let mut keys: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![b'k', byte]).collect();
    keys.push(b"other".to_vec());
    for key in &keys {
        server.parts.tree.put(key.clone(), "v").await.expect("put");
    }
    keys.sort();
    assert_eq!(follow(&server, "limit=10"), (keys.clone(), 26));
    assert_eq!(follow(&server, ""), (keys.clone(), 3));
    assert_eq!(follow(&server, "limit=257"), (keys.clone(), 1));
    assert_eq!(follow(&server, "prefix=k&limit=100").0.len(), 256);
    assert_eq!(follow(&server, "prefix=k%FF").0, [b"k\xff"]);
    assert_eq!(follow(&server, "prefix_base64=a/8=").0, [b"k\xff"]);
    assert_eq!(follow(&server, "prefix=none").0.len(), 0);
    let page = server.get("/v1/trees/orders/keys?limit=1").json();
    assert_eq!(page["entries"][0]["value_base64"], "dg==");
    let version = server.parts.tree.get(b"k\0").expect("there").version;
    assert_eq!(page["entries"][0]["version"], format!("{}@eu-west", version.hlc));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_large_values_ends_early_and_goes_on() {
    let server = Served::start().await;
    for at in 0..150_u8 {
        server.parts.tree.put(vec![at], vec![1; 60_000]).await.expect("put");
    }
    let (keys, pages) = follow(&server, "limit=10000");
    assert_eq!(keys, (0..150_u8).map(|at| vec![at]).collect::<Vec<_>>());
    assert_eq!(pages, 2, "a step of 100 rows is over the bytes of a page");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_with_a_parameter_that_cannot_be_is_400() {
    let server = Served::start().await;
    for bad in [
        "limit=0",
        "limit=10001",
        "limit=x",
        "limt=5",
        "prefix=%",
        "after_base64=*",
        "after=a&after_base64=YQ==",
    ] {
        server.get(&format!("/v1/trees/orders/keys?{bad}")).refused(400, "invalid");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_atomic_batch_has_one_version_and_counts_its_operations() {
    let server = Served::start().await;
    server.put("old", b"x");
    let answer = server.post_batch(
        r#"{"atomic":true,"ops":[{"op":"set","key":"a","value":"1"},
            {"op":"set","key_base64":"/w==","value_base64":"AP8="},{"op":"delete","key":"old"}]}"#,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json = answer.json();
    assert_eq!(json["count"], 3);
    for (key, value) in [(&b"a"[..], &b"1"[..]), (b"\xff", b"\x00\xff")] {
        let got = server.get(&format!("/v1/trees/orders/keys/{}", encoded(key)));
        assert_eq!(got.body, value);
        assert_eq!(got.header("Tidewire-Version"), json["version"].as_str());
    }
    server.get("/v1/trees/orders/keys/old").refused(404, "not_found");
    let headers = [("Tidewire-Token", json["token"].as_str().expect("a token")), ("Tidewire-Wait", "0")];
    assert_eq!(server.send("GET /v1/trees/orders/keys/a", &headers, b"").status, 200);
    server
        .post_batch(r#"{"ops":[{"op":"delete","key":"a"},{"op":"set","key":"a","value":""}]}"#)
        .refused(400, "invalid");
    assert_eq!(server.get("/v1/trees/orders/keys/a").body, b"1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_not_atomic_goes_in_order_and_says_how_far_it_came() {
    let server = Served::start().await;
    let answer = server.post_batch(
        r#"{"atomic":false,"ops":[{"op":"set","key":"a","value":"1"},{"op":"set","key":"a","value":"2"},
            {"op":"set","key":"b","value":"3"}]}"#,
    );
    assert_eq!(answer.json()["count"], 3);
    let a = server.get("/v1/trees/orders/keys/a");
    let b = server.get("/v1/trees/orders/keys/b");
    assert_eq!(a.body, b"2");
    assert_eq!(b.header("Tidewire-Version"), answer.json()["version"].as_str());
    assert!(a.header("Tidewire-Version") < b.header("Tidewire-Version"));

    let large = "x".repeat(server.parts.config.max_record_bytes);
    let message = server
        .post_batch(&format!(
            r#"{{"atomic":false,"ops":[{{"op":"set","key":"c","value":"1"}},{{"op":"set","key":"d","value":"{large}"}},
                {{"op":"set","key":"e","value":"1"}}]}}"#
        ))
        .refused(413, "too_large");
    assert!(message.contains("1 of 3"), "{message}");
    assert!(server.parts.tree.get("c").is_some() && server.parts.tree.get("e").is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_not_understood_or_too_large_is_refused() {
    let server = Served::start().await;
    let listed = r#"[true,[["set","k",null,"v",null,null]]]"#;
    for bad in
        ["", "{", "[]", listed, "{\"ops\":[]}", "{\"atomic\":false,\"ops\":[]}", "{\"ops\":[],\"x\":1}"]
    {
        server.post_batch(bad).refused(400, "invalid");
    }
    let many = vec![r#"{"op":"delete","key":"a"}"#; 10_001].join(",");
    assert!(server.post_batch(&format!("{{\"ops\":[{many}]}}")).refused(413, "too_large").contains("10000"));
    let large = " ".repeat(server.parts.config.max_batch_bytes + 1);
    server.post_batch(&large).refused(413, "too_large");
    server.stop().await;
}
