//! [`Session`]: one link after its Welcome, as a state machine: groups in, pages and heartbeats out, acknowledgements
//! back. Pure: time is handed in, nothing waits.

use std::collections::BTreeMap;

use tidewire_core::causal::OriginMarks;
use tidewire_core::feed::{Cursor, Resolved};
use tidewire_core::id::{ClusterId, Hlc, Offset, PageId, PartitionId, SessionNumber};
use tidewire_core::record::{Block, Group};
use tidewire_core::transport::marks::{decode_origin, encode_offsets};
use tidewire_core::transport::pages::{PageGroup, split};
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::TreeIdentity;
use tokio::time::Instant;

use crate::error::ShipError;
use crate::handshake::{Welcomed, check_incarnation};
use crate::ledger::{Ledger, Sent};
use crate::open_page::OpenPage;
use crate::settings::Settings;
use crate::window::Window;

/// A page as it leaves.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) frames: Vec<Frame>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// One link after its Welcome.
#[derive(Debug)]
pub(crate) struct Session {
    number: SessionNumber,
    peer: ClusterId,
    me: TreeIdentity,
    settings: Settings,
    window: Window,
    ledger: Ledger,
    /// Where coverage by the pages so far ends, sent or open.
    stands: BTreeMap<PartitionId, Offset>,
    open: Option<OpenPage>,
    promise: Option<(Resolved, u64)>,
    next_page: PageId,
    flushing: bool,
    answered: Cursor,
    /// Bytes that the peer holds back, by its last word.
    held: u64,
    /// When the peer last acknowledged anything, or pages began to be in flight.
    heard_at: Instant,
    /// When something last became durable, or something began to wait for that.
    moved_at: Instant,
    waits: bool,
}

impl Session {
    /// A session that starts at `from`, before which everything is covered by what the peer welcomed us with.
    pub(crate) fn new(
        peer: ClusterId,
        me: TreeIdentity,
        welcomed: Welcomed,
        from: Cursor,
        settings: Settings,
        now: Instant,
    ) -> Self {
        let nothing = || OriginMarks::new(me.incarnation, me.partitions);
        let marks = welcomed.marks.unwrap_or_else(nothing);
        Self {
            number: welcomed.session,
            window: Window::new(&settings, welcomed.credit),
            stands: marks.iter().map(|(partition, mark)| (partition, mark.next)).collect(),
            ledger: Ledger::new(marks, from),
            peer,
            me,
            settings,
            open: None,
            promise: None,
            next_page: PageId::new(1),
            flushing: false,
            answered: from,
            held: 0,
            heard_at: now,
            moved_at: now,
            waits: false,
        }
    }

    /// Whether a group can be offered now; if not, the open page has to leave first, and is marked as full.
    pub(crate) fn has_room(&mut self, group: &Group) -> bool {
        let bytes: u64 = self.lacking(group).map(|block| block.bytes().len() as u64).sum();
        let Some(open) = &mut self.open else { return true };
        let fits = bytes == 0 || self.window.fits(open.bytes(), bytes);
        open.full |= !fits;
        fits
    }

    /// The blocks of a group that the peer is to get: of the local origin, and not covered there.
    fn lacking<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a Block> {
        let origin = self.me.origin();
        let covered = |block: &&Block| {
            block.runs().iter().all(|run| self.ledger.peer().get(run.partition).next >= run.end())
        };
        let blocks = group.blocks().iter().map(|framed| &framed.block);
        blocks.filter(move |block| block.origin() == origin && !covered(block))
    }

    /// Takes a group over, for which there is room; the log goes on at `cursor_after`.
    pub(crate) fn offer(&mut self, group: &Group, cursor_after: Cursor, now: Instant) {
        let blocks: Vec<Block> = self.lacking(group).cloned().collect();
        if blocks.is_empty() {
            match &mut self.open {
                Some(open) => open.cursor_after = cursor_after,
                None => self.ledger.pass(cursor_after),
            }
            return;
        }
        if !self.has_backlog() {
            self.moved_at = now;
        }
        let origin = self.me.origin();
        let local = group.blocks().iter().filter(|framed| framed.block.origin() == origin);
        let closed = local.map(|framed| framed.frame.closed).max().unwrap_or(Hlc::ZERO);
        let open = self.open.get_or_insert_with(|| OpenPage::new(cursor_after));
        open.add(PageGroup { closed, blocks }, cursor_after, &mut self.stands);
    }

    /// Takes a promise over, to be passed on behind every page so far. A later one replaces it.
    pub(crate) fn promise(&mut self, resolved: Resolved, tail_bytes: u64) {
        self.promise = Some((resolved, tail_bytes));
    }

    /// Sends what is open without waiting for company, until told otherwise.
    pub(crate) fn set_flushing(&mut self, flushing: bool) {
        self.flushing = flushing;
    }

    /// The open page, if it is to leave now.
    pub(crate) fn next_page(&mut self, now: Instant) -> Option<Outgoing> {
        let open = self.open.as_ref()?;
        let bytes = open.bytes();
        let time = open.full || self.flushing || self.window.is_time(bytes, self.ledger.small());
        if !time || !self.window.lets(bytes, self.ledger.bytes()) {
            return None;
        }
        if self.ledger.is_empty() {
            self.heard_at = now;
        }
        let open = self.open.take().expect("it was seen a moment ago");
        let (first_hlc, cursor_after) = (open.first_hlc(), open.cursor_after);
        let page = open.into_page(self.next_page, self.me.origin(), self.me.incarnation);
        self.next_page = self.next_page.next();
        let frames = split(&page).into_iter().map(|part| self.frame(Body::Page(part))).collect();
        let small = self.window.is_small(bytes);
        let records = page.records();
        self.ledger.push(Sent { bytes, small, through: page.through, cursor_after, first_hlc });
        Some(Outgoing { frames, records, bytes })
    }

    /// The heartbeat, if one is due and every page before it has been given out.
    pub(crate) fn next_heartbeat(&mut self) -> Option<Frame> {
        if self.open.is_some() {
            return None;
        }
        let (Resolved { closed, tails }, tail_bytes) = self.promise.take()?;
        let tails: Vec<_> = tails.iter().map(|(partition, mark)| (partition, mark.next)).collect();
        Some(self.frame(Body::Heartbeat(wire::Heartbeat {
            origin: self.me.origin().get(),
            incarnation: self.me.incarnation.get(),
            closed: closed.get(),
            tails: encode_offsets(&tails),
            tail_bytes,
        })))
    }

    /// The last frame of an orderly end.
    pub(crate) fn goodbye(&self, reason: &str) -> Frame {
        self.frame(Body::Goodbye(wire::Goodbye { reason: reason.to_owned() }))
    }

    /// Takes a frame of the peer. Says whether it was an acknowledgement.
    ///
    /// # Errors
    /// When the session ends with it.
    pub(crate) fn receive(&mut self, frame: Frame, now: Instant) -> Result<bool, ShipError> {
        if frame.session != self.number.get() {
            return Ok(false);
        }
        let peer = self.peer.clone();
        match frame.body {
            Some(Body::Ack(ack)) => self.acknowledge(ack, now).map(|()| true),
            Some(Body::Refusal(wire::Refusal { kind, detail, retry })) => {
                Err(ShipError::Refused { peer, kind, detail, retry })
            }
            Some(Body::Goodbye(wire::Goodbye { reason })) => Err(ShipError::Ended { peer, reason }),
            _ => Err(ShipError::protocol(&peer, "an applier sends nothing but acks, a refusal or goodbye")),
        }
    }

    fn acknowledge(&mut self, ack: wire::Ack, now: Instant) -> Result<(), ShipError> {
        let origin = self.me.origin().get();
        if let Some(said) = ack.watermarks.iter().find(|said| said.origin == origin) {
            let (_, marks) = decode_origin(said, self.me.partitions)
                .map_err(|error| ShipError::Link { peer: self.peer.clone(), error })?;
            check_incarnation(Some(&marks), &self.peer, &self.me)?;
            let before = self.ledger.durable();
            self.ledger.advance(&marks);
            if self.ledger.durable() != before {
                (self.moved_at, self.waits) = (now, false);
            }
        }
        self.heard_at = now;
        self.held = ack.held_bytes;
        self.window.grant(ack.credit_bytes);
        match ack.refused {
            Some(wire::PageRefusal { kind, detail, .. }) => {
                Err(ShipError::refused_page(&self.peer, kind, detail))
            }
            None => Ok(()),
        }
    }

    /// When [`on_time`](Self::on_time) has something to say.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting = (self.has_backlog() && !self.waits).then(|| self.moved_at + self.settings.ack_timeout);
        [waiting, self.silent_at()].into_iter().flatten().min()
    }

    /// When the peer's silence is taken for death. What it holds back for the sake of others' writes it may hold long.
    fn silent_at(&self) -> Option<Instant> {
        let owes = !self.ledger.is_empty() && self.held == 0;
        owes.then(|| self.heard_at + self.settings.silence_timeout)
    }

    /// Notices that nothing has happened for too long.
    ///
    /// # Errors
    /// When the session is to be given up.
    pub(crate) fn on_time(&mut self, now: Instant) -> Result<(), ShipError> {
        if self.silent_at().is_some_and(|at| at <= now) {
            return Err(ShipError::Silent {
                peer: self.peer.clone(),
                silence: now.duration_since(self.heard_at),
            });
        }
        self.waits = self.has_backlog() && now.duration_since(self.moved_at) >= self.settings.ack_timeout;
        Ok(())
    }

    /// Why nothing has become durable for long, if that is so.
    pub(crate) fn waits(&self) -> Option<String> {
        let (peer, bytes, held) = (&self.peer, self.ledger.bytes(), self.held);
        if !self.waits {
            return None;
        }
        Some(if held > 0 {
            format!("{peer} holds {held} bytes back until writes of other clusters have reached it")
        } else if self.window.credit() == 0 {
            format!("{peer} takes nothing now: it has no room, and has given no credit")
        } else {
            let timeout = self.settings.ack_timeout.as_secs();
            format!("{peer} has acknowledged nothing for {timeout} s or more, {bytes} bytes are on their way")
        })
    }

    /// The durable position, if it has moved since it was last asked for.
    pub(crate) fn take_durable(&mut self) -> Option<Cursor> {
        let durable = self.ledger.durable();
        (durable.lsn > self.answered.lsn).then(|| {
            self.answered = durable;
            durable
        })
    }

    /// What is in flight and what the peer covers.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The HLC of the oldest record that was taken over and is not acknowledged.
    pub(crate) fn oldest(&self) -> Option<Hlc> {
        self.ledger.oldest().or_else(|| self.open.as_ref().map(OpenPage::first_hlc))
    }

    /// Whether anything that was taken over is not acknowledged.
    pub(crate) fn has_backlog(&self) -> bool {
        self.open.is_some() || !self.ledger.is_empty()
    }

    fn frame(&self, body: Body) -> Frame {
        Frame::new(self.number.get(), body)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
