//! What one of two real servers can never apply: listed, shown, dropped and replayed on the command line and over HTTP.

use serde_json::Value;

use super::server::Server;
use super::{TREE, eventually};

fn list(server: &Server) -> Vec<Value> {
    let (code, said) = server.tidewire(&["dead-letters", "list", TREE, "--json"]);
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str(&said).expect("a list")
}

fn text(letter: &Value, name: &str) -> String {
    letter[name].as_str().expect("a letter shows it as text").to_owned()
}

#[test]
fn f35_a_dead_letter_is_listed_shown_dropped_and_replayed_and_survives_a_kill() {
    const SMALL: &str = "max_record_bytes = \"4KiB\"\n";
    let (mut a, mut b) = (Server::new("a"), Server::new("b"));
    a.configure(&[("b", b.replication_port())], "");
    b.configure(&[("a", a.replication_port())], SMALL);
    a.start();
    b.start();
    let large = "x".repeat(10_000);
    for key in ["large1", "large2"] {
        assert!(a.api().wrote(key, &large));
    }
    assert!(a.api().wrote("behind", "1"));
    eventually("what stands behind them arrives", 60, || b.api().value("behind"));
    let letters = list(&b);
    let keys: Vec<String> = letters.iter().map(|letter| text(letter, "key")).collect();
    assert!(
        keys.len() == 2 && keys.contains(&"large1".into()) && keys.contains(&"large2".into()),
        "{keys:?}"
    );
    b.kill();
    b.start();
    assert_eq!(list(&b), letters, "they outlive a kill");
    let (code, said) = b.tidewire(&["dead-letters", "list", TREE]);
    assert!(code == Some(0) && said.contains("DOT") && said.contains("max_record_bytes"), "{said}");

    let of =
        |key: &str| text(letters.iter().find(|letter| text(letter, "key") == key).expect("listed"), "dot");
    let (first, second) = (of("large1"), of("large2"));
    let (code, said) = b.tidewire(&["dead-letters", "show", TREE, &first]);
    assert!(code == Some(0) && said.contains("record_base64") && said.contains("large1"), "{said}");
    let (code, said) = b.tidewire(&["dead-letters", "show", TREE, "a/0/99"]);
    assert!(code == Some(1) && said.contains("nothing is parked"), "{said}");
    let (code, said) = b.tidewire(&["dead-letters", "replay", TREE, &first]);
    assert!(code == Some(1) && said.contains("still cannot be applied"), "{said}");

    let (code, said) = b.tidewire(&["dead-letters", "drop", TREE, &first]);
    assert!(code == Some(0) && said.contains("never applied"), "{said}");
    assert_eq!(list(&b).len(), 1);
    b.kill();
    b.configure(&[("a", a.replication_port())], "");
    b.start();
    let path = format!("/v1/admin/trees/{TREE}/dead-letters/{second}");
    let (status, shown) = b.api().admin("GET", &path);
    assert!(status == 200 && shown.contains("large2"), "{status} {shown}");
    for (method, path, named) in [
        ("GET", format!("{path}?sink=x"), "sink"),
        ("POST", format!("{path}/replay?tree=t"), "tree"),
        ("POST", "/v1/admin/peers/a/pause?until_restart=true".to_owned(), "until_restart"),
    ] {
        let (status, said) = b.api().admin(method, &path);
        assert!(status == 400 && said.contains(named), "{path}: {status} {said}");
    }
    let (status, said) = b.api().admin("POST", &format!("{path}/replay"));
    assert_eq!(status, 200, "{said}");
    assert_eq!(b.api().value("large2"), Some(large));
    assert_eq!(b.api().value("large1"), None, "what was dropped is given up");
    assert!(list(&b).is_empty());
    b.kill();
    b.start();
    assert!(b.api().value("large2").is_some() && b.api().value("large1").is_none());
    let (status, said) = b.api().admin("DELETE", &path);
    assert!(status == 404, "{status} {said}");
}
