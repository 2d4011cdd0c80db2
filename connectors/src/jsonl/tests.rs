//! The JSON lines sink against its file: the contract, a crash at any byte, and what a line says.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tidewire_core::disk::{Disk, MemDisk, OpenMode, read_whole};
use tidewire_core::id::Lsn;
use tidewire_core::random::Random;
use tidewire_core::record::Mutation;
use tidewire_core::sink::{Held, MemFeed, Sink, SinkContext, SinkRig, conformance};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::LogView;

use super::{JsonlConfig, JsonlSink};

const PATH: &str = "/out/orders.jsonl";

/// A file on a disk that loses what was not synced whenever a process ends.
struct Rig(Mutex<MemDisk>);

fn sink_on(disk: &MemDisk) -> JsonlSink {
    JsonlSink::on(Arc::new(disk.clone()), JsonlConfig::new(PATH)).expect("a path")
}

fn lines(disk: &MemDisk) -> Vec<serde_json::Value> {
    if !disk.exists(Path::new(PATH)).expect("known") {
        return Vec::new();
    }
    let bytes = read_whole(disk, Path::new(PATH)).expect("readable");
    // A torn last line is cut off at the next start.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("each line is JSON")).collect()
}

#[async_trait]
impl SinkRig for Rig {
    async fn sink(&self) -> Box<dyn Sink> {
        let mut disk = self.0.lock();
        *disk = disk.crash(7);
        Box::new(sink_on(&disk))
    }

    async fn held(&self) -> Vec<Held> {
        let durable = self.0.lock().copy().crash(7);
        let held = |line: &serde_json::Value| Held {
            key: line["key"].as_str().expect("a key").to_owned().into(),
            value: line["value"].as_str().map(|value| value.to_owned().into()),
        };
        lines(&durable).iter().map(held).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn json_lines_in_a_file_keep_the_contract() {
    conformance(async || Box::new(Rig(Mutex::new(MemDisk::new()))) as Box<dyn SinkRig>).await;
}

fn context(log: &MemFeed) -> SinkContext {
    SinkContext {
        log: Arc::new(log.clone()),
        changes: Arc::new(log.clone()),
        checkpoint: log.whole().start(),
        tasks: Tasks::new(Threads::Inline),
        random: Random::from_seed(1),
    }
}

#[tokio::test]
async fn a_line_that_a_crash_cut_short_is_gone_and_comes_again_whole() {
    let (log, disk) = (MemFeed::sample(), MemDisk::new());
    (0..3).for_each(|n| log.put(&format!("k{n}"), 40));
    let mut sink = sink_on(&disk);
    sink.resume(&context(&log)).await.expect("resumes");
    sink.write(log.whole()).await.expect("written");
    sink.sync().await.expect("synced");
    let file = disk.open(Path::new(PATH), OpenMode::Write).expect("it is there");
    let whole = file.len().expect("known");
    for cut in [whole - 1, whole / 2, whole / 3 + 1, 1] {
        file.set_len(cut).expect("cut");
        let mut sink = sink_on(&disk);
        let mut ctx = context(&log);
        let kept = lines(&disk).len() as u64;
        ctx.checkpoint.lsn = Lsn::new(kept);
        sink.resume(&ctx).await.expect("resumes");
        sink.write(log.whole().slice(Lsn::new(kept), log.end().lsn)).await.expect("written");
        sink.sync().await.expect("synced");
        let keys: Vec<String> = lines(&disk).iter().map(|line| line["key"].to_string()).collect();
        assert_eq!(keys, ["\"k0\"", "\"k1\"", "\"k2\""], "cut at {cut}");
    }
}

#[tokio::test]
async fn a_line_says_what_happened_where_and_when_and_bytes_are_base64() {
    let (log, disk) = (MemFeed::sample(), MemDisk::new());
    let expiring = Mutation { deadline_ms: Some(99), ..Mutation::set("text", "ä") };
    log.push(&[expiring, Mutation::set(vec![0xff], vec![0xfe]), Mutation::delete_range("a", "b")]);
    let mut sink = sink_on(&disk);
    sink.resume(&context(&log)).await.expect("resumes");
    sink.write(log.whole()).await.expect("written");
    sink.sync().await.expect("synced");
    let lines = lines(&disk);
    assert_eq!(lines.len(), 3);
    let text = &lines[0];
    assert_eq!(
        (&text["tree"], &text["op"], &text["key"], &text["value"]),
        (&"orders".into(), &"set".into(), &"text".into(), &"ä".into())
    );
    assert_eq!(
        (&text["origin"], &text["deadline_ms"], text.get("value_base64")),
        (&"a".into(), &"99".into(), None)
    );
    assert!(
        text["dot"].as_str().expect("text").starts_with("a/")
            && text["version"].as_str().expect("text").ends_with("@a")
    );
    assert_eq!(lines[1]["key_base64"], STANDARD.encode([0xff]));
    assert_eq!((&lines[1]["value_base64"], lines[1].get("key")), (&STANDARD.encode([0xfe]).into(), None));
    assert_eq!(
        (&lines[2]["op"], &lines[2]["key"], &lines[2]["end_key"]),
        (&"delete_range".into(), &"a".into(), &"b".into())
    );
}

#[tokio::test]
async fn a_full_disk_is_the_fault_of_the_destination_and_over_when_there_is_room() {
    let (log, disk) = (MemFeed::sample(), MemDisk::new());
    log.put("k", 5_000);
    let mut sink = sink_on(&disk);
    sink.resume(&context(&log)).await.expect("resumes");
    disk.set_quota(100);
    let error = sink.write(log.whole()).await.expect_err("full");
    assert_eq!(error.kind(), tidewire_core::error::SinkErrorKind::Destination);
    assert!(error.to_string().contains(PATH), "{error}");
    disk.set_quota(u64::MAX);
    sink.close().await.expect("closed");
    sink.resume(&context(&log)).await.expect("resumes");
    sink.write(log.whole()).await.expect("there is room");
    sink.sync().await.expect("synced");
    assert_eq!(lines(&disk).len(), 1);
}

#[test]
fn the_docs_show_the_sink_as_it_is() {
    let docs = include_str!("../../../docs/sinks.md");
    assert!(docs.contains(include_str!("sink.rs")), "copy connectors/src/jsonl/sink.rs into docs/sinks.md");
}
