//! Starts that cannot work: they end with the right code and one clear line.
#![expect(clippy::disallowed_methods, reason = "writes a real configuration file")]

use std::path::Path;
use std::process::{Command, Output};

use super::server::Server;

/// A start that is expected to fail.
fn serve(config: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.args(["serve", "-c"]).arg(config).output().expect("the binary starts")
}

#[test]
fn a_second_server_on_a_directory_ends_and_says_in_use() {
    let mut server = Server::new("a");
    server.start();
    let other = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[cluster]\nid = \"a\"\ndata_dir = \"{}\"\n[listen]\nhttp = \"127.0.0.1:0\"\nreplication = \"127.0.0.1:0\"\n",
        server.data_dir().display()
    );
    std::fs::write(other.path(), text).expect("written");
    let output = serve(other.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "a conflict: {said}");
    assert!(said.lines().any(|line| line.starts_with("tidewire: ") && line.contains("in use")), "{said}");
    assert!(server.api().wrote("still", "served"), "the first one goes on");
}

#[test]
fn a_wrong_configuration_ends_with_2_and_names_the_line() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "[cluster]\nid = \"a\"\n[limits]\ndrain_budgte = \"1s\"\n").expect("written");
    let output = serve(file.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("line 4") && said.contains("did you mean \"drain_budget\""), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Starts it where it cannot start; its code and what it said.
fn refused(server: &Server) -> (Option<i32>, String) {
    let output = serve(&server.config());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn f33_trees_without_their_metadata_are_refused_and_taken_over_when_told_to() {
    let mut server = Server::new("a");
    server.start();
    assert!(server.api().wrote("k", "v"));
    server.kill();
    let (meta, version) = (server.data_dir().join("meta.redb"), server.data_dir().join("VERSION"));
    for damaged in [&b""[..], b"no redb"] {
        std::fs::write(&meta, damaged).expect("written");
        let (code, said) = refused(&server);
        assert!(code == Some(1) && said.contains("put the data directory back whole"), "{code:?}: {said}");
    }
    std::fs::remove_file(&meta).expect("removed");
    // The first start without it must not make the second one work.
    for _ in 0..2 {
        let (code, said) = refused(&server);
        assert!(
            code == Some(1) && said.contains("knows nothing of them") && said.contains("VERSION"),
            "{code:?}: {said}"
        );
    }
    std::fs::write(&version, "one\n").expect("written");
    let (code, said) = refused(&server);
    assert!(code == Some(1) && said.contains("\"one\", which is no layout"), "{code:?}: {said}");
    std::fs::remove_file(&version).expect("removed");
    server.start();
    assert_eq!(server.api().value("k").as_deref(), Some("v"), "nothing of the log is lost");
    assert!(server.log().contains("trees are taken over without metadata"), "{}", server.log());
    server.kill();
    server.start();
    assert_eq!(server.api().value("k").as_deref(), Some("v"), "from then on it starts as any other");
}

#[test]
fn a_port_that_is_taken_is_named_with_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    for key in ["http", "replication"] {
        let other = if key == "http" { "replication" } else { "http" };
        let dir = tempfile::tempdir().expect("a directory");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "[cluster]\nid = \"a\"\ndata_dir = {:?}\n[listen]\n{key} = \"{address}\"\n{other} = \"127.0.0.1:0\"\n",
            dir.path()
        );
        std::fs::write(file.path(), text).expect("written");
        let output = serve(file.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("set listen.{key} to a free port")), "{said}");
    }
}
