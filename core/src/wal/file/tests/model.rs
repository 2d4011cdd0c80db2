//! The log against a small model: appends, reads, trims, failing operations, full disks, kills and power losses in
//! any order, with segments so small that rollover and recycling happen all the time; and a loss of power after each
//! single operation of the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::rig::{DIR, PARTITIONS, Rig};
use crate::disk::{CrashImages, Disk, DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::StorageErrorKind;
use crate::id::{ClusterId, GroupSequence, Lsn, Offset, PartitionId};
use crate::random::Random;
use crate::record::Group;
use crate::trials::Seeds;
use crate::wal::WalStorage;

const STEPS: u32 = 80;

/// What must be true of the log.
#[derive(Clone, Default)]
struct Model {
    /// Acknowledged groups, trimmed ones included.
    groups: Vec<Arc<Group>>,
    /// A group that is being written, or that failed and may still be there after a crash, until the tail was repaired.
    unknown: Option<Arc<Group>>,
    /// Where the log begins at least.
    first: Lsn,
    /// Up to where a trim was asked for.
    asked: Lsn,
}

impl Model {
    fn end(&self) -> Lsn {
        self.groups.last().map_or(Lsn::ZERO, |last| last.next_lsn())
    }

    fn retained(&self, from: Lsn) -> Vec<Arc<Group>> {
        self.groups.iter().filter(|group| group.next_lsn() > from).cloned().collect()
    }

    /// The log was opened from a position after a crash: it holds what was acknowledged, and at most the one group of
    /// which nothing was known, whole.
    async fn reopened(&mut self, rig: &mut Rig, from: Lsn) {
        let known = self.groups.last().map_or(GroupSequence::ZERO, |last| last.sequence().next());
        let unknown = self.unknown.take();
        if rig.next_group != known {
            let group = unknown.expect("a group that nobody appended");
            assert_eq!(rig.next_group, group.sequence().next());
            self.groups.push(group);
        }
        let first = rig.storage.bounds().first;
        let shown: Vec<(Lsn, Lsn)> = self
            .retained(from.max(first))
            .iter()
            .map(|group| (group.first_lsn(), group.next_lsn()))
            .collect();
        assert_eq!(rig.shown, shown, "from {from}");
        rig.offsets = offsets_after(&self.groups);
        self.first = first.max(self.first);
        assert_eq!(rig.read_all(first).await.expect("readable"), self.retained(first));
        self.demand_bounds(rig);
    }

    fn demand_bounds(&self, rig: &Rig) {
        let bounds = rig.storage.bounds();
        let retained = self.retained(bounds.first);
        assert!(bounds.first >= self.first, "what was trimmed stays trimmed");
        assert!(bounds.first <= self.asked, "nobody asked to trim up to {}", bounds.first);
        assert_eq!(bounds.next, self.end());
        assert_eq!(bounds.records, retained.iter().map(|group| group.records()).sum::<u64>());
        assert_eq!(bounds.retained_bytes, retained.iter().map(|group| group.stored_bytes()).sum::<u64>());
        assert!(bounds.physical_bytes >= bounds.retained_bytes);
        let trimmed: Vec<Arc<Group>> =
            self.groups.iter().filter(|group| group.next_lsn() <= bounds.first).cloned().collect();
        let origin = ClusterId::new("here").expect("name").tag();
        let ends: BTreeMap<usize, Offset> = (0..PARTITIONS)
            .map(|at| (usize::from(at), rig.storage.trimmed_end(origin, PartitionId::new(at))))
            .collect();
        assert_eq!(ends, offsets_after(&trimmed).into_iter().enumerate().collect());
    }
}

fn offsets_after(groups: &[Arc<Group>]) -> [Offset; PARTITIONS as usize] {
    let mut offsets = [Offset::ZERO; PARTITIONS as usize];
    let runs = groups.iter().flat_map(|group| group.blocks()).flat_map(|framed| framed.block.runs());
    for run in runs {
        offsets[run.partition.index()] = run.end();
    }
    offsets
}

/// A log, and what is known of it. The model is never held while the disk is at work: what is noted with an image of the
/// disk is a copy of it.
struct Run {
    random: Random,
    disk: MemDisk,
    faults: DiskFaults,
    rig: Rig,
    model: Arc<Mutex<Model>>,
    recycled: bool,
    /// A crash came while a file was being filled.
    cut_short: bool,
    /// A segment began in a file that was filled ahead.
    filled: bool,
}

impl Run {
    fn new(
        seed: u64,
        wrap: impl FnOnce(Arc<dyn Disk>, &MemDisk, Arc<Mutex<Model>>) -> Arc<dyn Disk>,
    ) -> Self {
        let (disk, faults, model) =
            (MemDisk::new(), DiskFaults::from_seed(seed), Arc::<Mutex<Model>>::default());
        let faulty = Arc::new(FaultyDisk::over_memory(disk.clone(), faults.clone()));
        let rig = Rig::open(wrap(faulty, &disk, model.clone())).expect("a new log opens");
        let random = Random::from_seed(seed);
        Self { random, disk, faults, rig, model, recycled: false, cut_short: false, filled: false }
    }

    async fn step(&mut self) {
        match self.random.below(10) {
            0 => self.crash().await,
            _ => self.step_without_crash().await,
        }
    }

    async fn step_without_crash(&mut self) {
        match self.random.below(90) {
            0..50 => self.append(),
            50..62 => self.read().await,
            62..78 => self.trim().await,
            _ => self.fail_something(),
        }
        self.model.lock().demand_bounds(&self.rig);
        self.recycled |= self.rig.storage.recycles();
        self.filled |= self.rig.storage.has_room() && !self.rig.storage.recycles();
    }

    fn append(&mut self) {
        let records = 1 + self.random.below(3) as usize;
        let bytes = self.random.below(500) as usize;
        let group = self.rig.group(records, bytes);
        let before = self.rig.next_group;
        self.model.lock().unknown = Some(Arc::new(group.clone()));
        if self.rig.append_group(group).is_ok() {
            let mut model = self.model.lock();
            let group = model.unknown.take();
            model.groups.extend(group);
        } else {
            assert_eq!(self.rig.next_group, before);
            self.repair();
        }
    }

    /// As the committer does: nothing is appended before the tail is consistent again.
    fn repair(&mut self) {
        let repaired = (0..3).any(|_| self.rig.reconcile().is_ok());
        if !repaired {
            self.faults.heal();
            self.rig.reconcile().expect("a disk without faults is repaired");
        }
        self.model.lock().unknown = None;
    }

    fn any_position(&self) -> Lsn {
        Lsn::new(self.random.below(self.model.lock().end().get() + 2))
    }

    async fn read(&mut self) {
        let from = self.any_position();
        let first = self.rig.storage.bounds().first;
        match self.rig.read_all(from).await {
            Ok(groups) => {
                assert!(from >= first, "read from {from}, and the log begins at {first}");
                assert_eq!(groups, self.model.lock().retained(from), "from {from}");
            }
            Err(error) if error.kind() == StorageErrorKind::Trimmed => assert!(from < first, "{error}"),
            // A failure that was ordered.
            Err(error) => assert_eq!(error.kind(), StorageErrorKind::Io, "{error}"),
        }
    }

    async fn trim(&mut self) {
        let before = self.any_position();
        let old = self.rig.storage.bounds().first;
        let promised = self.rig.storage.bounds_after_trim(before);
        {
            let mut model = self.model.lock();
            model.asked = model.asked.max(before);
        }
        if self.rig.storage.trim(before).await.is_ok() {
            let bounds = self.rig.storage.bounds();
            assert_eq!(
                (bounds.first, bounds.records, bounds.retained_bytes),
                (promised.first, promised.records, promised.retained_bytes)
            );
            assert!(bounds.first <= before.max(old), "nothing at or above {before} goes");
            self.model.lock().first = bounds.first;
        } else {
            assert_eq!(self.rig.storage.bounds().first, old, "a trim that failed has trimmed nothing");
        }
    }

    fn fail_something(&mut self) {
        let operations = [
            DiskOperation::Write,
            DiskOperation::Sync,
            DiskOperation::SyncDir,
            DiskOperation::Rename,
            DiskOperation::Remove,
            DiskOperation::Open,
            DiskOperation::Read,
        ];
        match self.random.below(9) {
            7 => self.faults.fill(),
            8 => self.faults.heal(),
            which => self.faults.fail_nth(operations[which as usize], 1 + self.random.below(3)),
        }
    }

    fn names(&self, ending: &str) -> usize {
        let names = self.disk.list(Path::new(DIR)).expect("a disk in memory lists its names");
        names.iter().filter(|name| name.ends_with(ending)).count()
    }

    async fn crash(&mut self) {
        self.faults.heal();
        self.cut_short |= self.names(".filling") > 0;
        self.disk =
            if self.random.chance(0.7) { self.disk.crash(self.random.id()) } else { self.disk.kill() };
        let from = self.any_position();
        let faulty = FaultyDisk::over_memory(self.disk.clone(), self.faults.clone());
        self.rig = Rig::open_from(Arc::new(faulty), from).expect("a crash leaves a log that opens");
        let mut model = self.model.lock().clone();
        model.reopened(&mut self.rig, from).await;
        *self.model.lock() = model;
    }
}

#[tokio::test]
async fn f28_the_log_agrees_with_a_small_model_through_trims_failures_and_crashes() {
    let claim = "f28_the_log_agrees_with_a_small_model_through_trims_failures_and_crashes";
    let mut seeds = Seeds::new(claim, Duration::from_secs(2), 0.3);
    let (mut recycled, mut filled, mut cut_short) = (0, 0, 0);
    while let Some(seed) = seeds.next() {
        let mut run = Run::new(seed, |disk, _, _| disk);
        for _ in 0..STEPS {
            run.step().await;
        }
        run.crash().await;
        recycled += u64::from(run.recycled);
        filled += u64::from(run.filled);
        cut_short += u64::from(run.cut_short);
        seeds.did(u64::from(STEPS));
    }
    let count = seeds.taken();
    for (what, runs) in
        [("recycled", recycled), ("filled ahead", filled), ("cut short by a crash", cut_short)]
    {
        assert!(count < 20 || runs > count / 4, "files were {what} in {runs} of {count} runs only");
    }
}

#[tokio::test]
async fn f27_whatever_a_crash_leaves_after_any_operation_of_the_disk_is_a_log_with_all_that_was_acknowledged()
{
    let claim =
        "f27_whatever_a_crash_leaves_after_any_operation_of_the_disk_is_a_log_with_all_that_was_acknowledged";
    let mut seeds = Seeds::new(claim, Duration::from_secs(2), 0.3);
    let (mut moments, mut landed) = (0, 0);
    while let Some(seed) = seeds.next() {
        let mut images = None;
        let mut run = Run::new(seed, |inner, disk, model| {
            let recording = Arc::new(CrashImages::over(inner, disk, move || model.lock().clone()));
            recording.record(true);
            images = Some(recording.clone());
            recording
        });
        for _ in 0..60 {
            run.step_without_crash().await;
        }
        let images = images.expect("a log was opened on it").take();
        seeds.did(images.len() as u64);
        for (at, (image, mut model)) in images.into_iter().enumerate() {
            println!("moment {at}");
            // The process alone may end as well: then everything is seen, and little of it is durable.
            let found = if run.random.chance(0.7) { image.crash(run.random.id()) } else { image.kill() };
            let from = Lsn::new(run.random.below(model.end().get() + 2));
            let opened = Rig::open_from(Arc::new(found.clone()), from);
            let mut rig = opened.expect("a crash leaves a log that opens");
            let before = model.groups.len();
            model.reopened(&mut rig, from).await;
            landed += u64::from(model.groups.len() > before);
            // It goes on, also after a second crash.
            let group = rig.group(1, 40);
            rig.append_group(group.clone()).expect("the log goes on");
            model.groups.push(Arc::new(group));
            let mut rig = Rig::open(Arc::new(found.crash(run.random.id()))).expect("opens again");
            model.reopened(&mut rig, Lsn::ZERO).await;
            moments += 1;
        }
    }
    println!("{moments} moments; the group that nobody was told about was there after {landed} of them");
    assert!(moments > 150 && landed > 5, "{moments} moments, {landed}");
}
