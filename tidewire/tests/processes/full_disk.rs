//! A server whose disk is full.
#![expect(clippy::disallowed_methods, reason = "fills and empties a real file system")]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::eventually;
use super::server::Server;

/// Bytes of each value.
const VALUE: usize = 64 << 10;
/// What is removed to make room.
const BALLAST: usize = 4 << 20;

/// Why there can be no small file system here, if there cannot. It is mounted in a namespace of the process alone, so that
/// nothing is left behind however the test ends.
fn impossible(dir: &Path) -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "tidewire"]).arg(dir);
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room_and_reads_go_on() {
    let mut server = Server::new("a");
    std::fs::create_dir_all(server.data_dir()).expect("created");
    if let Some(reason) = impossible(&server.data_dir()) {
        println!("skipped: no small file system can be mounted here: {reason}");
        return;
    }
    let script = "mount -t tmpfs -o size=16m tidewire \"$1\" && head -c \"$4\" /dev/zero > \"$1/ballast\" \
                  && exec \"$2\" serve -c \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(server.data_dir()).arg(env!("CARGO_BIN_EXE_tidewire")).arg(server.config());
    command.arg(BALLAST.to_string());
    server.start_with(command);

    let (api, value) = (server.api(), vec![b'v'; VALUE]);
    let mut refused = None;
    for number in 0..400 {
        let (status, body) = api.put(&format!("key-{number}"), &value).expect("an answer");
        if status != 200 {
            refused = Some((number, status, body));
            break;
        }
    }
    let (number, status, body) = refused.expect("16 MiB do not hold 25 MiB");
    let error: Value = serde_json::from_str(&body).expect("json");
    assert_eq!((status, &error["error"]["kind"]), (503, &Value::from("unavailable")), "{body}");
    assert!(error["error"]["message"].as_str().expect("a message").contains("full"), "{body}");
    assert!(number > 10, "only {number} writes fit");
    assert_eq!(api.value("key-0").map(|found| found.len()), Some(VALUE), "reads go on");
    assert_eq!(
        api.get(&format!("key-{number}")).expect("an answer").0,
        404,
        "the refused write did not happen"
    );

    // The process sees a file system that this one does not; the way there is through its root.
    let seen = format!("/proc/{}/root{}/ballast", server.pid(), server.data_dir().display());
    std::fs::remove_file(&seen).expect("the ballast is there");
    eventually("a write is taken again", 30, || api.wrote("after", "room").then_some(()));
    assert_eq!(api.value("after").as_deref(), Some("room"));
    assert_eq!(api.value("key-0").map(|found| found.len()), Some(VALUE));
    println!("full after {number} writes of {VALUE} bytes");
}
