//! [`Page`]: records of one origin in whole groups, with the range they cover; and its way over the wire in parts.
//!
//! A shipper cuts a page with [`split`], an applier puts it together with an [`Assembler`], which believes nothing: ids,
//! parts, sizes, origins and ranges are checked before a page comes out. Records are not looked at here.

use super::marks::{decode_offsets, encode_offsets, violation};
use super::packing::Unpacker;
use super::wire;
use crate::error::LinkError;
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId};
use crate::record::Block;

/// Bytes of blocks that one part aims at. A larger block travels in a part of its own.
pub const PART_BYTES: usize = 256 * 1024;
/// What a block costs beside its bytes, counted against the bound of an [`Assembler`].
const BLOCK_OVERHEAD: usize = 64;

/// A group of a page: applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageGroup {
    /// The HLC up to which the origin is complete once the group is applied.
    pub closed: Hlc,
    /// Its blocks, at least one, all of the page's origin.
    pub blocks: Vec<Block>,
}

/// What one origin's records are sent in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its number in the session: from 1, one more each.
    pub id: PageId,
    /// Where the records were first committed.
    pub origin: OriginTag,
    /// The incarnation of that cluster's log.
    pub incarnation: Incarnation,
    /// What must be covered before the page, by partition in order.
    pub after: Vec<(PartitionId, Offset)>,
    /// The groups, in the order of the origin's log.
    pub groups: Vec<PageGroup>,
    /// What is covered after the page, for the partitions of `after`.
    pub through: Vec<(PartitionId, Offset)>,
}

impl Page {
    /// Bytes of its blocks: what counts against credit.
    pub fn bytes(&self) -> u64 {
        self.blocks().map(|block| block.bytes().len() as u64).sum()
    }

    /// How many records its blocks hold.
    pub fn records(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.count())).sum()
    }

    /// Its blocks, over all groups.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.groups.iter().flat_map(|group| &group.blocks)
    }
}

/// Cuts a page into the parts that are sent: whole blocks, about [`PART_BYTES`] each. There is always one.
pub fn split(page: &Page) -> Vec<wire::Page> {
    split_into(page, PART_BYTES)
}

fn split_into(page: &Page, part_bytes: usize) -> Vec<wire::Page> {
    let part = |number: usize| wire::Page {
        page_id: page.id.get(),
        part: u32::try_from(number).expect("a page is bounded in bytes, so its parts are few"),
        origin: page.origin.get(),
        incarnation: page.incarnation.get(),
        ..wire::Page::default()
    };
    let mut parts = vec![part(0)];
    let mut room = part_bytes;
    for group in &page.groups {
        assert!(!group.blocks.is_empty(), "a group of a page has at least one block");
        let piece = || wire::PageGroup { closed: group.closed.get(), ..wire::PageGroup::default() };
        let mut open = piece();
        for block in &group.blocks {
            let bytes = block.bytes();
            let current = parts.last_mut().expect("there is always a part");
            if bytes.len() > room && room < part_bytes {
                if !open.blocks.is_empty() {
                    open.more = true;
                    current.groups.push(std::mem::replace(&mut open, piece()));
                }
                parts.push(part(parts.len()));
                room = part_bytes;
            }
            open.blocks.push(bytes.clone());
            room = room.saturating_sub(bytes.len());
        }
        parts.last_mut().expect("there is always a part").groups.push(open);
    }
    parts[0].after = encode_offsets(&page.after);
    let last = parts.last_mut().expect("there is always a part");
    last.last = true;
    last.through = encode_offsets(&page.through);
    parts
}

/// A page of which not all parts have come.
struct Partial {
    page: Page,
    next_part: u32,
    bytes: usize,
    /// The last group goes on in the next part.
    more: bool,
}

/// Puts pages together from the parts of one session, in order. After an error the session is over.
pub struct Assembler {
    partitions: u16,
    most_bytes: usize,
    /// There if parts may come packed.
    unpacker: Option<Unpacker>,
    next: PageId,
    partial: Option<Partial>,
}

impl std::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembler").field("next", &self.next).field("bytes", &self.bytes()).finish()
    }
}

impl Assembler {
    /// For a session about a tree of that many partitions. A page of more than `most_bytes` is refused.
    pub fn new(partitions: u16, most_bytes: usize) -> Self {
        Self { partitions, most_bytes, unpacker: None, next: PageId::new(1), partial: None }
    }

    /// Takes packed parts too: the session has the capability. A part is several blocks of usual size, or one record of
    /// at most `max_record_bytes` in its block.
    #[must_use]
    pub fn unpacking(self, max_record_bytes: usize) -> Self {
        Self { unpacker: Some(Unpacker::new(PART_BYTES.max(max_record_bytes))), ..self }
    }

    /// Bytes that wait for the rest of their page.
    pub fn bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.bytes)
    }

    /// Whether a page has begun and not ended: then nothing but its next part may come.
    pub fn is_midway(&self) -> bool {
        self.partial.is_some()
    }

    /// Takes the next part; gives the page out if it was the last one.
    ///
    /// # Errors
    /// `Protocol` when the part is not the one that must come now, or says what cannot be.
    pub fn push(&mut self, mut part: wire::Page) -> Result<Option<Page>, LinkError> {
        if !part.packed.is_empty() {
            let Some(unpacker) = self.unpacker.as_mut().filter(|_| part.groups.is_empty()) else {
                return Err(violation(format!("page {} is packed, which was not agreed", part.page_id)));
            };
            part.groups = unpacker.unpack(&std::mem::take(&mut part.packed))?;
        }
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => self.begin(&part)?,
        };
        let page = &partial.page;
        let same = part.page_id == page.id.get()
            && part.origin == page.origin.get()
            && part.incarnation == page.incarnation.get();
        if !same || part.part != partial.next_part {
            return Err(violation(format!(
                "part {} of page {} where part {} of page {} must come",
                part.part, part.page_id, partial.next_part, page.id
            )));
        }
        if part.part > 0 && !part.after.is_empty() || !part.last && !part.through.is_empty() {
            return Err(violation(format!("page {} has its range in the wrong part", page.id)));
        }
        if part.groups.is_empty() && (partial.next_part > 0 || !part.last) {
            return Err(violation(format!("page {} has a part without groups", page.id)));
        }
        partial.next_part += 1;
        let (last, through) = (part.last, part.through);
        let mut continues = std::mem::take(&mut partial.more);
        for group in part.groups {
            if partial.more {
                return Err(violation(format!(
                    "page {} goes on with another group too early",
                    partial.page.id
                )));
            }
            self.take_group(&mut partial, group, std::mem::take(&mut continues))?;
        }
        if !last {
            self.partial = Some(partial);
            return Ok(None);
        }
        self.finish(partial, &through).map(Some)
    }

    fn begin(&self, part: &wire::Page) -> Result<Partial, LinkError> {
        let page = Page {
            id: self.next,
            origin: OriginTag::new(part.origin),
            incarnation: Incarnation::new(part.incarnation),
            after: decode_offsets(&part.after, self.partitions)?,
            groups: Vec::new(),
            through: Vec::new(),
        };
        Ok(Partial { page, next_part: 0, bytes: 0, more: false })
    }

    fn take_group(
        &self,
        partial: &mut Partial,
        group: wire::PageGroup,
        continues: bool,
    ) -> Result<(), LinkError> {
        let id = partial.page.id;
        partial.more = group.more;
        if group.blocks.is_empty() {
            return Err(violation(format!("page {id} has a group without blocks")));
        }
        if !continues {
            partial.page.groups.push(PageGroup { closed: Hlc::ZERO, blocks: Vec::new() });
        }
        let into = partial.page.groups.last_mut().expect("a group goes on only after it began");
        into.closed = Hlc::new(group.closed);
        for bytes in group.blocks {
            partial.bytes += bytes.len() + BLOCK_OVERHEAD;
            if partial.bytes > self.most_bytes {
                return Err(violation(format!("page {id} is over the limit of {} bytes", self.most_bytes)));
            }
            let block = Block::parse(bytes)
                .map_err(|error| violation(format!("page {id} holds what is no block")).with_source(error))?;
            if block.origin() != partial.page.origin {
                return Err(violation(format!("page {id} holds a block of origin {}", block.origin())));
            }
            into.blocks.push(block);
        }
        Ok(())
    }

    fn finish(&mut self, partial: Partial, through: &[wire::PartitionMark]) -> Result<Page, LinkError> {
        let Partial { mut page, more, .. } = partial;
        page.through = decode_offsets(through, self.partitions)?;
        if more {
            return Err(violation(format!("page {} ends within a group", page.id)));
        }
        let pairs = page.after.iter().zip(&page.through);
        let rises = pairs.clone().all(|(after, through)| after.0 == through.0 && after.1 <= through.1);
        if page.after.len() != page.through.len() || !rises {
            return Err(violation(format!("page {} ends before it begins", page.id)));
        }
        for run in page.blocks().flat_map(Block::runs) {
            let end = page.through.iter().find(|(partition, _)| *partition == run.partition);
            if end.is_none_or(|(_, through)| run.end() > *through) {
                return Err(violation(format!("page {} holds records outside its range", page.id)));
            }
        }
        self.next = self.next.next();
        Ok(page)
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
