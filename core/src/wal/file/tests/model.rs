//! The log against a small model: appends, reads, trims, failing operations, full disks, kills and power losses in
//! any order, with segments so small that rollover and recycling happen all the time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::rig::{DIR, PARTITIONS, Rig};
use crate::disk::{Disk, DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::StorageErrorKind;
use crate::id::{ClusterId, GroupSequence, Lsn, Offset, PartitionId};
use crate::random::Random;
use crate::record::Group;
use crate::wal::WalStorage;

/// Seeds of one run; `TIDEWIRE_MODEL_SEEDS` asks for more.
const SEEDS: u64 = 300;
const STEPS: u32 = 80;

/// What must be true of the log.
struct Model {
    /// Acknowledged groups, trimmed ones included.
    groups: Vec<Arc<Group>>,
    /// A group that failed and may still be there after a crash, until the tail was repaired.
    unknown: Option<Arc<Group>>,
    /// Where the log begins at least.
    first: Lsn,
    /// Up to where a trim was asked for.
    asked: Lsn,
}

struct Run {
    seed: u64,
    random: Random,
    disk: MemDisk,
    faults: DiskFaults,
    rig: Rig,
    model: Model,
    recycled: bool,
    /// A crash came while a file was being filled.
    cut_short: bool,
    /// A segment began in a file that was filled ahead.
    filled: bool,
}

fn offsets_after(groups: &[Arc<Group>]) -> [Offset; PARTITIONS as usize] {
    let mut offsets = [Offset::ZERO; PARTITIONS as usize];
    let runs = groups.iter().flat_map(|group| group.blocks()).flat_map(|framed| framed.block.runs());
    for run in runs {
        offsets[run.partition.index()] = run.end();
    }
    offsets
}

impl Run {
    fn new(seed: u64) -> Self {
        let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(seed));
        let faulty = FaultyDisk::over_memory(disk.clone(), faults.clone());
        let rig = Rig::open(Arc::new(faulty)).expect("a new log opens");
        let model = Model { groups: Vec::new(), unknown: None, first: Lsn::ZERO, asked: Lsn::ZERO };
        Self {
            seed,
            random: Random::from_seed(seed),
            disk,
            faults,
            rig,
            model,
            recycled: false,
            cut_short: false,
            filled: false,
        }
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..50 => self.append(),
            50..62 => self.read().await,
            62..78 => self.trim().await,
            78..90 => self.fail_something(),
            _ => self.crash().await,
        }
        self.check_bounds();
    }

    fn append(&mut self) {
        let records = 1 + self.random.below(3) as usize;
        let bytes = self.random.below(500) as usize;
        let group = self.rig.group(records, bytes);
        let (kept, before) = (Arc::new(group.clone()), self.rig.next_group);
        match self.rig.append_group(group) {
            Ok(_) => self.model.groups.push(kept),
            Err(_) => {
                assert_eq!(self.rig.next_group, before);
                self.model.unknown = Some(kept);
                self.repair();
            }
        }
    }

    /// As the committer does: nothing is appended before the tail is consistent again.
    fn repair(&mut self) {
        for _ in 0..3 {
            if self.rig.reconcile().is_ok() {
                self.model.unknown = None;
                return;
            }
        }
        self.faults.heal();
        self.rig.reconcile().expect("a disk without faults is repaired");
        self.model.unknown = None;
    }

    fn end(&self) -> Lsn {
        self.model.groups.last().map_or(Lsn::ZERO, |last| last.next_lsn())
    }

    fn retained(&self, from: Lsn) -> Vec<Arc<Group>> {
        self.model.groups.iter().filter(|group| group.next_lsn() > from).cloned().collect()
    }

    async fn read(&mut self) {
        let from = Lsn::new(self.random.below(self.end().get() + 2));
        let first = self.rig.storage.bounds().first;
        match self.rig.read_all(from).await {
            Ok(groups) => {
                assert!(from >= first, "read from {from}, and the log begins at {first}");
                assert_eq!(groups, self.retained(from), "from {from}");
            }
            Err(error) if error.kind() == StorageErrorKind::Trimmed => assert!(from < first, "{error}"),
            // A failure that was ordered.
            Err(error) => assert_eq!(error.kind(), StorageErrorKind::Io, "{error}"),
        }
    }

    async fn trim(&mut self) {
        let before = Lsn::new(self.random.below(self.end().get() + 2));
        let old = self.rig.storage.bounds().first;
        let promised = self.rig.storage.bounds_after_trim(before);
        self.model.asked = self.model.asked.max(before);
        if self.rig.storage.trim(before).await.is_ok() {
            let bounds = self.rig.storage.bounds();
            assert_eq!(
                (bounds.first, bounds.records, bounds.retained_bytes),
                (promised.first, promised.records, promised.retained_bytes)
            );
            assert!(bounds.first <= before.max(old), "nothing at or above {before} goes");
            self.model.first = bounds.first;
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
        let from = Lsn::new(self.random.below(self.end().get() + 2));
        let faulty = FaultyDisk::over_memory(self.disk.clone(), self.faults.clone());
        self.rig = Rig::open_from(Arc::new(faulty), from)
            .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let known = self.model.groups.last().map_or(GroupSequence::ZERO, |last| last.sequence().next());
        if self.rig.next_group != known {
            let group = self.model.unknown.take().expect("a group that nobody appended");
            assert_eq!(self.rig.next_group, group.sequence().next());
            self.model.groups.push(group);
        }
        self.model.unknown = None;
        let shown: Vec<(Lsn, Lsn)> = self
            .retained(from.max(self.rig.storage.bounds().first))
            .iter()
            .map(|group| (group.first_lsn(), group.next_lsn()))
            .collect();
        assert_eq!(self.rig.shown, shown, "from {from}");
        self.rig.offsets = offsets_after(&self.model.groups);
        self.model.first = self.rig.storage.bounds().first.max(self.model.first);
        let all = self.rig.read_all(self.rig.storage.bounds().first).await.expect("readable");
        assert_eq!(all, self.retained(self.rig.storage.bounds().first));
    }

    fn check_bounds(&mut self) {
        let bounds = self.rig.storage.bounds();
        let retained = self.retained(bounds.first);
        assert!(bounds.first >= self.model.first, "what was trimmed stays trimmed");
        assert!(bounds.first <= self.model.asked, "nobody asked to trim up to {}", bounds.first);
        assert_eq!(bounds.next, self.end());
        assert_eq!(bounds.records, retained.iter().map(|group| group.records()).sum::<u64>());
        assert_eq!(bounds.retained_bytes, retained.iter().map(|group| group.stored_bytes()).sum::<u64>());
        assert!(bounds.physical_bytes >= bounds.retained_bytes);
        let trimmed: Vec<Arc<Group>> =
            self.model.groups.iter().filter(|group| group.next_lsn() <= bounds.first).cloned().collect();
        let origin = ClusterId::new("here").expect("name").tag();
        let ends: BTreeMap<usize, Offset> = (0..PARTITIONS)
            .map(|at| (usize::from(at), self.rig.storage.trimmed_end(origin, PartitionId::new(at))))
            .collect();
        assert_eq!(ends, offsets_after(&trimmed).into_iter().enumerate().collect());
        self.recycled |= self.rig.storage.recycles();
        self.filled |= self.rig.storage.has_room() && !self.rig.storage.recycles();
    }
}

#[tokio::test]
async fn f28_the_log_agrees_with_a_small_model_through_trims_failures_and_crashes() {
    let seeds = std::env::var("TIDEWIRE_MODEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let (mut recycled, mut filled, mut cut_short) = (0, 0, 0);
    for seed in 0..seeds.unwrap_or(SEEDS) {
        // Shown when an assertion fails.
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step().await;
        }
        run.crash().await;
        run.check_bounds();
        recycled += u64::from(run.recycled);
        filled += u64::from(run.filled);
        cut_short += u64::from(run.cut_short);
    }
    assert!(recycled > SEEDS / 4, "segments were recycled in {recycled} runs only");
    assert!(filled > SEEDS / 4, "segments were filled ahead in {filled} runs only");
    assert!(cut_short > SEEDS / 4, "crashes cut a fill short in {cut_short} runs only");
}
