//! A sink of a real server: JSON lines into a file, over kills and a pause.
#![expect(clippy::disallowed_methods, reason = "reads the file of a real sink")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::server::Server;
use super::{TREE, eventually};

/// Whether it was done, and what was said.
fn tidewire(server: &Server, args: &[&str]) -> (bool, String) {
    let (code, said) = server.tidewire(args);
    (code == Some(0), said)
}

/// Each line of the sink's file; a torn last one is not there yet.
fn lines(server: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(server.data_dir().join("out.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn every_change_reaches_the_file_over_kills_and_a_pause() {
    let mut server = Server::new("a");
    let path = server.data_dir().join("out.jsonl");
    let sink = format!(
        "[[sinks]]\nname = \"out\"\ntree = \"{TREE}\"\ntype = \"jsonl\"\npath = \"{}\"\n",
        path.display()
    );
    server.configure(&[], &sink);
    server.start();
    let mut written = BTreeMap::new();
    for round in 0..4 {
        for n in 0..200 {
            let (key, value) = (format!("k{}", n % 50), format!("{round}-{n}"));
            assert!(server.api().wrote(&key, &value));
            written.insert(key, value);
        }
        if round == 2 {
            let (done, said) = tidewire(&server, &["sinks", "pause", "out"]);
            assert!(done, "{said}");
        }
        server.kill();
        server.start();
    }
    let (done, said) = tidewire(&server, &["sinks", "list"]);
    assert!(done && said.contains("paused") && said.contains("jsonl"), "a pause outlives a kill: {said}");
    let (done, said) = tidewire(&server, &["sinks", "resume", "out"]);
    assert!(done, "{said}");
    eventually("the sink has caught up", 30, || {
        let (done, said) = tidewire(&server, &["sinks", "list", "--json"]);
        (done && said.contains("caught_up")).then_some(())
    });
    let (mut dots, mut last) = (BTreeSet::new(), BTreeMap::new());
    for line in lines(&server) {
        if dots.insert(line["dot"].to_string()) {
            let text = |name: &str| line[name].as_str().expect("text").to_owned();
            last.insert(text("key"), text("value"));
        }
    }
    assert_eq!(
        (dots.len(), last),
        (800, written),
        "no dot is missing, and the last value of each key is the tree's"
    );
    let metrics = server.api().counter("tidewire_sink_delivered_records_total").expect("it is there");
    assert!(metrics > 0.0);
    let (done, said) = tidewire(&server, &["sinks", "remove", "out"]);
    assert!(done, "{said}");
    let (done, said) = tidewire(&server, &["sinks", "pause", "out"]);
    assert!(!done && said.contains("no sink out"), "{said}");
}
