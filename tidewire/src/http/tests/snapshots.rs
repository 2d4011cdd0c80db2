//! Snapshots on demand.

use super::harness::Served;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_writes_a_snapshot_and_answers_when_it_is_there() {
    let server = Served::start().await;
    for key in ["a", "b", "c"] {
        assert_eq!(server.put(key, b"v").status, 200);
    }
    assert_eq!(server.parts.tree.last_snapshot(), None);
    let answer = server.send("POST /v1/admin/trees/orders/snapshot", &[], b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    let (json, last) = (answer.json(), server.parts.tree.last_snapshot().expect("written"));
    assert_eq!((&json["tree"], &json["covered"]), (&"orders".into(), &last.covered.to_string().into()));
    assert_eq!((&json["entries"], &json["bytes"]), (&3.into(), &last.bytes.into()));
    let path = json["path"].as_str().expect("a path").to_owned();
    assert!(path.ends_with("/snapshots/00000000000000000000.snap"), "{path}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_writes_no_snapshot_and_a_tree_that_is_not_there_is_named() {
    let server = Served::start().await;
    assert_eq!(server.get("/v1/admin/trees/orders/snapshot").status, 405);
    assert_eq!(server.parts.tree.last_snapshot(), None);
    let said = server.send("POST /v1/admin/trees/nope/snapshot", &[], b"").refused(404, "not_found");
    assert!(said.contains("orders"), "{said}");
    server.send("POST /v1/admin/trees/orders/snapshot?x=1", &[], b"").refused(400, "invalid");
    server.stop().await;
}
