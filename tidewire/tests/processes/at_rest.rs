//! `tidewire wal` on the files of a server.
#![expect(clippy::disallowed_methods, reason = "damages a real file beside a real process")]

use std::path::Path;
use std::process::{Command, Output};

use super::TREE;
use super::server::Server;

fn wal(what: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.arg("wal").args(what).arg(dir).output().expect("the binary starts")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn a_damaged_log_is_shown_checked_and_cut_when_told_to() {
    let mut server = Server::new("a");
    server.start();
    for number in 0..50 {
        assert!(server.api().wrote(&format!("key-{number:02}"), "value"));
    }
    let dir = server.data_dir();
    let running = wal(&["verify"], &dir);
    assert_eq!(running.status.code(), Some(2), "{}", said(&running));
    assert!(said(&running).contains("held by a running server"), "{}", said(&running));
    server.kill();

    let whole = wal(&["verify"], &dir);
    assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));
    assert!(said(&whole).contains("ok: 1 segments, 50 groups, 50 records"), "{}", said(&whole));
    let shown = wal(&["inspect"], &dir.join("trees").join(TREE));
    assert!(said(&shown).contains("SEGMENT") && said(&shown).contains("a ("), "{}", said(&shown));
    let offsets: u64 =
        said(&shown).lines().filter_map(|line| line.split_once("  0..")).fold(0, |sum, (_, end)| {
            sum + end.split(' ').next().and_then(|end| end.parse::<u64>().ok()).expect("an offset")
        });
    assert_eq!(offsets, 50, "each partition with its offsets: {}", said(&shown));

    let segment = dir.join("trees").join(TREE).join("wal").join(format!("{:020}.seg", 1));
    let mut bytes = std::fs::read(&segment).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    for (what, code) in [(&["verify"][..], 1), (&["repair"], 1), (&["repair", "--cut"], 0), (&["verify"], 0)]
    {
        let output = wal(what, &dir);
        assert_eq!(output.status.code(), Some(code), "{what:?}: {}", said(&output));
    }
    server.start();
    let entries = server.api().scan().len();
    assert!((20..30).contains(&entries), "{entries} of 50 were before the damage");

    server.kill();
    std::fs::remove_file(segment.with_file_name("MANIFEST")).expect("removed");
    for what in [&["inspect"][..], &["verify"], &["repair", "--cut"]] {
        let output = wal(what, &dir);
        assert_eq!(output.status.code(), Some(1), "{what:?}: {}", said(&output));
        assert!(said(&output).contains("no MANIFEST; put the directory"), "{what:?}: {}", said(&output));
    }
}
