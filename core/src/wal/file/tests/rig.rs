//! [`Rig`]: a log on a disk in memory, filled group by group.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::causal::VersionVector;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::id::{ClusterId, GroupSequence, Hlc, Incarnation, Lsn, Offset, PartitionId, TreeName};
use crate::limits::Limits;
use crate::record::{BlockBuilder, Frame, FramedBlock, Group, MergeMode, Mutation};
use crate::tasks::{Tasks, Threads};
use crate::wal::file::{FileStorage, Manifest};
use crate::wal::{Completion, WalStorage};

pub(super) const DIR: &str = "/data/trees/t/wal";
pub(super) const PARTITIONS: u16 = 2;

/// An open log, and what its writer would know.
pub(super) struct Rig {
    pub(super) storage: Arc<FileStorage>,
    pub(super) next_lsn: Lsn,
    pub(super) next_group: GroupSequence,
    /// Groups that opening showed, by first and next position.
    pub(super) shown: Vec<(Lsn, Lsn)>,
    pub(super) offsets: [Offset; PARTITIONS as usize],
    hlc: Hlc,
}

pub(super) fn limits() -> Limits {
    Limits { segment_bytes_min: 1024, segment_bytes_max: 2048, fill_slice_bytes: 700, ..Limits::tiny() }
}

fn manifest(incarnation: u64) -> Manifest {
    Manifest {
        incarnation: Incarnation::new(incarnation),
        cluster: ClusterId::new("here").expect("name"),
        tree: TreeName::new("t").expect("name"),
        partitions: PARTITIONS,
        merge: MergeMode::LastWriterWins,
        origins: Default::default(),
    }
}

impl Rig {
    pub(super) fn open(disk: Arc<dyn Disk>) -> Result<Self, StorageError> {
        Self::open_from(disk, Lsn::ZERO)
    }

    pub(super) fn open_from(disk: Arc<dyn Disk>, from: Lsn) -> Result<Self, StorageError> {
        Self::open_with(disk, from, limits(), Threads::Inline)
    }

    /// A log that fills ahead on threads of its own.
    pub(super) fn open_threaded(disk: Arc<dyn Disk>) -> Result<Self, StorageError> {
        Self::open_with(disk, Lsn::ZERO, limits(), Threads::Spawn)
    }

    /// A log that fills nothing ahead.
    pub(super) fn open_growing(disk: Arc<dyn Disk>) -> Result<Self, StorageError> {
        let limits = Limits { fill_slice_bytes: 0, ..limits() };
        Self::open_with(disk, Lsn::ZERO, limits, Threads::Inline)
    }

    fn open_with(
        disk: Arc<dyn Disk>,
        from: Lsn,
        limits: Limits,
        threads: Threads,
    ) -> Result<Self, StorageError> {
        let tasks = Tasks::new(threads);
        let (mut shown, mut hlc) = (Vec::new(), Hlc::new(1_000));
        let mut offsets = [Offset::ZERO; PARTITIONS as usize];
        let opened =
            FileStorage::open(disk, Path::new(DIR), manifest(77), limits, tasks, from, &mut |group| {
                shown.push((group.first_lsn(), group.next_lsn()));
                for block in group.blocks().iter().map(|framed| &framed.block) {
                    hlc = hlc.max(block.last_hlc());
                    for run in block.runs() {
                        offsets[run.partition.index()] = run.end();
                    }
                }
            })?;
        Ok(Self {
            storage: opened.storage,
            next_lsn: opened.next_lsn,
            next_group: opened.next_group,
            shown,
            offsets,
            hlc,
        })
    }

    /// A group that would come next, of records with values of so many bytes.
    pub(super) fn group(&mut self, records: usize, bytes: usize) -> Group {
        let key = |at| format!("{}/{at}", self.next_group);
        let mutations: Vec<Mutation> =
            (0..records).map(|at| Mutation::set(key(at), vec![7; bytes])).collect();
        self.group_of(&mutations)
    }

    fn group_of(&mut self, mutations: &[Mutation]) -> Group {
        let origin = ClusterId::new("here").expect("name").tag();
        let mut builder = BlockBuilder::new(origin, PARTITIONS, 0, 500);
        for mutation in mutations {
            let partition = PartitionId::of(&mutation.key, PARTITIONS);
            self.hlc = Hlc::new(self.hlc.get() + 1);
            builder.push(mutation, partition, self.offsets[partition.index()], self.hlc, false);
            self.offsets[partition.index()] = self.offsets[partition.index()].next();
        }
        let block = builder.seal(&VersionVector::default(), Incarnation::new(77));
        let frame = Frame {
            sequence: self.next_group,
            index: 0,
            frames: 1,
            length: u32::try_from(block.bytes().len()).expect("small"),
            first_lsn: self.next_lsn,
            closed: self.hlc,
            skip: 0,
        };
        Group::new(vec![FramedBlock { frame, block }])
    }

    /// Appends a group as the committer does: positions that were given out are never given out again, the number of a
    /// group that failed is.
    pub(super) fn append(&mut self, records: usize, bytes: usize) -> Result<(Lsn, Lsn), StorageError> {
        let group = self.group(records, bytes);
        self.append_group(group)
    }

    /// Appends records of one partition.
    pub(super) fn append_to(
        &mut self,
        partition: PartitionId,
        records: usize,
    ) -> Result<(Lsn, Lsn), StorageError> {
        let keys = (0..).map(|at| format!("{}/{at}", self.next_group));
        let keys = keys.filter(|key| PartitionId::of(key.as_bytes(), PARTITIONS) == partition);
        let mutations: Vec<Mutation> =
            keys.take(records).map(|key| Mutation::set(key, vec![7; 60])).collect();
        let group = self.group_of(&mutations);
        self.append_group(group)
    }

    /// Appends the delete of a range.
    pub(super) fn append_range(
        &mut self,
        from: &'static str,
        to: &'static str,
    ) -> Result<(Lsn, Lsn), StorageError> {
        let group = self.group_of(&[Mutation::delete_range(from, to)]);
        self.append_group(group)
    }

    /// Appends a group that [`group`](Self::group) made.
    pub(super) fn append_group(&mut self, group: Group) -> Result<(Lsn, Lsn), StorageError> {
        let place = (group.first_lsn(), group.next_lsn());
        self.next_lsn = group.next_lsn();
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        self.storage.append(Arc::new(group), Completion::new(move |result| *told.lock() = Some(result)));
        let answer = answer.lock().take().expect("files answer before they return");
        answer.map(|()| {
            self.next_group = self.next_group.next();
            place
        })
    }

    /// Has the tail made consistent, as a committer does after a failed append.
    pub(super) fn reconcile(&self) -> Result<(), StorageError> {
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        self.storage.reconcile(Completion::new(move |result| *told.lock() = Some(result)));
        answer.lock().take().expect("files answer before they return")
    }

    /// Every group from a position to the end, as a follower reads them.
    pub(super) async fn read_all(&self, from: Lsn) -> Result<Vec<Arc<Group>>, StorageError> {
        let (mut groups, mut at) = (Vec::new(), from);
        loop {
            let read = self.storage.read(at, 700).await?;
            match read.last() {
                Some(last) => at = last.next_lsn(),
                None => return Ok(groups),
            }
            groups.extend(read);
        }
    }
}
