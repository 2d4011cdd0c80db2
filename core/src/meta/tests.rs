//! What the stores promise beyond the conformance suite: restarts, crashes, faults.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use redb::{Builder, StorageBackend};

use super::redb_worker::create_table;
use super::*;
use crate::clock::CeilingStore;
use crate::disk::{Disk, DiskFaults, DiskFile, DiskOperation, FaultyDisk, MemDisk, OpenMode};
use crate::error::{MetaError, MetaErrorKind};
use crate::id::Hlc;

#[tokio::test]
async fn the_store_in_memory_conforms() {
    conformance(async || Arc::new(MemMeta::new()) as Arc<dyn MetaStore>).await;
}

#[tokio::test]
async fn the_faulty_store_without_faults_conforms() {
    conformance(async || Arc::new(FaultyMeta::new(Arc::new(MemMeta::new()))) as Arc<dyn MetaStore>).await;
}

#[tokio::test]
async fn the_redb_store_conforms() {
    let root = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    conformance(async || {
        next.set(next.get() + 1);
        Arc::new(RedbMeta::open(&root.path().join(next.get().to_string())).unwrap()) as Arc<dyn MetaStore>
    })
    .await;
}

async fn put(store: &dyn MetaStore, key: &str, value: &'static str) -> Result<(), MetaError> {
    store.commit(vec![MetaChange::put(key, value)]).await
}

#[tokio::test]
async fn a_redb_store_finds_what_it_held_after_closing_dropping_and_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("meta.redb");
    let store = RedbMeta::open(&path).unwrap();
    put(&store, "a", "1").await.unwrap();
    store.close().await.unwrap();
    let store = RedbMeta::open(&path).unwrap();
    put(&store, "b", "2").await.unwrap();
    drop(store);
    let store = RedbMeta::open(&path).unwrap();
    put(&store, "c", "3").await.unwrap();
    // A process that was killed leaves the file as it is now.
    let killed = root.path().join("killed.redb");
    std::fs::copy(&path, &killed).unwrap();
    let store = RedbMeta::open(&killed).unwrap();
    assert_eq!(store.list("").await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_closed_redb_store_answers_what_was_asked_before_and_refuses_the_rest() {
    let root = tempfile::tempdir().unwrap();
    let store = RedbMeta::open(&root.path().join("meta.redb")).unwrap();
    let keys: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let mut puts = Box::pin(join_all(keys.iter().map(|key| put(&store, key, "x"))));
    assert!((&mut puts).now_or_never().is_none(), "all are asked");
    store.close().await.unwrap();
    assert!(puts.await.iter().all(Result::is_ok));
    assert_eq!(store.get("1").await.unwrap_err().kind(), MetaErrorKind::Closed);
    assert_eq!(put(&store, "late", "x").await.unwrap_err().kind(), MetaErrorKind::Closed);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_store_is_corrupt_and_one_in_use_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("meta.redb");
    let store = RedbMeta::open(&path).unwrap();
    let second = RedbMeta::open(&path).err().unwrap();
    assert_eq!(second.kind(), MetaErrorKind::Io);
    assert!(second.to_string().contains("meta.redb"), "{second}");
    drop(store);
    let garbage = root.path().join("garbage");
    crate::disk::write_atomically(&crate::disk::RealDisk, &garbage, &[7; 5000]).unwrap();
    assert_eq!(RedbMeta::open(&garbage).err().unwrap().kind(), MetaErrorKind::Corrupt);
}

#[tokio::test]
async fn a_creation_that_was_cut_off_is_started_again() {
    let root = tempfile::tempdir().unwrap();
    crate::disk::write_atomically(&crate::disk::RealDisk, &root.path().join("meta.redb.new"), &[0; 5000])
        .unwrap();
    let store = RedbMeta::open(&root.path().join("meta.redb")).unwrap();
    put(&store, "a", "1").await.unwrap();
    assert!(!root.path().join("meta.redb.new").exists());
}

/// redb on a disk of ours, so that it can fail and crash.
struct OnDisk(Arc<dyn DiskFile>);

impl fmt::Debug for OnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDisk")
    }
}

impl StorageBackend for OnDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.0.read_at(out, offset)?;
        if read == out.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(&mut [IoSlice::new(data)], offset)
    }
}

fn redb_on(memory: &MemDisk, faults: &DiskFaults) -> RedbMeta {
    let disk = FaultyDisk::over_memory(memory.clone(), faults.clone());
    let path = PathBuf::from("/meta.redb");
    let is_new = !disk.exists(&path).unwrap();
    if is_new {
        disk.open(&path, OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
    }
    let open = move || {
        let failed = |error: io::Error| MetaError::new(MetaErrorKind::Io, "cannot open").with_source(error);
        let file = disk.open(&path, OpenMode::Write).map_err(failed)?;
        Builder::new().create_with_backend(OnDisk(file)).map_err(|error| failed(io::Error::other(error)))
    };
    let mut open: super::redb_worker::Opener = Box::new(open);
    if is_new {
        create_table(&open().unwrap()).unwrap();
    }
    RedbMeta::start(open).unwrap()
}

#[tokio::test]
async fn transactions_that_wait_share_one_sync() {
    let faults = DiskFaults::from_seed(1);
    let store = redb_on(&MemDisk::new(), &faults);
    put(&store, "first", "x").await.unwrap();
    let before = faults.count(DiskOperation::Sync);
    put(&store, "one", "x").await.unwrap();
    let cost = faults.count(DiskOperation::Sync) - before;
    assert!(cost > 0, "a transaction is synced");
    faults.hang();
    let keys: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    let mut puts = Box::pin(join_all(keys.iter().map(|key| put(&store, key, "x"))));
    assert!((&mut puts).now_or_never().is_none(), "all wait");
    faults.heal();
    assert!(puts.await.iter().all(Result::is_ok));
    let shared = faults.count(DiskOperation::Sync) - before - cost;
    assert!(shared <= 3 * cost, "{shared} syncs for 60 transactions of {cost}: two rounds and some room");
    assert_eq!(store.list("").await.unwrap().len(), 62);
}

#[tokio::test]
async fn a_redb_store_works_again_when_the_disk_does() {
    let faults = DiskFaults::from_seed(1);
    let store = redb_on(&MemDisk::new(), &faults);
    put(&store, "before", "x").await.unwrap();
    for (round, fault) in
        [DiskFaults::fill, |faults: &DiskFaults| faults.fail_all(DiskOperation::Sync)].into_iter().enumerate()
    {
        fault(&faults);
        for _ in 0..3 {
            assert_eq!(put(&store, "during", "x").await.unwrap_err().kind(), MetaErrorKind::Io);
        }
        faults.heal();
        put(&store, &format!("after/{round}"), "x").await.unwrap();
        assert_eq!(store.get("before").await.unwrap(), Some("x".into()));
    }
    assert_eq!(store.list("after/").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_crash_loses_no_transaction_that_returned_and_halves_none() {
    for seed in 0..20 {
        let (memory, faults) = (MemDisk::new(), DiskFaults::from_seed(seed));
        let store = redb_on(&memory, &faults);
        for round in 0..5_u8 {
            let changes = ["left", "right"].map(|key| MetaChange::put(key, vec![round; 3000]));
            store.commit(changes.into()).await.unwrap();
        }
        // The last one is cut off somewhere.
        faults.fail_nth(DiskOperation::Write, 1 + seed % 4);
        let changes = ["left", "right"].map(|key| MetaChange::put(key, vec![5; 3000]));
        let _ = store.commit(changes.into()).await;
        let next = memory.crash(seed);
        let store = redb_on(&next, &DiskFaults::from_seed(seed));
        let (left, right) =
            (store.get("left").await.unwrap().unwrap(), store.get("right").await.unwrap().unwrap());
        assert!(left == right && left[0] >= 4, "seed {seed}: {} {}", left[0], right[0]);
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_the_store_working() {
    let root = tempfile::tempdir().unwrap();
    let store = RedbMeta::open(&root.path().join("meta.redb")).unwrap();
    for _ in 0..200 {
        assert!(put(&store, "dropped", "x").now_or_never().is_none());
    }
    put(&store, "kept", "x").await.unwrap();
    assert_eq!(store.get("kept").await.unwrap(), Some("x".into()));
}

#[tokio::test]
async fn a_crashed_process_no_longer_reaches_the_store_in_memory() {
    let store = MemMeta::new();
    let (clone, backup) = (store.clone(), store.copy());
    put(&store, "a", "1").await.unwrap();
    let next = store.crash();
    assert_eq!(put(&clone, "a", "2").await.unwrap_err().kind(), MetaErrorKind::Closed);
    assert_eq!(store.get("a").await.unwrap_err().kind(), MetaErrorKind::Closed);
    assert_eq!(next.get("a").await.unwrap(), Some("1".into()));
    assert_eq!(backup.get("a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn ordered_faults_have_no_effect_on_the_store_and_end_with_healing() {
    let memory = MemMeta::new();
    let store = FaultyMeta::new(Arc::new(memory.clone()));
    store.fail_next(1);
    assert_eq!(store.get("a").await.unwrap_err().kind(), MetaErrorKind::Io);
    store.fail_next_commits(1);
    assert_eq!(store.get("a").await.unwrap(), None);
    assert_eq!(put(&store, "a", "1").await.unwrap_err().kind(), MetaErrorKind::Io);
    put(&store, "a", "2").await.unwrap();
    store.fail_all();
    assert!(store.list("").await.is_err() && put(&store, "a", "3").await.is_err());
    store.heal();
    store.hang();
    let mut late = Box::pin(put(&store, "a", "4"));
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut late).await.is_err());
    assert_eq!(memory.get("a").await.unwrap(), Some("2".into()));
    store.heal();
    late.await.unwrap();
    assert_eq!(memory.get("a").await.unwrap(), Some("4".into()));
}

#[tokio::test]
async fn the_ceiling_is_kept_and_damage_is_not_taken_for_none() {
    let memory = MemMeta::new();
    let ceiling = StoredCeiling::new(Arc::new(memory.clone()));
    assert_eq!(ceiling.load().await.unwrap(), Hlc::ZERO);
    ceiling.store(Hlc::new(77)).await.unwrap();
    assert_eq!(ceiling.load().await.unwrap(), Hlc::new(77));
    memory.commit(vec![MetaChange::put("clock/ceiling", Bytes::from_static(b"short"))]).await.unwrap();
    assert_eq!(ceiling.load().await.unwrap_err().kind(), MetaErrorKind::Corrupt);
}
