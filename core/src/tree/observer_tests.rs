//! Claims about observers: what they are shown, when, and that one that panics harms nobody.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::tests::{Site, ready_groups};
use super::*;
use crate::disk::MemDisk;
use crate::id::{Hlc, Lsn};
use crate::record::Kind;

type Seen = Vec<(Kind, Bytes, Hlc, Lsn, bool)>;

/// Remembers what it was shown; looks into the tree each time, and panics at a key.
struct Recorder {
    tree: Mutex<Option<Tree>>,
    seen: Mutex<Seen>,
    panics_at: &'static str,
}

impl Recorder {
    fn new(tree: &Tree, panics_at: &'static str) -> Arc<Self> {
        Arc::new(Self { tree: Mutex::new(Some(tree.clone())), seen: Mutex::default(), panics_at })
    }

    fn keys(&self) -> Vec<Bytes> {
        self.seen.lock().iter().map(|(_, key, ..)| key.clone()).collect()
    }
}

impl Observer for Recorder {
    fn applied(&self, write: &ObservedWrite<'_>) {
        let record = &write.record;
        assert!(record.key != self.panics_at.as_bytes(), "on purpose");
        let key = Bytes::copy_from_slice(record.key);
        if record.kind == Kind::Set {
            let found =
                self.tree.lock().as_ref().expect("a tree").get(&key).expect("visible before it is shown");
            assert!(found.version >= write.version);
        }
        self.seen.lock().push((record.kind, key, write.version.hlc, write.lsn, write.local));
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_each_effective_write_in_log_order_before_its_writer_is_answered() {
    let (mut a, mut b) = (Site::new("a", 1), Site::new("b", 2));
    let here = a.open(Arc::new(MemDisk::new())).await.expect("opens");
    let there = b.open(Arc::new(MemDisk::new())).await.expect("opens");
    // Commits in both logs have the same times: the names decide, and those of b are greater.
    let older = there.put("late", "x").await.expect("put");
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    let recorder = Recorder::new(&here, "");
    let observing = here.observe(recorder.clone());
    let first = here.put("k", "v").await.expect("put");
    assert_eq!(recorder.keys(), ["k"], "shown before the writer is answered");
    let range = here.delete_range("k", "m").await.expect("deleted");
    assert!(older < range);
    there.put("z", "1").await.expect("put");
    ApplyTarget::enroll(&here, &there.identity().cluster, there.identity().incarnation).await.expect("known");
    here.apply(ready_groups(&there).await).await.expect("applied");
    here.batch(vec![Operation::Set("b".into(), "1".into()), Operation::Delete("c".into())])
        .await
        .expect("batch");
    let seen = recorder.seen.lock().clone();
    let shown: Vec<_> = seen.iter().map(|(kind, key, _, _, local)| (*kind, &key[..], *local)).collect();
    let wanted: [(Kind, &[u8], bool); 5] = [
        (Kind::Set, b"k", true),
        (Kind::DeleteRange, b"k", true),
        (Kind::Set, b"z", false),
        (Kind::Set, b"b", true),
        (Kind::Delete, b"c", true),
    ];
    assert_eq!(shown, wanted, "what the range had deleted before it came is left out");
    assert_eq!(seen[0].2, first.hlc);
    assert!(seen.windows(2).all(|pair| pair[0].3 < pair[1].3), "in log order: {seen:?}");
    drop(observing);
    here.put("unseen", "v").await.expect("put");
    assert_eq!(recorder.seen.lock().len(), wanted.len());
    recorder.tree.lock().take();
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_is_called_no_more_and_harms_nobody() {
    let mut site = Site::new("a", 3);
    let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
    let (weak, strong) = (Recorder::new(&tree, "bad"), Recorder::new(&tree, ""));
    let both = [tree.observe(weak.clone()), tree.observe(strong.clone())];
    for key in ["one", "bad", "two"] {
        tree.put(key, "v").await.expect("the write is not the observer's");
    }
    assert_eq!(weak.keys(), ["one"]);
    assert_eq!(strong.keys(), ["one", "bad", "two"]);
    drop(both);
    weak.tree.lock().take();
    strong.tree.lock().take();
}
