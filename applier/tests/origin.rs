//! [`MemOrigin`]: a cluster that only commits, for the tests of this crate: what it has can be cut into any pages.

use bytes::Bytes;

use tidewire_core::causal::VersionVector;
use tidewire_core::id::{ClusterId, Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId};
use tidewire_core::record::{Block, BlockBuilder, Mutation};
use tidewire_core::transport::marks::encode_offsets;
use tidewire_core::transport::pages::{Page, PageGroup};
use tidewire_core::transport::wire::Heartbeat;

/// The history of one origin.
#[derive(Clone, Debug)]
pub(crate) struct MemOrigin {
    /// Its name.
    pub(crate) cluster: ClusterId,
    /// The incarnation of its log.
    pub(crate) incarnation: Incarnation,
    /// The HLC it gave out last.
    pub(crate) hlc: Hlc,
    /// What its next write may have seen.
    pub(crate) observed: VersionVector,
    /// Bytes of the value of each record.
    pub(crate) value_bytes: usize,
    groups: Vec<PageGroup>,
    next: Vec<Offset>,
}

impl MemOrigin {
    /// An empty log. The clock stands at one second after 1970.
    pub(crate) fn new(cluster: &ClusterId, partitions: u16) -> Self {
        Self {
            cluster: cluster.clone(),
            incarnation: Incarnation::new(cluster.tag().get() ^ 0x5a5a),
            hlc: Hlc::from_millis(1_000),
            observed: VersionVector::default(),
            value_bytes: 8,
            groups: Vec::new(),
            next: vec![Offset::ZERO; usize::from(partitions)],
        }
    }

    /// Its tag.
    pub(crate) fn origin(&self) -> OriginTag {
        self.cluster.tag()
    }

    fn partitions(&self) -> u16 {
        u16::try_from(self.next.len()).expect("partitions are counted in 16 bits")
    }

    /// Commits one group: a block for each list of keys, each key set once.
    pub(crate) fn commit(&mut self, blocks: &[&[&str]]) {
        let deps = self.observed.clone();
        let blocks = blocks.iter().map(|keys| self.block(keys, &deps)).collect();
        self.hlc = self.hlc.next();
        self.groups.push(PageGroup { closed: self.hlc, blocks });
    }

    fn block(&mut self, keys: &[&str], deps: &VersionVector) -> Block {
        let mut builder = BlockBuilder::new(self.origin(), self.partitions(), deps.len(), 1024);
        for key in keys {
            let partition = PartitionId::of(key.as_bytes(), self.partitions());
            let offset = &mut self.next[partition.index()];
            self.hlc = self.hlc.next();
            let mutation = Mutation::set(Bytes::copy_from_slice(key.as_bytes()), vec![7; self.value_bytes]);
            builder.push(&mutation, partition, *offset, self.hlc, false);
            *offset = offset.next();
        }
        self.observed.raise(self.origin(), self.hlc);
        builder.seal(deps, self.incarnation)
    }

    /// Gives up on the next `count` offsets of a key's partition, as after a flush that failed.
    pub(crate) fn give_up(&mut self, key: &str, count: u64) {
        let partition = PartitionId::of(key.as_bytes(), self.partitions());
        self.next[partition.index()] = self.next[partition.index()].advanced(count);
    }

    /// Sees everything that another one has committed: later writes depend on it.
    pub(crate) fn see(&mut self, other: &Self) {
        self.observed.join(&other.observed);
        self.hlc = self.hlc.max(other.hlc);
    }

    /// How many groups it has.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Where its records end after the first `groups` groups, by partition.
    pub(crate) fn ends(&self, groups: usize) -> Vec<(PartitionId, Offset)> {
        let mut ends = vec![Offset::ZERO; self.next.len()];
        for run in self.groups[..groups].iter().flat_map(|group| &group.blocks).flat_map(Block::runs) {
            ends[run.partition.index()] = run.end();
        }
        (0..).map(PartitionId::new).zip(ends).collect()
    }

    /// How many of its groups lie below these ends, from the first on.
    pub(crate) fn groups_below(&self, covers: impl Fn(PartitionId, Offset) -> bool) -> usize {
        let whole = |group: &PageGroup| {
            group.blocks.iter().flat_map(Block::runs).all(|run| covers(run.partition, run.end()))
        };
        self.groups.iter().take_while(|group| whole(group)).count()
    }

    /// A page of the groups from `from` to before `to`.
    pub(crate) fn page(&self, id: PageId, from: usize, to: usize) -> Page {
        let groups = self.groups[from..to].to_vec();
        let touched = |partition: PartitionId| {
            groups
                .iter()
                .flat_map(|group| &group.blocks)
                .flat_map(Block::runs)
                .any(|run| run.partition == partition)
        };
        let marks = |end| self.ends(end).into_iter().filter(|(partition, _)| touched(*partition)).collect();
        let (after, through) = (marks(from), marks(to));
        Page { id, origin: self.origin(), incarnation: self.incarnation, after, groups, through }
    }

    /// A promise up to now.
    pub(crate) fn heartbeat(&mut self) -> Heartbeat {
        self.hlc = self.hlc.next();
        Heartbeat {
            origin: self.origin().get(),
            incarnation: self.incarnation.get(),
            closed: self.hlc.get(),
            tails: encode_offsets(&self.ends(self.len())),
            tail_bytes: 0,
            canary: false,
        }
    }
}
