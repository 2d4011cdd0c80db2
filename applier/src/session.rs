//! [`Session`]: one link after its Hello, as a state machine: frames in, pages and heartbeats out, acks on their way
//! back. Pure.
//!
//! Whatever a frame claims is compared with what was agreed and with itself before anybody else sees it. The first thing
//! that does not hold ends the session: an unbroken run of each origin's history is what makes coverage sound, so
//! nothing is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tidewire_core::causal::{OriginMarks, VersionVector, Watermarks};
use tidewire_core::id::{ClusterId, Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId, SessionNumber};
use tidewire_core::limits::{MAX_GROUP_FRAMES, MAX_KNOWN_CLUSTERS};
use tidewire_core::record::{Block, FormatError, Kind};
use tidewire_core::transport::marks::{decode_offsets, encode_origin, encode_vector};
use tidewire_core::transport::pages::{Assembler, Page};
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::SEED_PIECE_BYTES;

use crate::faults::{self, Fault};
use crate::pause::{Pause, PauseKind};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::Settings;

/// What was agreed in Hello.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// This cluster, whose own records never come back.
    pub(crate) me: OriginTag,
    /// Who ships.
    pub(crate) peer: ClusterId,
    /// Whose records the link carries, and the incarnations of their logs: the peer's own, and what it forwards.
    pub(crate) origins: BTreeMap<OriginTag, (ClusterId, Incarnation)>,
    /// Partitions of the tree.
    pub(crate) partitions: u16,
    /// Whether parts of pages may be packed.
    pub(crate) packs: bool,
    /// Whether only some keys are held here, so that others are left out of what comes.
    pub(crate) filters: bool,
}

/// What a peer says that its log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Where an origin's records end.
    pub(crate) tails: Vec<(PartitionId, Offset)>,
    /// Bytes of its log that are still to come.
    pub(crate) bytes: u64,
}

/// A promise without records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Whose promise it is.
    pub(crate) origin: OriginTag,
    /// The incarnation of the origin's log.
    pub(crate) incarnation: Incarnation,
    /// Up to here the origin is complete with the tails.
    pub(crate) closed: Hlc,
    /// Where its records end.
    pub(crate) tails: Vec<(PartitionId, Offset)>,
    /// Whether the way of the promise is to be measured.
    pub(crate) canary: bool,
}

/// What a frame amounts to.
#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing to do: part of a page, or a frame of another session.
    Nothing,
    /// A whole page, checked, and what the peer says that there is beyond it, if it does.
    Page(Page, Option<Beyond>),
    /// The same, but some records of it can never be applied.
    Faulty(Page, Vec<Fault>),
    /// A promise, checked.
    Heartbeat(Heartbeat),
    /// A seed begins; it may name these origins.
    SeedBegin(Vec<(ClusterId, Incarnation)>),
    /// The next bytes of it.
    SeedBytes(Bytes),
    /// It is whole.
    SeedEnd,
    /// The far side ends the session.
    Goodbye(String),
}

/// What an acknowledgement is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    /// What is covered of every origin.
    pub(crate) marks: &'a Watermarks,
    /// What is applied of all.
    pub(crate) frontier: &'a VersionVector,
    /// What the peer may send.
    pub(crate) credit: u64,
    /// What waits for dependencies.
    pub(crate) held: u64,
    /// Why the peer is to pause.
    pub(crate) pause: Option<&'a Pause>,
}

/// One link after its Hello.
#[derive(Debug)]
pub(crate) struct Session {
    number: SessionNumber,
    terms: Terms,
    max_record_bytes: usize,
    assembler: Assembler,
    said_marks: BTreeMap<OriginTag, OriginMarks>,
    said_frontier: VersionVector,
    said_room: (u64, u64),
    said_pause: Option<PauseKind>,
    /// Whether the peer sends on what it is asked for.
    relays: bool,
    wanted: Vec<u64>,
    said_wanted: Vec<u64>,
    seed: Seed,
}

/// How far a session is with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seed {
    /// None may come.
    Closed,
    /// One may come, before anything else.
    Open,
    /// So many bytes have come, and so many are acknowledged.
    Coming { bytes: u64, acknowledged: u64 },
}

/// How far an HLC is ahead of the wall clock, if that is too far.
type Skew<'a> = &'a dyn Fn(Hlc) -> Option<Duration>;

impl Session {
    /// A session that has said in its Welcome where it stands.
    pub(crate) fn new(number: SessionNumber, terms: Terms, settings: &Settings, said: Standing<'_>) -> Self {
        let assembler = Assembler::new(terms.partitions, settings.max_page_bytes);
        let max_record_bytes = settings.max_record_bytes;
        Self {
            number,
            max_record_bytes,
            assembler: if terms.packs { assembler.unpacking(max_record_bytes) } else { assembler },
            said_marks: said
                .marks
                .iter()
                .filter(|(origin, _)| terms.origins.contains_key(origin))
                .map(|(origin, marks)| (origin, marks.clone()))
                .collect(),
            said_frontier: said.frontier.clone(),
            said_room: (said.credit, said.held),
            said_pause: None,
            relays: false,
            wanted: Vec::new(),
            said_wanted: Vec::new(),
            seed: Seed::Closed,
            terms,
        }
    }

    /// A seed may come, as the Welcome has said.
    pub(crate) fn open_to_seed(&mut self) {
        self.seed = Seed::Open;
    }

    /// The peer sends on what it is asked for.
    pub(crate) fn open_to_wishes(&mut self) {
        self.relays = true;
    }

    /// Whose writes the peer is to be asked for, from the next acknowledgement on.
    pub(crate) fn wish(&mut self, wanted: &BTreeSet<OriginTag>) {
        let others = wanted.iter().filter(|origin| self.relays && **origin != self.terms.peer.tag());
        self.wanted = others.map(|origin| origin.get()).collect();
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// The first thing that does not hold; the session is over then.
    pub(crate) fn receive(&mut self, frame: Frame, skew: Skew<'_>) -> Result<Event, Refusal> {
        if frame.session != self.number.get() {
            return Ok(Event::Nothing);
        }
        if let Seed::Coming { .. } = self.seed {
            return self.receive_seed(frame.body);
        }
        match frame.body {
            Some(Body::SnapshotBegin(begin)) if self.seed == Seed::Open => self.begin_seed(&begin),
            Some(Body::Page(part)) => {
                self.seed = Seed::Closed;
                let id = PageId::new(part.page_id);
                self.receive_part(part, skew).map_err(|refusal| refusal.of_page(id))
            }
            Some(Body::Heartbeat(heartbeat)) => self.receive_heartbeat(&heartbeat, skew),
            Some(Body::Goodbye(goodbye)) => Ok(Event::Goodbye(goodbye.reason)),
            _ => Err(malformed("a shipper sends nothing but pages, heartbeats and goodbye after its hello")),
        }
    }

    fn begin_seed(&mut self, begin: &wire::SnapshotBegin) -> Result<Event, Refusal> {
        if begin.origins.len() > MAX_KNOWN_CLUSTERS {
            return Err(malformed("a snapshot that names more origins than can be known"));
        }
        let name = |origin: &wire::ForwardedOrigin| {
            let name = ClusterId::new(&origin.name).map_err(malformed)?;
            Ok((name, Incarnation::new(origin.incarnation)))
        };
        let origins = begin.origins.iter().map(name).collect::<Result<_, Refusal>>()?;
        self.seed = Seed::Coming { bytes: 0, acknowledged: 0 };
        Ok(Event::SeedBegin(origins))
    }

    fn receive_seed(&mut self, body: Option<Body>) -> Result<Event, Refusal> {
        let Seed::Coming { bytes, acknowledged } = self.seed else {
            return Err(malformed("bytes of a snapshot that was not begun"));
        };
        match body {
            Some(Body::SnapshotChunk(wire::SnapshotChunk { at, bytes: piece })) => {
                if at != bytes || piece.is_empty() || piece.len() > SEED_PIECE_BYTES {
                    return Err(malformed("bytes of a snapshot that do not follow each other"));
                }
                self.seed = Seed::Coming { bytes: bytes + piece.len() as u64, acknowledged };
                Ok(Event::SeedBytes(piece))
            }
            Some(Body::SnapshotEnd(end)) if end.bytes == bytes => Ok(Event::SeedEnd),
            Some(Body::Goodbye(goodbye)) => Ok(Event::Goodbye(goodbye.reason)),
            _ => Err(malformed("a snapshot is followed by nothing but its next bytes or its end")),
        }
    }

    /// How many bytes of the seed are acknowledged.
    pub(crate) fn seed_acknowledged(&self) -> u64 {
        if let Seed::Coming { acknowledged, .. } = self.seed { acknowledged } else { 0 }
    }

    /// The acknowledgement of the bytes of the seed that are kept.
    pub(crate) fn acknowledge_seed(&mut self, kept: u64) -> Frame {
        if let Seed::Coming { acknowledged, .. } = &mut self.seed {
            *acknowledged = kept;
        }
        let (credit_bytes, held_bytes) = self.said_room;
        let ack = wire::Ack { credit_bytes, held_bytes, snapshot_bytes: kept, ..wire::Ack::default() };
        self.frame(Body::Ack(ack))
    }

    fn receive_part(&mut self, part: wire::Page, skew: Skew<'_>) -> Result<Event, Refusal> {
        let name = self.check_origin(part.origin, part.incarnation)?.clone();
        let beyond = match part.tails.as_slice() {
            [] => None,
            tails => Some(Beyond {
                tails: decode_offsets(tails, self.terms.partitions).map_err(malformed)?,
                bytes: part.tail_bytes,
            }),
        };
        let page = self.assembler.push(part).map_err(malformed)?;
        let Some(page) = page else { return Ok(Event::Nothing) };
        self.check_range(&page)?;
        let (mut closed, mut faults) = (Hlc::ZERO, Vec::new());
        for group in &page.groups {
            if group.blocks.len() > MAX_GROUP_FRAMES {
                return Err(malformed("a group has more blocks than can be"));
            }
            let mut last = closed.next();
            for block in &group.blocks {
                faults.append(&mut self.check_block(block, page.incarnation)?);
                if block.first_hlc() < last {
                    return Err(malformed("groups or blocks of a page are not in the order of their clock"));
                }
                last = block.last_hlc();
            }
            if group.closed < last {
                return Err(malformed("a group promises less than it holds"));
            }
            closed = group.closed;
        }
        check_skew(&name, closed, skew)?;
        Ok(if faults.is_empty() { Event::Page(page, beyond) } else { Event::Faulty(page, faults) })
    }

    fn receive_heartbeat(&mut self, heartbeat: &wire::Heartbeat, skew: Skew<'_>) -> Result<Event, Refusal> {
        let name = self.check_origin(heartbeat.origin, heartbeat.incarnation)?;
        if self.assembler.is_midway() {
            return Err(malformed("a heartbeat between the parts of a page"));
        }
        let closed = Hlc::new(heartbeat.closed);
        check_skew(name, closed, skew)?;
        let tails = decode_offsets(&heartbeat.tails, self.terms.partitions).map_err(malformed)?;
        let (origin, incarnation) = (name.tag(), Incarnation::new(heartbeat.incarnation));
        Ok(Event::Heartbeat(Heartbeat { origin, incarnation, closed, tails, canary: heartbeat.canary }))
    }

    /// The name of an origin that the link carries under this incarnation.
    fn check_origin(&self, origin: u64, incarnation: u64) -> Result<&ClusterId, Refusal> {
        let (origin, incarnation) = (OriginTag::new(origin), Incarnation::new(incarnation));
        let Terms { me, peer, origins, .. } = &self.terms;
        if origin == *me {
            let detail = format!(
                "{peer} sent this cluster's own records back, which no relay does: another cluster runs under this one's id, \
                 or a copy of this one; give each site an id of its own, and look where the urls under [[peers]] of {peer} lead"
            );
            return Err(Refusal::new(RefusalKind::OwnOrigin, detail));
        }
        match origins.get(&origin) {
            Some((name, agreed)) if *agreed == incarnation => Ok(name),
            Some((name, agreed)) => {
                let detail = format!(
                    "{peer} said hello for incarnation {agreed} of the log of {name} and sent {incarnation}"
                );
                Err(Refusal::new(RefusalKind::Incarnation, detail))
            }
            None => {
                let detail =
                    format!("{peer} sent records of origin {origin}, which this link does not carry");
                Err(Refusal::new(RefusalKind::Malformed, detail))
            }
        }
    }

    /// Blocks lie inside the range of their page and never go back. Offsets between them are covered by the range.
    fn check_range(&self, page: &Page) -> Result<(), Refusal> {
        let mut reached = page.after.clone();
        for run in page.blocks().flat_map(Block::runs) {
            match reached.iter_mut().find(|(partition, _)| *partition == run.partition) {
                Some((_, at)) if run.first >= *at => *at = run.end(),
                _ => return Err(malformed("a page's blocks go back, or begin before its range")),
            }
        }
        Ok(())
    }

    /// What can never be applied of a block that is what its origin wrote.
    fn check_block(&self, block: &Block, incarnation: Incarnation) -> Result<Vec<Fault>, Refusal> {
        let peer = &self.terms.peer;
        block.verify(incarnation).map_err(|error| match error {
            FormatError::Checksum(_) => {
                let detail = format!(
                    "{error}: damaged on the way, or in the log of {peer}; verify that log if this repeats"
                );
                Refusal::new(RefusalKind::Checksum, detail)
            }
            other => malformed(other),
        })?;
        if block.is_filtered() && !self.terms.filters {
            return Err(malformed("a block from which records were left out, and all keys are held here"));
        }
        if !block.is_cover() && block.records().flatten().any(|record| record.kind == Kind::Mark) {
            return Err(malformed("maintenance, which is never shipped"));
        }
        Ok(faults::find(block, incarnation, self.terms.partitions, self.max_record_bytes))
    }

    /// The acknowledgement that says what has changed since the last one, if anything has or it is to be repeated.
    pub(crate) fn acknowledge(&mut self, now: Standing<'_>, repeat: bool) -> Option<Frame> {
        let room = (now.credit, now.held);
        let pause = now.pause.map(|pause| pause.kind);
        let moved = |(origin, marks): &(OriginTag, &OriginMarks)| {
            self.terms.origins.contains_key(origin) && self.said_marks.get(origin) != Some(marks)
        };
        let moved: Vec<_> = now.marks.iter().filter(moved).collect();
        let watermarks: Vec<_> = moved.iter().map(|(origin, marks)| encode_origin(*origin, marks)).collect();
        let risen: VersionVector =
            now.frontier.iter().filter(|(origin, hlc)| *hlc > self.said_frontier.get(*origin)).collect();
        let same = (room, pause) == (self.said_room, self.said_pause) && self.wanted == self.said_wanted;
        if watermarks.is_empty() && risen.is_empty() && same && !repeat {
            return None;
        }
        self.said_marks.extend(moved.into_iter().map(|(origin, marks)| (origin, marks.clone())));
        self.said_frontier.join(&risen);
        (self.said_room, self.said_pause) = (room, pause);
        self.said_wanted.clone_from(&self.wanted);
        Some(self.frame(Body::Ack(wire::Ack {
            watermarks,
            frontier: encode_vector(&risen),
            credit_bytes: now.credit,
            held_bytes: now.held,
            pause: now.pause.map(Pause::to_wire),
            wanted: self.wanted.clone(),
            ..wire::Ack::default()
        })))
    }

    /// What is said when a session ends by a refusal: where the peer can go on, which page it was, and why.
    pub(crate) fn refuse(&self, refusal: &Refusal, now: Standing<'_>) -> Vec<Frame> {
        let page = refusal.to_page_wire().map(|refused| {
            self.frame(Body::Ack(wire::Ack {
                watermarks: now
                    .marks
                    .iter()
                    .filter(|(origin, _)| self.terms.origins.contains_key(origin))
                    .map(|(origin, marks)| encode_origin(origin, marks))
                    .collect(),
                frontier: encode_vector(now.frontier),
                credit_bytes: 0,
                held_bytes: now.held,
                refused: Some(refused),
                ..wire::Ack::default()
            }))
        });
        page.into_iter().chain([self.frame(Body::Refusal(refusal.to_wire()))]).collect()
    }

    /// The last frame of an orderly end.
    pub(crate) fn goodbye(&self, reason: &str) -> Frame {
        self.frame(Body::Goodbye(wire::Goodbye { reason: reason.to_owned() }))
    }

    fn frame(&self, body: Body) -> Frame {
        Frame::new(self.number.get(), body)
    }
}

/// The promise is at or above every record before it, so it alone is compared with the clock.
fn check_skew(origin: &ClusterId, closed: Hlc, skew: Skew<'_>) -> Result<(), Refusal> {
    let Some(ahead) = skew(closed) else { return Ok(()) };
    let detail = format!(
        "the clock of {origin} is {} ms ahead of this cluster's, more than is accepted: synchronise both clocks",
        ahead.as_millis()
    );
    Err(Refusal::new(RefusalKind::ClockSkew, detail))
}

fn malformed(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(
        RefusalKind::Malformed,
        format!("{what}: upgrade the older of the two clusters, or report it"),
    )
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
