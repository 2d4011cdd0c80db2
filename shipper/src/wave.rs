//! [`Wave`]: the pages that are being filled and leave together. Pure.
//!
//! A page is of one origin, and pages keep the order of the log: what a record depends on is in front of it or with the
//! peer already, so nothing that the peer holds back waits for what stands behind it in the same stream.

use std::collections::BTreeMap;

use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId};
use tidewire_core::record::Block;
use tidewire_core::transport::pages::{Page, PageGroup};

/// Whole groups of one origin.
#[derive(Debug)]
pub(crate) struct OpenPage {
    /// Whose they are.
    pub(crate) origin: OriginTag,
    groups: Vec<PageGroup>,
    ranges: BTreeMap<PartitionId, (Offset, Offset)>,
    /// Where the log goes on after everything that is whole with this page.
    pub(crate) cursor_after: Cursor,
}

/// Pages that leave together.
#[derive(Debug)]
pub(crate) struct Wave {
    pages: Vec<OpenPage>,
    bytes: u64,
    /// Nothing more fits.
    pub(crate) full: bool,
}

impl Wave {
    /// An empty wave, to be filled at once.
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), bytes: 0, full: false }
    }

    /// Adds a group that lies at `before` in the log, and moves `stands`, which is where coverage by the stream of pages
    /// ends in each partition of its origin.
    pub(crate) fn add(
        &mut self,
        origin: OriginTag,
        group: PageGroup,
        before: Cursor,
        stands: &mut BTreeMap<PartitionId, Offset>,
    ) {
        self.bytes += group.blocks.iter().map(|block| block.bytes().len() as u64).sum::<u64>();
        let goes_on = |page: &&mut OpenPage| page.origin == origin && !page.is_beyond(&group);
        let page = match self.pages.last_mut().filter(goes_on) {
            Some(page) => page,
            None => {
                self.pages.push(OpenPage::new(origin, before));
                self.pages.last_mut().expect("it was just pushed")
            }
        };
        page.add(group, stands);
    }

    /// The log goes on at `cursor`, and everything before it is in a page or of no interest.
    pub(crate) fn pass(&mut self, cursor: Cursor) {
        if let Some(last) = self.pages.last_mut() {
            last.cursor_after = cursor;
        }
    }

    /// Bytes of its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The HLC of its first record.
    pub(crate) fn first_hlc(&self) -> Hlc {
        self.pages.first().map_or(Hlc::ZERO, OpenPage::first_hlc)
    }

    /// Its pages, in the order in which they leave.
    pub(crate) fn into_pages(self) -> Vec<OpenPage> {
        self.pages
    }
}

impl OpenPage {
    fn new(origin: OriginTag, cursor_after: Cursor) -> Self {
        Self { origin, groups: Vec::new(), ranges: BTreeMap::new(), cursor_after }
    }

    /// Whether a group begins before what is here: then it cannot be in the same page. A block whose first records are
    /// known otherwise does that.
    fn is_beyond(&self, group: &PageGroup) -> bool {
        let mut runs = group.blocks.iter().flat_map(Block::runs);
        runs.any(|run| self.ranges.get(&run.partition).is_some_and(|(_, end)| run.first < *end))
    }

    fn add(&mut self, group: PageGroup, stands: &mut BTreeMap<PartitionId, Offset>) {
        for run in group.blocks.iter().flat_map(Block::runs) {
            let stand = stands.entry(run.partition).or_insert(Offset::ZERO);
            let range = self.ranges.entry(run.partition).or_insert(((*stand).min(run.first), *stand));
            *stand = (*stand).max(run.end());
            range.1 = *stand;
        }
        self.groups.push(group);
    }

    /// Leaves out the groups that are covered at the peer by now; says whether any is left.
    pub(crate) fn leave_out(&mut self, covered: impl Fn(&Block) -> bool) -> bool {
        self.groups.retain(|group| !group.blocks.iter().all(&covered));
        !self.groups.is_empty()
    }

    /// Bytes of its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let blocks = self.groups.iter().flat_map(|group| &group.blocks);
        blocks.map(|block| block.bytes().len() as u64).sum()
    }

    /// The HLC of its first record.
    pub(crate) fn first_hlc(&self) -> Hlc {
        self.groups.first().and_then(|group| group.blocks.first()).map_or(Hlc::ZERO, Block::first_hlc)
    }

    /// The page, with its number.
    pub(crate) fn into_page(self, id: PageId, incarnation: Incarnation) -> Page {
        let after = self.ranges.iter().map(|(partition, (after, _))| (*partition, *after)).collect();
        let through = self.ranges.iter().map(|(partition, (_, through))| (*partition, *through)).collect();
        Page { id, origin: self.origin, incarnation, after, groups: self.groups, through }
    }
}
