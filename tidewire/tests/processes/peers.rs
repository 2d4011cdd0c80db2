//! Peers of real servers at run time: ordered on the command line, and by a file that is read again.

use super::server::Server;
use super::{eventually, pause};

fn done(server: &Server, args: &[&str]) -> String {
    let (code, said) = server.tidewire(args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

fn gets(server: &Server, key: &str, value: &str) {
    eventually(&format!("{key} arrives"), 60, || {
        (server.api().scan().get(key).map(String::as_str) == Some(value)).then_some(())
    });
}

#[test]
fn a_peer_is_added_paused_resumed_restarted_and_removed_on_the_command_line() {
    let (mut a, mut b) = (Server::new("a"), Server::new("b"));
    b.configure(&[("a", a.replication_port())], "");
    a.start();
    b.start();
    let url = format!("http://127.0.0.1:{}", b.replication_port());
    let (code, said) = a.tidewire(&["peers", "add", "b", "https://b.example:7400"]);
    assert!(code == Some(2) && said.contains("TLS"), "{said}");
    let (code, said) = a.tidewire(&["peers", "add", "b", "--forward"]);
    assert!(code == Some(2) && said.contains("peer b: forward: nothing is sent"), "{code:?}: {said}");
    let said = done(&a, &["peers", "add", "b", &url]);
    assert!(said.contains("added b"), "{said}");
    assert_eq!(a.tidewire(&["peers", "add", "b", &url]).0, Some(1), "it is there");
    assert!(a.api().wrote("k1", "v"));
    gets(&b, "k1", "v");
    a.kill();
    a.start();
    assert!(a.api().wrote("k2", "v"));
    gets(&b, "k2", "v");

    done(&a, &["peers", "pause", "b"]);
    assert!(a.api().wrote("k3", "v") && b.api().wrote("k4", "v"));
    pause(500);
    assert!(!b.api().scan().contains_key("k3") && !a.api().scan().contains_key("k4"));
    let list = done(&a, &["peers", "list"]);
    assert!(list.contains("peers add") && list.contains("paused by the operator"), "{list}");
    let json = done(&a, &["peers", "list", "--json"]);
    assert!(json.contains(r#""state":"paused""#) && json.contains(r#""members":[{"id":"b""#), "{json}");
    done(&a, &["peers", "resume", "b"]);
    gets(&b, "k3", "v");
    gets(&a, "k4", "v");
    done(&a, &["peers", "restart", "b"]);
    assert!(a.api().wrote("k5", "v"));
    gets(&b, "k5", "v");

    assert!(b.api().wrote("k6", "v"));
    gets(&a, "k6", "v");
    let (code, said) = a.tidewire(&["peers", "seal", "b"]);
    assert!(code == Some(1) && said.contains("not away"), "{said}");
    let json = done(&a, &["peers", "remove", "b", "--json"]);
    assert!(json.contains(r#""freed_bytes":"#), "{json}");
    assert_eq!(a.tidewire(&["peers", "remove", "b"]).0, Some(1), "it is gone");
    assert!(done(&a, &["peers", "list"]).contains("no peers"));
    b.kill();
    let said = done(&a, &["peers", "seal", "b"]);
    assert!(said.contains("sealed b out"), "its writes are known: {said}");
    assert!(done(&a, &["peers", "list"]).contains("sealed out"));
    a.kill();
    let (code, said) = a.tidewire(&["peers", "pause", "b"]);
    assert!(code == Some(3) && said.contains("tidewire serve"), "{said}");
}

#[test]
fn a_peer_of_the_file_is_removed_by_the_file_and_sighup_takes_what_it_says_over() {
    let (mut a, mut b) = (Server::new("a"), Server::new("b"));
    b.configure(&[("a", a.replication_port())], "");
    a.start();
    b.start();
    let logged = |server: &Server, words: &str| {
        eventually(&format!("it logs {words:?}"), 30, || server.log().contains(words).then_some(()));
    };
    a.configure(&[("b", b.replication_port())], "");
    a.hang_up();
    logged(&a, "added=[\"b\"]");
    assert!(a.api().wrote("k1", "v"));
    gets(&b, "k1", "v");

    let (code, said) = a.tidewire(&["peers", "remove", "b"]);
    assert!(code == Some(1) && said.contains("take it out of the file"), "{said}");
    done(&a, &["peers", "remove", "b", "--until-restart"]);
    assert!(done(&a, &["peers", "list"]).contains("no peers"));
    a.hang_up();
    eventually("the file brings it back", 30, || {
        done(&a, &["peers", "list"]).contains("configuration").then_some(())
    });

    a.configure(&[("b", b.replication_port())], "[log]\nlinger = \"1ms\"\nlingr = 1\n");
    a.hang_up();
    logged(&a, "nothing has changed");
    assert!(a.log().contains("lingr"), "{}", a.log());
    a.configure(&[], "[log]\nlinger = \"1ms\"\n");
    a.hang_up();
    logged(&a, "key=\"log.linger\"");
    logged(&a, "removed=[\"b\"]");
    assert!(done(&a, &["peers", "list"]).contains("no peers"));
    a.terminate();
    assert_eq!(a.ended(20).code(), Some(0));
}

#[test]
fn f17_a_seed_that_was_ordered_from_a_peer_is_not_waited_for_when_that_is_removed_or_sealed() {
    let mut a = Server::new("a");
    a.start();
    assert!(a.api().wrote("k1", "v"));
    for order in ["remove", "seal"] {
        done(&a, &["peers", "add", "b", "http://127.0.0.1:1"]);
        done(&a, &["peers", "reseed", "b"]);
        let waits = done(&a, &["status"]);
        assert!(waits.contains("waits for b to send a snapshot"), "{waits}");
        done(&a, &["peers", order, "b"]);
        let after = done(&a, &["status"]);
        assert!(after.contains("health ok") && !after.contains("reseeding"), "{order}: {after}");
        a.kill();
        a.start();
        let started = done(&a, &["status"]);
        assert!(!started.contains("reseeding"), "{order}, after a restart: {started}");
    }
}
