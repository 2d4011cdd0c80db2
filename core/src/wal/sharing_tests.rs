//! How writers share syncs, on real threads and files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::file::{FileStorage, Manifest};
use super::{CommitRunner, DurableGroups, WalMetrics, WalStorage, Writer, WriterConfig, WriterStart};
use crate::clock::{CeilingStore, HybridClock, SystemClock};
use crate::disk::RealDisk;
use crate::error::MetaError;
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, TreeName};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::record::{Group, MergeMode, Mutation};
use crate::tasks::{Tasks, Threads};

struct Nowhere;

#[async_trait]
impl CeilingStore for Nowhere {
    async fn load(&self) -> Result<Hlc, MetaError> {
        Ok(Hlc::ZERO)
    }

    async fn store(&self, _ceiling: Hlc) -> Result<(), MetaError> {
        Ok(())
    }
}

#[derive(Default)]
struct Groups(AtomicU64);

impl DurableGroups for Groups {
    fn apply(&self, _group: &Arc<Group>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Rig {
    writer: Writer,
    groups: Arc<Groups>,
    storage: Arc<FileStorage>,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, cluster) = (TreeName::new("t").expect("name"), ClusterId::new("c").expect("name"));
        let manifest = Manifest {
            incarnation: Incarnation::new(1),
            cluster: cluster.clone(),
            tree: tree.clone(),
            partitions: 4,
            merge: MergeMode::default(),
            origins: Default::default(),
        };
        let (tasks, limits) = (Tasks::new(Threads::Spawn), Limits::default());
        let (disk, of) = (Arc::new(RealDisk), tasks.clone());
        let opened =
            FileStorage::open(disk, dir.path(), manifest, limits.clone(), of, Lsn::ZERO, &mut |_| {});
        let storage = opened.expect("opens").storage;
        let clock = HybridClock::open(Arc::new(SystemClock), Arc::new(Nowhere), Duration::from_secs(30));
        let groups = Arc::new(Groups::default());
        let writer = Writer::new(
            WriterConfig {
                tree,
                origin: cluster.tag(),
                incarnation: Incarnation::new(1),
                partitions: 4,
                limits,
                clock: Arc::new(clock.await.expect("opens")),
                storage: storage.clone(),
                runner: CommitRunner::new(tasks.clone()),
                groups: groups.clone(),
                metrics: WalMetrics::new(&Metrics::default()),
            },
            WriterStart::default(),
        );
        Self { writer, groups, storage, tasks, _dir: dir }
    }

    async fn put(&self, key: String) {
        self.writer.append(&[Mutation::set(key, Bytes::from_static(b"v"))]).await.expect("committed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_commits_in_its_own_thread_does_not_keep_others_from_sharing_its_sync() {
    let rig = Arc::new(Rig::new().await);
    // The first write after a quiet time is a committer's; after it a caller commits in its own thread.
    rig.put("first".to_owned()).await;
    // One worker is busy with something else: all writers live on the other one.
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let (started, starts) = tokio::sync::oneshot::channel();
    #[expect(clippy::disallowed_methods, reason = "the test ends it")]
    let busy = tokio::spawn(async move {
        started.send(()).expect("the test waits");
        let _ended = held.recv();
    });
    starts.await.expect("a worker is free");
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let rig = rig.clone();
            #[expect(clippy::disallowed_methods, reason = "the test joins them")]
            tokio::spawn(async move {
                for step in 0..20 {
                    rig.put(format!("{writer}-{step}")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer panics");
    }
    drop(release);
    busy.await.expect("ends");
    let groups = rig.groups.0.load(Ordering::Relaxed);
    assert!(groups * 4 < 64 * 20, "{groups} syncs for {} writes", 64 * 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_future_is_dropped_while_it_gives_way_to_others_is_committed() {
    let rig = Rig::new().await;
    // The first write after a quiet time is a committer's; after it a caller commits in its own thread.
    rig.put("first".to_owned()).await;
    let before = rig.storage.bounds().next;
    for at in 0..50_u64 {
        let dropped = Mutation::set(format!("dropped-{at}"), Bytes::from_static(b"v"));
        let append = std::slice::from_ref(&dropped);
        let polled = futures::poll!(std::pin::pin!(rig.writer.append(append)));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while rig.storage.bounds().next < before.advanced(at + 1) {
            assert!(tokio::time::Instant::now() < deadline, "nobody commits what was left: {polled:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    rig.tasks.join().await;
}
