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
