//! [`Session`]: one link after its Welcome, as a state machine: groups in, pages and heartbeats out, acknowledgements
//! back. Pure: time is handed in, nothing waits.
//!
//! The log is read once for all origins that the link carries, and goes out in its own order. A page covers what this
//! log holds of its origin, or held and knows to be covered by the peer; never more.

mod offering;
mod patience;

use std::collections::BTreeSet;

use tidewire_core::causal::OriginMarks;
use tidewire_core::error::LinkError;
use tidewire_core::feed::{Cursor, Resolved};
use tidewire_core::id::{ClusterId, Hlc, Lsn, OriginTag, PageId, SessionNumber};
use tidewire_core::limits::MAX_KNOWN_CLUSTERS;
use tidewire_core::transport::marks::{decode_origin, decode_vector, encode_offsets};
use tidewire_core::transport::pages::split;
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::{Standing, TreeIdentity};
use tokio::time::Instant;

use crate::error::ShipError;
use crate::flow::Flow;
use crate::handshake::{Welcomed, check_incarnation};
use crate::ledger::{Ledger, Sent};
use crate::lines::{Lines, Wanted};
use crate::promises::{Promise, Promises};
use crate::route::Route;
use crate::settings::Settings;
use crate::wave::{OpenPage, Wave};
use crate::window::Window;

/// A wave as it leaves.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) frames: Vec<Frame>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of its pages as they leave, packed or not.
    pub(crate) sent: u64,
}

/// One link after its Welcome.
#[derive(Debug)]
pub(crate) struct Session {
    number: SessionNumber,
    peer: ClusterId,
    me: TreeIdentity,
    settings: Settings,
    window: Window,
    flow: Flow,
    ledger: Ledger,
    lines: Lines,
    /// What the peer wants of the group that is offered next.
    wanted: Option<Wanted>,
    /// Whose blocks are passed over on purpose.
    omitted: BTreeSet<OriginTag>,
    forwards: bool,
    /// What the peer had asked for at hello, where that alone is forwarded.
    asked: Option<BTreeSet<OriginTag>>,
    /// The log before this was taken over.
    at: Cursor,
    wave: Option<Wave>,
    promises: Promises,
    tail_bytes: u64,
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
    /// A session that the peer has welcomed, on a route that was agreed.
    pub(crate) fn new(
        peer: ClusterId,
        me: TreeIdentity,
        welcomed: &Welcomed,
        route: Route,
        settings: Settings,
        now: Instant,
    ) -> Self {
        let mut promises = Promises::default();
        if route.forwards {
            promises.know(&welcomed.frontier);
        }
        Self {
            number: welcomed.session,
            window: Window::new(&settings, welcomed.credit),
            flow: Flow::new(&settings, welcomed.unpacks, welcomed.credit, now),
            lines: Lines::new(&route.carried, welcomed.interest.clone()),
            wanted: None,
            omitted: route.omitted,
            forwards: route.forwards,
            asked: route.asked,
            ledger: Ledger::new(route.carried, route.from),
            at: route.from,
            peer,
            me,
            settings,
            wave: None,
            promises,
            tail_bytes: 0,
            next_page: PageId::new(1),
            flushing: false,
            answered: route.from,
            held: 0,
            heard_at: now,
            moved_at: now,
            waits: false,
        }
    }

    /// Takes a promise about the local origin over, to be passed on behind every page so far. A later one replaces it.
    pub(crate) fn promise(&mut self, resolved: Resolved, tail_bytes: u64) {
        let Resolved { closed, tails } = resolved;
        self.promises.make(self.me.origin(), Promise { closed, tails });
        self.tail_bytes = tail_bytes;
    }

    /// Takes over what holds at the end of the log, to pass on what it promises once the log has been taken over up to
    /// there.
    ///
    /// # Errors
    /// When it tells of an origin of which the peer was not told; the session is to end.
    pub(crate) fn stand(&mut self, standing: Standing) -> Result<(), ShipError> {
        if self.forwards && self.asked.is_none() {
            self.demand_known(standing.progress.frontier.iter().map(|(origin, _)| origin))?;
        }
        let Self { promises, lines, ledger, me, .. } = self;
        let nothing = |origin: OriginTag| Some(OriginMarks::new(lines.incarnation(origin)?, me.partitions));
        promises.free(&standing.progress, nothing, |origin, tails| {
            lines.is_behind(origin, tails, ledger.peer().get(&origin))
        });
        promises.stand(standing);
        self.reach();
        Ok(())
    }

    fn reach(&mut self) {
        let Self { promises, lines, me, at, .. } = self;
        let nothing = |origin: OriginTag| {
            lines.incarnation(origin).map(|incarnation| OriginMarks::new(incarnation, me.partitions))
        };
        promises.reach(at.lsn, nothing);
    }

    fn demand_known(&self, mut origins: impl Iterator<Item = OriginTag>) -> Result<(), ShipError> {
        let known = |origin| self.lines.incarnation(origin).is_some() || self.omitted.contains(&origin);
        match origins.find(|origin| !known(*origin)) {
            Some(origin) => Err(ShipError::NewOrigin { peer: self.peer.clone(), origin }),
            None => Ok(()),
        }
    }

    /// Sends what is open without waiting for company, until told otherwise.
    pub(crate) fn set_flushing(&mut self, flushing: bool) {
        self.flushing = flushing;
    }

    /// The open wave, if it is to leave now. What the peer covers by now, because another link brought it, is left out.
    pub(crate) fn next_wave(&mut self, now: Instant) -> Option<Outgoing> {
        if self.flushing || self.promises.is_due() {
            self.cover(now);
        }
        let wave = self.wave.as_ref()?;
        let bytes = wave.bytes();
        let time = wave.full || self.flushing || self.window.is_time(bytes, self.ledger.small());
        let lets = time && self.window.lets(bytes, self.ledger.bytes());
        if !lets || !self.flow.may_leave(bytes, now) {
            return None;
        }
        if self.ledger.is_empty() {
            (self.heard_at, self.moved_at, self.waits) = (now, now, false);
        }
        let pages = self.wave.take().expect("it was seen a moment ago").into_pages();
        let mut out = Outgoing { frames: Vec::new(), records: 0, bytes: 0, sent: 0 };
        let small = self.window.is_small(bytes);
        let last = pages.len() - 1;
        for (index, open) in pages.into_iter().enumerate() {
            self.send(open, small && index == last, now, &mut out);
        }
        self.flow.left(out.sent);
        Some(out)
    }

    fn send(&mut self, mut open: OpenPage, small: bool, at: Instant, out: &mut Outgoing) {
        let (origin, cursor_after) = (open.origin, open.cursor_after);
        let Some(incarnation) = self.lines.incarnation(origin) else { return };
        if !open.leave_out(|block| !self.ledger.lacks(block)) {
            self.ledger.pass(cursor_after);
            return;
        }
        let (bytes, first_hlc) = (open.bytes(), open.first_hlc());
        let page = open.into_page(self.next_page, incarnation);
        self.lines.leaves(origin, &page.through);
        self.next_page = self.next_page.next();
        let mut parts = split(&page);
        out.sent += self.flow.pack(&mut parts, bytes);
        parts.last_mut().into_iter().for_each(|last| self.flow.tell(origin, last));
        out.frames.extend(parts.into_iter().map(|part| self.frame(Body::Page(part))));
        out.records += page.records();
        out.bytes += bytes;
        self.ledger.push(Sent { origin, bytes, small, through: page.through, cursor_after, first_hlc, at });
    }

    /// The heartbeats that are due and whose records have all been given out.
    pub(crate) fn next_heartbeats(&mut self) -> Vec<Frame> {
        // What is open may wait long for its turn under a limit: what it does not concern need not.
        let due = if self.wave.is_some() { self.promises.take_free() } else { self.promises.take() };
        due.into_iter().map(|(origin, promise)| self.heartbeat(origin, &promise)).collect()
    }

    fn heartbeat(&mut self, origin: OriginTag, promise: &Promise) -> Frame {
        let canary = origin == self.me.origin() && self.flow.take_canary();
        let tails: Vec<_> = promise.tails.iter().map(|(partition, mark)| (partition, mark.next)).collect();
        self.frame(Body::Heartbeat(wire::Heartbeat {
            origin: origin.get(),
            incarnation: promise.tails.incarnation().get(),
            closed: promise.closed.get(),
            tails: encode_offsets(&tails),
            tail_bytes: self.tail_bytes,
            canary,
        }))
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

    /// How far the log was taken over.
    pub(crate) fn at(&self) -> Lsn {
        self.at.lsn
    }

    fn acknowledge(&mut self, mut ack: wire::Ack, now: Instant) -> Result<(), ShipError> {
        let link = |error: LinkError| ShipError::Link { peer: self.peer.clone(), error };
        let (before, before_bytes) = (self.ledger.durable(), self.ledger.bytes());
        for said in &ack.watermarks {
            let Some(agreed) = self.lines.incarnation(OriginTag::new(said.origin)) else { continue };
            let (origin, marks) = decode_origin(said, self.me.partitions).map_err(link)?;
            if origin == self.me.origin() {
                check_incarnation(Some(&marks), &self.peer, &self.me)?;
            } else if marks.incarnation() != agreed {
                let what = "an ack of another incarnation of a forwarded origin than was agreed";
                return Err(ShipError::protocol(&self.peer, what));
            }
            self.ledger.advance(origin, &marks);
        }
        if self.forwards {
            self.promises.know(&decode_vector(&ack.frontier).map_err(link)?);
        }
        if self.ledger.durable() != before {
            (self.moved_at, self.waits) = (now, false);
        }
        self.heard_at = now;
        self.held = ack.held_bytes;
        let took = self.ledger.take_settled().map(|left| now.duration_since(left));
        let (in_flight, next) = (self.ledger.bytes(), self.wave.as_ref().map_or(0, Wave::bytes));
        self.flow.hear(&mut ack, next > 0 && self.window.is_full(next, before_bytes), in_flight, took);
        self.window.grant(ack.credit_bytes);
        if ack.refused.is_none() {
            self.hear_wishes(&ack.wanted)?;
        }
        match ack.refused {
            Some(wire::PageRefusal { kind, detail, .. }) => {
                Err(ShipError::refused_page(&self.peer, kind, detail))
            }
            None => Ok(()),
        }
    }

    /// Compares what the peer asks for with what it had asked for at hello.
    fn hear_wishes(&self, wanted: &[u64]) -> Result<(), ShipError> {
        let Some(asked) = &self.asked else { return Ok(()) };
        let others =
            wanted.iter().map(|origin| OriginTag::new(*origin)).filter(|origin| *origin != self.me.origin());
        let wanted: BTreeSet<OriginTag> = others.take(MAX_KNOWN_CLUSTERS).collect();
        if wanted == *asked { Ok(()) } else { Err(ShipError::Asked { peer: self.peer.clone(), wanted }) }
    }

    /// What is known of the flow on the link.
    pub(crate) fn flow(&mut self) -> &mut Flow {
        &mut self.flow
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
        self.ledger.oldest().or_else(|| self.wave.as_ref().map(Wave::first_hlc))
    }

    /// Whether anything that was taken over is not acknowledged.
    pub(crate) fn has_backlog(&self) -> bool {
        self.wave.is_some() || !self.ledger.is_empty() || self.lines.owe()
    }

    fn frame(&self, body: Body) -> Frame {
        Frame::new(self.number.get(), body)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "relay_tests.rs"]
mod relay_tests;
