//! A thousand trees that nobody writes to, in one process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::server::Server;
use super::{now, pause};

const TREES: usize = 1_000;

/// Bytes that the files of a directory take on the disk.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let bytes = entries.map(|entry| {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            disk_bytes(&entry.path())
        } else {
            entry.metadata().map_or(0, |file| file.blocks() * 512)
        }
    });
    bytes.sum()
}

#[test]
fn a_thousand_idle_trees_open_within_ten_seconds_and_cost_neither_threads_nor_timers_nor_much_room() {
    let mut server = Server::new("crowded");
    let trees: String = (0..TREES).map(|at| format!("[[trees]]\nname = \"tree-{at}\"\n")).collect();
    server.configure(&[], &trees);
    for start in ["new", "again"] {
        let began = now();
        server.start();
        let (took, threads, resident) = (began.elapsed(), server.threads(), server.resident_kib());
        let disk = disk_bytes(&server.data_dir());
        println!(
            "{start}: {TREES} trees open after {took:.1?}, {threads} threads, {} MiB resident, {} MiB of disk",
            resident / 1_024,
            disk >> 20
        );
        assert!(took < Duration::from_secs(10), "{start}: {took:?}");
        assert!(resident < 1 << 20, "{start}: {resident} KiB");
        assert!(disk < 2 << 30, "{start}: {disk} bytes");
        if start == "again" {
            // Threads that helped to open them go away after ten seconds.
            pause(12_000);
            let (threads, before) = (server.threads(), server.switches());
            pause(5_000);
            let switches = server.switches() - before;
            println!("{start}: idle, {threads} threads, {switches} wake-ups in 5 s");
            assert!(threads < 40, "{start}: {threads} threads");
            assert!(switches < 100, "{start}: {switches} wake-ups in 5 s");
        }
        assert!(server.api().wrote("key", start), "{start}: it takes writes");
        server.terminate();
        assert!(server.ended(60).success());
    }
}
