//! [`OpenPage`]: the page that is being filled. Pure.

use std::collections::BTreeMap;

use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId};
use tidewire_core::record::Block;
use tidewire_core::transport::pages::{Page, PageGroup};

/// Whole groups of the local origin that leave together.
#[derive(Debug)]
pub(crate) struct OpenPage {
    groups: Vec<PageGroup>,
    ranges: BTreeMap<PartitionId, (Offset, Offset)>,
    bytes: u64,
    /// Nothing more fits.
    pub(crate) full: bool,
    /// Where the log goes on after it.
    pub(crate) cursor_after: Cursor,
}

impl OpenPage {
    /// An empty page, to be filled at once.
    pub(crate) fn new(cursor_after: Cursor) -> Self {
        Self { groups: Vec::new(), ranges: BTreeMap::new(), bytes: 0, full: false, cursor_after }
    }

    /// Adds a group, and moves `stands`, which is where coverage by the stream of pages ends in each partition.
    pub(crate) fn add(
        &mut self,
        group: PageGroup,
        cursor_after: Cursor,
        stands: &mut BTreeMap<PartitionId, Offset>,
    ) {
        for run in group.blocks.iter().flat_map(Block::runs) {
            let stand = stands.entry(run.partition).or_insert(Offset::ZERO);
            let range = self.ranges.entry(run.partition).or_insert(((*stand).min(run.first), *stand));
            *stand = (*stand).max(run.end());
            range.1 = *stand;
        }
        self.bytes += group.blocks.iter().map(|block| block.bytes().len() as u64).sum::<u64>();
        self.groups.push(group);
        self.cursor_after = cursor_after;
    }

    /// Bytes of its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The HLC of its first record.
    pub(crate) fn first_hlc(&self) -> Hlc {
        self.groups.first().and_then(|group| group.blocks.first()).map_or(Hlc::ZERO, Block::first_hlc)
    }

    /// The page, with its number.
    pub(crate) fn into_page(self, id: PageId, origin: OriginTag, incarnation: Incarnation) -> Page {
        let after = self.ranges.iter().map(|(partition, (after, _))| (*partition, *after)).collect();
        let through = self.ranges.iter().map(|(partition, (_, through))| (*partition, *through)).collect();
        Page { id, origin, incarnation, after, groups: self.groups, through }
    }
}
