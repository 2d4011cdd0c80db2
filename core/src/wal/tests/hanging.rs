//! A disk that hangs for real: threads block in it, and nothing else does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::rig::{PARTITIONS, cluster, writer_over};
use crate::disk::{DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::id::{Incarnation, Lsn, TreeName};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::record::{MergeMode, Mutation};
use crate::tasks::{Tasks, Threads};
use crate::wal::file::{FileStorage, Manifest};
use crate::wal::{CommitRunner, WalStorage, Writer};

const DEADLINE: Duration = Duration::from_millis(400);

/// A log on a disk that may hang.
fn log_on(disk: &MemDisk, faults: &DiskFaults, name: &str, tasks: &Tasks) -> Arc<FileStorage> {
    let manifest = Manifest {
        incarnation: Incarnation::new(77),
        cluster: cluster(),
        tree: TreeName::new("t").expect("a name"),
        partitions: PARTITIONS,
        merge: MergeMode::LastWriterWins,
        origins: Default::default(),
    };
    let disk = Arc::new(FaultyDisk::new(Arc::new(disk.clone()), faults.clone()));
    let (dir, limits) = (Path::new("/data").join(name), Limits::default());
    let opened = FileStorage::open(disk, &dir, manifest, limits, tasks.clone(), Lsn::ZERO, &mut |_| {});
    opened.expect("a new log opens").storage
}

async fn put(writer: &Writer, key: String) -> Result<(), crate::error::Error> {
    let put = timeout(Duration::from_secs(20), async { writer.append(&[Mutation::set(key, "v")]).await });
    put.await.expect("every write is answered").map(drop)
}

async fn works_again(writer: &Writer) {
    let healed = async {
        while put(writer, "again".to_owned()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), healed).await.expect("writes work once the disk answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_a_disk_that_hangs_fails_writes_at_the_deadline_in_every_tree_and_they_work_again_when_it_answers()
 {
    let (memory, faults, tasks) = (MemDisk::new(), DiskFaults::from_seed(1), Tasks::new(Threads::Spawn));
    let (runner, metrics) = (CommitRunner::new(tasks.clone()), Metrics::default());
    let limits = Limits { commit_deadline: DEADLINE, ..Limits::default() };
    let (mut writers, mut logs) = (Vec::new(), Vec::new());
    for name in ["a", "b", "c", "d"] {
        let log = log_on(&memory, &faults, name, &tasks);
        let (writer, ..) = writer_over(log.clone(), limits.clone(), runner.clone(), &tasks, &metrics).await;
        // The second one commits in the caller's thread: a hang then blocks a worker of the runtime.
        for round in 0..2 {
            put(&writer, format!("before {round}")).await.expect("a sound disk");
        }
        writers.push(writer);
        logs.push(log);
    }
    faults.hang();
    let (began, before) = (Instant::now(), faults.count(DiskOperation::Write));
    let mut puts = Vec::new();
    for wave in 0..3 {
        // The first in each tree is alone, and may commit in its caller's thread.
        for writer in &writers {
            let (writer, (told, answer)) = (writer.clone(), tokio::sync::oneshot::channel());
            tasks.spawn("put", async move { drop(told.send(put(&writer, format!("hangs {wave}")).await)) });
            puts.push(answer);
        }
        tokio::time::sleep(DEADLINE / 20).await;
    }
    // A caller that lent its thread is stuck with it, and there is never more than one on two workers.
    let mut stuck = Vec::new();
    for mut answer in puts {
        match timeout(DEADLINE * 4, &mut answer).await {
            Ok(answered) => drop(answered.expect("the task ends").expect_err("the disk hangs")),
            Err(_) => stuck.push(answer),
        }
    }
    assert!(stuck.len() <= 1, "{} callers are stuck", stuck.len());
    assert!(began.elapsed() < DEADLINE * 8, "{:?}", began.elapsed());
    for writer in &writers {
        let began = Instant::now();
        put(writer, "latched".to_owned()).await.expect_err("fails at once");
        assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    }
    tokio::time::sleep(DEADLINE * 8).await;
    let calls = faults.count(DiskOperation::Write) - before;
    assert!(calls <= 2 * writers.len() as u64, "{calls} threads hang in the disk: two for each tree at most");
    faults.heal();
    for answer in stuck {
        answer.await.expect("the task ends").expect_err("it was given up on");
    }
    for (writer, log) in writers.iter().zip(&logs) {
        works_again(writer).await;
        let groups = log.read(Lsn::ZERO, 1 << 20).await.expect("readable");
        let first = groups.first().map(|group| group.first_lsn());
        assert_eq!((first, log.bounds().records), (Some(Lsn::ZERO), 3), "two before, and one after");
    }
    tasks.abort_and_join().await;
}
