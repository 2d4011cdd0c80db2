//! Claims about reading a tree's log: through filters, one partition by offset, and all of it when the tree is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::tests::{Site, ready_groups};
use super::*;
use crate::causal::OriginMarks;
use crate::disk::MemDisk;
use crate::error::{ErrorKind, StorageError};
use crate::feed::{FeedError, FeedOptions, FeedSource};
use crate::id::{ClusterId, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::limits::Limits;
use crate::record::{Group, Kind};
use crate::tasks::Threads;
use crate::wal::file::FileStorage;
use crate::wal::{Bounds, Completion, Filter, Selection, WalStorage};

async fn filled(site: &mut Site, disk: &MemDisk, writes: usize) -> Tree {
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    fill(&tree, writes).await;
    tree
}

async fn fill(tree: &Tree, writes: usize) {
    for at in 0..writes {
        let key = format!("{}/{}", ["a", "b", "c"][at % 3], at % 40);
        match at % 7 {
            6 => tree.delete(key).await.expect("deleted"),
            _ => tree.put(key, vec![b'v'; 30 + at % 100]).await.expect("put"),
        };
    }
}

async fn all_changes(tree: &Tree) -> Vec<Change> {
    let mut reader = tree.feed(tree.cursor_at(Lsn::ZERO));
    let mut changes = Vec::new();
    while reader.cursor().lsn < LogView::end(tree).lsn {
        let batch = reader.next().await.expect("readable");
        changes.extend(tree.decode(&batch, Lsn::ZERO));
    }
    changes
}

fn essence(changes: &[Change]) -> Vec<(Lsn, Kind, bytes::Bytes, bytes::Bytes, crate::id::Dot)> {
    changes
        .iter()
        .map(|change| {
            (change.lsn, change.kind, change.key.clone(), change.value.clone(), change.dot.unwrap())
        })
        .collect()
}

async fn filtered(tree: &Tree, filter: &Filter, from: Lsn) -> (Vec<Change>, usize) {
    let mut feed = tree.feed_with(tree.cursor_at(from), FeedOptions { filter: filter.clone() });
    let (mut changes, mut batches) = (Vec::new(), 0);
    while feed.cursor().lsn < LogView::end(tree).lsn {
        let before = feed.cursor().lsn;
        let batch = feed.next().await.expect("readable");
        assert_eq!((batch.start().lsn, batch.end()), (before, feed.cursor()));
        assert!(feed.cursor().lsn > before, "the position moves");
        changes.extend(tree.decode_filtered(&batch));
        batches += 1;
    }
    (changes, batches)
}

#[tokio::test(start_paused = true)]
async fn f06_a_filtered_feed_shows_what_a_whole_one_does_and_moves_past_the_rest() {
    let (mut site, disk) = (Site::new("a", 1), MemDisk::new());
    let mut tree = filled(&mut site, &disk, 0).await;
    let (mut abroad, far) = (Site::new("b", 9), MemDisk::new());
    let other = filled(&mut abroad, &far, 100).await;
    tree.enroll(&other.identity().cluster, other.identity().incarnation).await.expect("known");
    ApplyTarget::apply(&tree, ready_groups(&other).await).await.expect("applied");
    // What came first was effective then, though it is older.
    fill(&tree, 200).await;
    let (own, foreign) = (tree.identity().origin(), other.identity().origin());
    let partition = PartitionId::new(2);
    type Wanted = Box<dyn Fn(&Change) -> bool>;
    let filters: Vec<(Filter, Wanted)> = vec![
        (Filter::all(), Box::new(|_| true)),
        (Filter::all().prefix("b/"), Box::new(|change| change.key.starts_with(b"b/"))),
        (Filter::all().kinds([Kind::Delete]), Box::new(|change| change.kind == Kind::Delete)),
        (
            Filter::all().partitions([partition]),
            Box::new(move |change| change.dot.unwrap().partition == partition),
        ),
        (Filter::all().origins([own]), Box::new(move |change| change.dot.unwrap().origin == own)),
        (Filter::all().origins([foreign]), Box::new(move |change| change.dot.unwrap().origin == foreign)),
        (
            Filter::all().origins([foreign]).kinds([Kind::Delete]).prefix("c/"),
            Box::new(move |change| {
                let dead = change.dot.unwrap().origin == foreign && change.kind == Kind::Delete;
                dead && change.key.starts_with(b"c/")
            }),
        ),
        (Filter::all().origins([]), Box::new(|_| false)),
        (Filter::all().prefix("nothing like it"), Box::new(|_| false)),
    ];
    // Out of memory at its end, and from the disk after a restart.
    for restarted in [false, true] {
        if restarted {
            tree = site.open(Arc::new(disk.kill())).await.expect("opens");
        }
        let all = all_changes(&tree).await;
        let of = |origin| all.iter().filter(|change| change.dot.unwrap().origin == origin).count();
        assert_eq!((of(own), of(foreign)), (200, 100));
        for (filter, wanted) in &filters {
            for from in [0, 100, 299] {
                let from = Lsn::new(from);
                let expected: Vec<Change> =
                    all.iter().filter(|change| change.lsn >= from && wanted(change)).cloned().collect();
                let (shown, batches) = filtered(&tree, filter, from).await;
                assert_eq!(essence(&shown), essence(&expected), "{filter:?} from {from}");
                assert!(batches > 0, "what is left out is progress too");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_filtered_feed_waits_at_the_end_and_refuses_a_cursor_that_is_not_of_its_log() {
    let (mut site, disk) = (Site::new("a", 2), MemDisk::new());
    let tree = filled(&mut site, &disk, 3).await;
    let options = FeedOptions { filter: Filter::all().prefix("late") };
    let mut feed = tree.feed_with(LogView::end(&tree), options.clone());
    let writes = async {
        tree.put("early", "1").await.expect("put");
        tree.put("late", "2").await.expect("put");
    };
    let reads = async {
        loop {
            let batch = feed.next().await.expect("readable");
            if let Some(found) = batch.selection().iter().next() {
                assert_eq!(found.record.key, b"late");
                return;
            }
        }
    };
    tokio::join!(writes, reads);
    let mut beyond = tree.feed_with(tree.cursor_at(Lsn::new(900)), options);
    assert!(matches!(beyond.next().await, Err(FeedError::Foreign { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_filtered_feed_never_goes_on_across_what_a_seed_brought() {
    let (mut site, disk) = (Site::new("a", 2), MemDisk::new());
    let tree = filled(&mut site, &disk, 3).await;
    let mut feed = tree.feed_with(tree.cursor_at(Lsn::ZERO), FeedOptions::default());
    feed.next().await.expect("readable");
    tree.0.seeds.next_epoch();
    tree.put("late", "1").await.expect("put");
    assert!(matches!(feed.next().await, Err(FeedError::Seeded)));
}

#[tokio::test(start_paused = true)]
async fn one_partition_reads_page_by_page_from_any_offset() {
    let (mut site, disk) = (Site::new("a", 3), MemDisk::new());
    let tree = filled(&mut site, &disk, 200).await;
    let (own, all) = (tree.identity().origin(), all_changes(&tree).await);
    for at in 0..4 {
        let partition = PartitionId::new(at);
        let of: Vec<&Change> =
            all.iter().filter(|change| change.dot.unwrap().partition == partition).collect();
        let extent = tree.partition(own, partition);
        assert_eq!((extent.first, extent.records), (Offset::ZERO, of.len() as u64));
        assert_eq!(extent.next, Offset::new(of.len() as u64));
        for start in [0, 1, of.len() / 2, of.len()] {
            let (mut next, mut dots) = (Offset::new(start as u64), Vec::new());
            while next < extent.next {
                let page = tree.read_partition((own, partition), next, 300).await.expect("reads");
                assert!(page.next > next);
                let longest = page.records.iter().map(|one| one.record.payload_bytes()).max().unwrap_or(0);
                assert!(page.records.bytes() < 300 + longest + 200, "about as much as was asked for");
                dots.extend(page.records.iter().map(|one| (one.lsn, one.offset)));
                next = page.next;
            }
            let expected: Vec<_> =
                of[start..].iter().map(|change| (change.lsn, change.dot.unwrap().offset)).collect();
            assert_eq!(dots, expected);
        }
    }
    let error = tree.read_partition((own, PartitionId::new(4)), Offset::ZERO, 1).await.expect_err("no such");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_replay_on_two_threads_and_a_reading_ahead_show_what_one_thread_does() {
    let (mut site, disk) = (Site::new("a", 4), MemDisk::new());
    // No snapshot takes the work away, and more is read than memory keeps.
    site.limits = Limits { snapshot_log_bytes: u64::MAX, snapshot_stop_bytes: u64::MAX, ..Limits::tiny() };
    let tree = filled(&mut site, &disk, 400).await;
    let (digest, changes) = (tree.digest(), essence(&all_changes(&tree).await));
    for _ in 0..10 {
        site.threads = Threads::Spawn;
        let opened = site.open(Arc::new(disk.kill())).await.expect("opens");
        assert_eq!((opened.digest(), LogView::end(&opened).lsn), (digest.clone(), LogView::end(&tree).lsn));
        assert_eq!(essence(&all_changes(&opened).await), changes);
        let (shown, _) = filtered(&opened, &Filter::all(), Lsn::ZERO).await;
        assert_eq!(essence(&shown), changes);
    }
}

/// A provider that knows where each kind stands, and looks at nothing else for it.
struct Indexed {
    files: Arc<dyn WalStorage>,
    deletes: Mutex<BTreeMap<Lsn, Arc<Group>>>,
    /// From where, up to where, and how many groups were looked at.
    asked: Mutex<Vec<(Lsn, Lsn, usize)>>,
}

#[async_trait]
impl WalStorage for Indexed {
    fn append(&self, group: Arc<Group>, done: Completion) {
        let mut records = group.blocks().iter().flat_map(|framed| framed.block.records().flatten());
        if records.any(|record| record.kind == Kind::Delete) {
            self.deletes.lock().insert(group.first_lsn(), group.clone());
        }
        self.files.append(group, done);
    }

    async fn read(&self, _from: Lsn, _limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        unreachable!("a filtered reading has a way of its own")
    }

    async fn read_filtered(
        &self,
        (from, until): (Lsn, Lsn),
        filter: &Filter,
        _limit: usize,
    ) -> Result<Selection, StorageError> {
        assert_eq!(*filter, Filter::all().kinds([Kind::Delete]));
        // In two steps: a reading that is behind asks again.
        let until = until.min(Lsn::new(from.get().next_multiple_of(50).max(from.get() + 1)));
        let groups: Vec<_> = self.deletes.lock().range(from..until).map(|(_, group)| group.clone()).collect();
        self.asked.lock().push((from, until, groups.len()));
        Ok(Selection::of_groups(&groups, (from, until), filter)?.up_to(until))
    }

    fn bounds(&self) -> Bounds {
        self.files.bounds()
    }

    fn bytes_after(&self, lsn: Lsn) -> u64 {
        self.files.bytes_after(lsn)
    }

    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn {
        self.files.first_uncovered(origin, held)
    }

    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset {
        self.files.trimmed_end(origin, partition)
    }

    async fn trim(&self, before: Lsn) -> Result<(), StorageError> {
        self.files.trim(before).await
    }

    fn reconcile(&self, done: Completion) {
        self.files.reconcile(done);
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError> {
        self.files.enroll(origin, incarnation).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_filtered_feed_reads_as_the_provider_of_its_log_does_and_only_recent_groups_without_it() {
    let (mut site, disk) = (Site::new("a", 5), MemDisk::new());
    let mut provider = None;
    let wrap = |files: Arc<FileStorage>| {
        let (deletes, asked) = Default::default();
        provider.insert(Arc::new(Indexed { files, deletes, asked })).clone() as Arc<dyn WalStorage>
    };
    let tree = site.open_through(Arc::new(disk.clone()), wrap).await.expect("opens");
    let provider = provider.expect("the tree is open");
    fill(&tree, 200).await;
    let (filter, end) = (Filter::all().kinds([Kind::Delete]), LogView::end(&tree).lsn);
    let (shown, _) = filtered(&tree, &filter, Lsn::ZERO).await;
    let expected: Vec<_> =
        all_changes(&tree).await.into_iter().filter(|change| change.kind == Kind::Delete).collect();
    assert_eq!(essence(&shown), essence(&expected));
    let asked = std::mem::take(&mut *provider.asked.lock());
    assert!(asked.iter().map(|(.., groups)| groups).sum::<usize>() > 20, "{asked:?}");
    assert!(
        asked.windows(2).all(|pair| pair[0].1 == pair[1].0),
        "one goes on where another ended: {asked:?}"
    );
    assert_eq!((asked[0].0, asked.last().map(|last| last.1)), (Lsn::ZERO, Some(end)), "up to the end");
    // The last group is in memory.
    let (shown, _) = filtered(&tree, &filter, Lsn::new(end.get() - 1)).await;
    assert_eq!((shown.len(), provider.asked.lock().len()), (0, 0));
}
