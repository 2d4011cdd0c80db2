//! How a session takes groups of the log over: what of them leaves, and what is only covered.

use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, OriginTag};
use tidewire_core::record::{Block, FramedBlock, Group, Kept};
use tidewire_core::transport::pages::PageGroup;
use tokio::time::Instant;

use super::Session;
use crate::error::ShipError;
use crate::lines::Wanted;
use crate::wave::Wave;

impl Session {
    /// Whether a group can be offered now; if not, the open wave has to leave first, and is marked as full.
    pub(crate) fn has_room(&mut self, group: &Group) -> bool {
        let wanted = self.look(group);
        let leaves =
            |(place, block): &(usize, &Block)| wanted.of(*place) != Kept::Nothing && self.ledger.lacks(block);
        let blocks = group.blocks().iter().map(|framed| &framed.block).enumerate();
        let bytes: u64 = blocks.filter(leaves).map(|(_, block)| block.bytes().len() as u64).sum();
        self.wanted = Some(wanted);
        let Some(wave) = &mut self.wave else { return true };
        let fits = bytes == 0 || self.window.fits(wave.bytes(), bytes);
        wave.full |= !fits;
        fits
    }

    /// What the peer wants of a group, which is looked at once.
    fn look(&mut self, group: &Group) -> Wanted {
        let known = self.wanted.take().filter(|wanted| wanted.is_of(group));
        known.unwrap_or_else(|| self.lines.look(group, |block| self.ledger.lacks(block)))
    }

    /// Takes a group over, for which there is room; the log goes on at `cursor_after`.
    ///
    /// # Errors
    /// When it is of an origin of which the peer was not told. It is not taken over then, and the session is to end.
    pub(crate) fn offer(
        &mut self,
        group: &Group,
        cursor_after: Cursor,
        now: Instant,
    ) -> Result<(), ShipError> {
        if self.forwards && self.asked.is_none() {
            self.demand_known(group.blocks().iter().map(|framed| framed.block.origin()))?;
        }
        let wanted = self.look(group);
        // Several groups of an origin may lie in one group here: each is whole by itself, or two origins would wait for
        // each other.
        let same = |a: &FramedBlock, b: &FramedBlock| {
            a.block.origin() == b.block.origin() && a.frame.closed == b.frame.closed
        };
        // The local block in front may depend on what lies behind it in its own group; not the other way round.
        let own = self.me.origin();
        let foreign = group.blocks().partition_point(|framed| framed.block.origin() == own);
        let (local, behind) = group.blocks().split_at(foreign);
        for (mut place, blocks) in [(foreign, behind), (0, local)] {
            for part in blocks.chunk_by(same) {
                let all = part.iter().map(|framed| &framed.block).zip(place..);
                place += part.len();
                let lacking = all.filter(|(block, _)| self.ledger.lacks(block));
                let blocks: Vec<(Block, Kept)> =
                    lacking.map(|(block, place)| (block.clone(), wanted.of(place))).collect();
                self.take(part[0].block.origin(), part[0].frame.closed, blocks, now);
            }
        }
        self.at = cursor_after;
        self.pass();
        self.reach();
        Ok(())
    }

    /// Takes what the peer lacks of a group of one origin, and what it wants of that.
    fn take(&mut self, origin: OriginTag, closed: Hlc, blocks: Vec<(Block, Kept)>, now: Instant) {
        if blocks.is_empty() {
            return;
        }
        // What leaves may depend on what was left out, of whichever origin: nothing waits for what stands behind it.
        if self.lines.owe() && blocks.iter().any(|(_, kept)| *kept != Kept::Nothing) {
            self.cover(now);
        }
        for group in self.lines.take(origin, closed, blocks, self.at) {
            self.fill(origin, group, now);
        }
    }

    /// How many records were left out for the interest of the peer since this was last asked.
    pub(crate) fn count_left_out(&mut self) -> u64 {
        self.lines.count_left_out()
    }

    /// Adds a group to the open wave.
    fn fill(&mut self, origin: OriginTag, group: PageGroup, now: Instant) {
        if self.wave.is_none() && self.ledger.is_empty() {
            self.moved_at = now;
        }
        let before = self.lines.settled(self.at);
        if let Some(stands) = self.lines.stands(origin) {
            self.wave.get_or_insert_with(Wave::new).add(origin, group, before, stands);
        }
    }

    fn pass(&mut self) {
        let settled = self.lines.settled(self.at);
        match &mut self.wave {
            Some(wave) => wave.pass(settled),
            None => self.ledger.pass(settled),
        }
    }

    /// Covers what was left out so far, so that whatever is promised next holds.
    pub(super) fn cover(&mut self, now: Instant) {
        // One after the other: a page makes nothing durable that the next one has yet to cover.
        while let Some((origin, group)) = self.lines.close() {
            self.fill(origin, group, now);
            self.pass();
        }
    }
}
