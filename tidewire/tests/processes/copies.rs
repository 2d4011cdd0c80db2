//! A server that is put back to an older copy of its directory.
#![expect(clippy::disallowed_methods, reason = "copies real directories beside real processes")]

use std::path::Path;

use super::eventually;
use super::load::entry;
use super::server::Server;

/// Copies a directory with everything in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("created");
    for file in std::fs::read_dir(from).expect("listed") {
        let path = file.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Writes the entries on A and waits until B has them.
fn write_through(a: &Server, b: &Server, range: std::ops::Range<usize>) {
    let entries: Vec<_> = range.map(entry).collect();
    assert!(a.api().wrote_batch(&entries), "the batch is acknowledged");
    for (key, value) in &entries {
        eventually(key, 30, || b.api().value(key).filter(|found| found == value));
    }
}

#[test]
fn a_restored_copy_is_refused_with_advice_and_costs_nobody_else_anything() {
    let [mut a, b] = Server::mesh(["a", "b"]);
    write_through(&a, &b, 0..100);
    a.terminate();
    assert_eq!(a.ended(10).code(), Some(0));
    let kept = tempfile::tempdir().expect("a directory");
    copy(&a.data_dir(), kept.path());
    a.start();
    write_through(&a, &b, 100..200);
    a.kill();
    std::fs::remove_dir_all(a.data_dir()).expect("removed");
    copy(kept.path(), &a.data_dir());
    a.start();

    let link = eventually("a's link to b is refused", 30, || {
        a.api().peer("b", "send").filter(|link| link["state"] == "refused")
    });
    let reason = link["reason"].as_str().expect("a reason");
    assert!(reason.contains("LogWentBack"), "{reason}");
    assert!(reason.contains("put back the newest copy of its data directory"), "{reason}");
    let found = b.api().scan();
    let lost = (0..200).map(entry).find(|(key, value)| found.get(key) != Some(value));
    assert_eq!((lost, found.len()), (None, 200));
    assert!(b.api().wrote("after", "the-copy"), "b still serves");
    // It depends on what a has lost, and a says so; once a has written past that, it goes on.
    let link = eventually("a holds b's write back", 30, || {
        a.api().peer("b", "receive").filter(|link| link["state"] == "waiting")
    });
    assert!(link["reason"].as_str().is_some_and(|reason| reason.contains("writes of a")), "{link}");
    assert!(a.api().wrote("own", "write"), "a still serves");
    eventually("b's write reaches a", 30, || a.api().value("after").filter(|value| value == "the-copy"));
    let link = a.api().peer("b", "send").expect("the link is shown");
    assert_eq!(link["state"], "refused");
}
