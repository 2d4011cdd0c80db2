//! Dead letters of a tree: left out, not claimed, and what becomes of them, over crashes at every step.

use super::*;
use crate::id::{Dot, Lsn, Offset, PartitionId};
use crate::letters::{Fate, Letter, Stretch};
use crate::record::RecordView;

/// The letter of the record of a key in some groups.
fn letter_of(groups: &[ReadyGroup], key: &str) -> Letter {
    for group in groups {
        for (block, _) in &group.blocks {
            let (mut records, all) = (block.records(), block.records().left());
            let mut next: BTreeMap<PartitionId, Offset> =
                block.runs().map(|run| (run.partition, run.first)).collect();
            let mut from = 0;
            while let Some(Ok(record)) = records.next() {
                let (to, first) = (all - records.left(), next[&record.partition]);
                next.insert(record.partition, first.next());
                if record.key == key.as_bytes() {
                    return Letter {
                        origin: group.origin,
                        incarnation: group.incarnation,
                        stretches: vec![Stretch { partition: record.partition, first, count: 1 }],
                        hlc: record.hlc,
                        bytes: bytes::Bytes::copy_from_slice(block.record_bytes(from..to)),
                        reason: "too large".into(),
                        first_seen_ms: 0,
                        lsn: Lsn::ZERO,
                        fate: Fate::Parked,
                    };
                }
                from = to;
            }
        }
    }
    panic!("no record of {key}");
}

/// A cluster that holds what another one has written, but for one record in the middle of a batch.
struct Rig {
    site: Site,
    disk: MemDisk,
    tree: Tree,
    dot: Dot,
    hlc: Hlc,
    origin: ClusterId,
}

impl Rig {
    async fn new() -> Self {
        let (mut a, mut site) = (Site::new("a", 1), Site::new("b", 2));
        let there = a.open(Arc::new(MemDisk::new())).await.expect("opens");
        there.put("first", "1").await.expect("put");
        let batch = ["x", "big", "y"].map(|key| Operation::Set(key.into(), vec![7; 90].into()));
        there.batch(batch.into()).await.expect("batch");
        there.put("last", "1").await.expect("put");
        let groups = ready_groups(&there).await;
        let letter = letter_of(&groups, "big");
        let disk = MemDisk::new();
        let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
        let origin = there.identity().cluster.clone();
        tree.enroll(&origin, there.identity().incarnation).await.expect("enrols");
        tree.park(vec![letter.clone()]).await.expect("parks");
        tree.park(vec![letter.clone()]).await.expect("parks the same again");
        tree.apply(groups).await.expect("applies");
        Self { site, disk, tree, dot: letter.dot(), hlc: letter.hlc, origin }
    }

    async fn crash(&mut self) {
        let disk = self.disk.crash(7);
        self.tree.kill().await;
        self.tree = self.site.open(Arc::new(disk.clone())).await.expect("opens again");
        self.disk = disk;
    }

    fn claims(&self) -> bool {
        let claimed = self.tree.frontier().get(self.origin.tag());
        assert_eq!(claimed, ApplyTarget::progress(&self.tree).frontier.get(self.origin.tag()));
        assert_eq!(claimed, LogView::standing(&self.tree).progress.frontier.get(self.origin.tag()));
        assert_eq!(claimed, self.tree.digest().frontier.get(self.origin.tag()));
        claimed >= self.hlc
    }

    /// It lies in the log, is covered, is not shown, and is not claimed.
    fn check_parked(&self) {
        for key in ["first", "x", "y", "last"] {
            assert!(self.tree.get(key).is_some(), "{key}: what is beside it goes on");
        }
        assert_eq!(self.tree.get("big"), None);
        assert!(!self.claims(), "nobody is told that it was seen");
        assert!(self.tree.visible().get(self.origin.tag()) >= self.hlc, "others do not wait for it here");
        let marks = ApplyTarget::progress(&self.tree).watermarks;
        let covered = marks.origin(self.origin.tag()).expect("known").get(self.dot.partition).next;
        assert!(covered > self.dot.offset, "the stream goes on");
        assert_eq!(self.tree.dead_letters().iter().map(Letter::dot).collect::<Vec<_>>(), [self.dot]);
        assert!(self.tree.parked_from().is_some(), "the log keeps it for others");
    }

    async fn snapshot_twice(&self) {
        for _ in 0..2 {
            self.tree.put("own", "v").await.expect("put");
            self.tree.snapshot().await.expect("snapshot");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f35_what_is_parked_is_left_out_alone_and_stays_so_over_crashes_and_snapshots() {
    let mut rig = Rig::new().await;
    rig.check_parked();
    rig.crash().await;
    rig.check_parked();
    rig.snapshot_twice().await;
    rig.crash().await;
    // What is claimed after a start comes from the snapshot, and rises with what is heard.
    ApplyTarget::advance(&rig.tree, rig.origin.tag(), Hlc::from_millis(9_000_000));
    rig.check_parked();
}

#[tokio::test(start_paused = true)]
async fn a_replayed_letter_is_there_after_a_crash_at_any_moment_and_is_claimed() {
    let mut rig = Rig::new().await;
    rig.snapshot_twice().await;
    assert_eq!(rig.tree.replay_letter(rig.dot).await.expect("replays"), 1);
    for step in 0..3 {
        let value = rig.tree.get("big").unwrap_or_else(|| panic!("step {step}: it was shown"));
        assert_eq!((value.value.len(), value.version.hlc), (90, rig.hlc));
        assert!(rig.claims() && rig.tree.dead_letters().is_empty() && rig.tree.parked_from().is_none());
        if step == 1 {
            rig.snapshot_twice().await;
        }
        rig.crash().await;
        ApplyTarget::advance(&rig.tree, rig.origin.tag(), Hlc::from_millis(9_000_000));
    }
    let kept = crate::meta::MetaStore::list(&rig.site.letters, "dead/").await.expect("readable");
    assert!(kept.is_empty(), "snapshots hold it now: {kept:?}");
    let gone = rig.tree.replay_letter(rig.dot).await.expect_err("it is settled");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_letter_is_never_applied_and_nothing_waits_for_it() {
    let mut rig = Rig::new().await;
    rig.tree.drop_letter(rig.dot).await.expect("drops");
    for step in 0..3 {
        assert_eq!(rig.tree.get("big"), None, "step {step}");
        assert!(rig.claims() && rig.tree.dead_letters().is_empty() && rig.tree.parked_from().is_none());
        if step == 1 {
            rig.snapshot_twice().await;
        }
        rig.crash().await;
        ApplyTarget::advance(&rig.tree, rig.origin.tag(), Hlc::from_millis(9_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_goes_through_the_same_checks_and_merges_by_version() {
    let mut rig = Rig::new().await;
    rig.site.limits.max_record_bytes = 80;
    rig.crash().await;
    let refused = rig.tree.replay_letter(rig.dot).await.expect_err("it is still too large");
    assert!(
        refused.kind() == ErrorKind::Conflict && refused.to_string().contains("max_record_bytes"),
        "{refused}"
    );
    rig.check_parked();
    rig.site.limits.max_record_bytes = 100;
    rig.crash().await;
    let newer = rig.tree.put("big", "newer").await.expect("put");
    rig.tree.replay_letter(rig.dot).await.expect("replays");
    assert_eq!(rig.tree.get("big").expect("there").version, newer, "the older write lost");
}

#[tokio::test(start_paused = true)]
async fn letters_are_bounded_in_bytes_and_nothing_is_applied_without_them() {
    let rig = Rig::new().await;
    let letter = rig.tree.dead_letters().remove(0);
    assert!(RecordView::parse(&letter.bytes).is_ok());
    let huge = Letter {
        stretches: vec![Stretch { first: Offset::new(99), ..letter.stretches[0] }],
        bytes: vec![0; 2 << 20].into(),
        ..letter
    };
    assert_eq!(
        rig.tree.cannot_park(std::slice::from_ref(&huge)).map(|error| error.kind()),
        Some(ErrorKind::TooLarge)
    );
    assert_eq!(rig.tree.park(vec![huge]).await.expect_err("no room").kind(), ErrorKind::TooLarge);
    rig.check_parked();
}
