//! [`Slot`]: what is known of one peer and one tree, over all its sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::id::{BootId, ClusterId, Incarnation, Offset, OriginTag, PartitionId};
use tidewire_core::transport::wire;
use tokio::time::Instant;

use crate::applier::Applier;
use crate::boots::{Arrival, Boots};
use crate::metrics::PeerMetrics;
use crate::pause::{Pause, Stall};
use crate::port::{Ending, Port};
use crate::refusal::{Refusal, RefusalKind};
use crate::status::{ReceiveLag, ReceiveState, ReceiveStatus, WaitsFor};
use crate::tripwire::Tripwire;
use crate::view::View;

#[derive(Debug)]
struct State {
    boots: Boots,
    live: Option<Arc<Port>>,
    refused: Option<Refusal>,
    /// Which origins that it forwards the last session leaves out, and why.
    left_out: Option<String>,
    /// Why the peer cannot seed the tree, by its last hello; None: it can, or was not heard yet.
    unfit: Option<String>,
    /// Why the peer ended the last session, by its own words.
    parted: Option<String>,
    wire: Tripwire,
    /// Where the records that the peer has for this cluster are known to end.
    tails: BTreeMap<(OriginTag, PartitionId), Offset>,
    last_page: Option<Instant>,
    /// Bytes that the peer had still to send, by its last word, less what came since.
    to_come: u64,
    /// Why the peer was asked to pause.
    pause: Option<Pause>,
    /// When anything came, or a session began.
    heard: Instant,
    /// When everything that was known was applied, or since when there is anything to know.
    caught_up: Instant,
}

/// How long a peer with a link may say nothing before that shows: an idle one says something every second.
const SILENT: std::time::Duration = std::time::Duration::from_secs(10);

/// One peer and one tree.
#[derive(Debug)]
pub(crate) struct Slot {
    peer: ClusterId,
    metrics: PeerMetrics,
    state: Mutex<State>,
}

impl Slot {
    pub(crate) fn new(peer: ClusterId, metrics: PeerMetrics) -> Self {
        let state = State {
            boots: Boots::default(),
            live: None,
            refused: None,
            left_out: None,
            unfit: None,
            parted: None,
            wire: Tripwire::default(),
            tails: BTreeMap::new(),
            last_page: None,
            to_come: 0,
            pause: None,
            heard: Instant::now(),
            caught_up: Instant::now(),
        };
        Self { peer, metrics, state: Mutex::new(state) }
    }

    /// Lets a session in, in place of the one before it.
    ///
    /// # Errors
    /// When two processes speak as the peer; then the session that was there ends too.
    pub(crate) fn enter(&self, boot: BootId, port: &Arc<Port>) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.boots.arrive(boot) == Arrival::TwoCopies {
            let detail = format!(
                "two processes speak as {0}: stop the copy, then have this cluster forget that it saw two: tidewire peers restart {0}",
                self.peer
            );
            let refusal = Refusal::new(RefusalKind::TwoCopies, detail);
            if let Some(other) = state.live.take() {
                other.end(Ending::Refused(refusal.clone()));
            }
            return Err(refusal);
        }
        let now = Instant::now();
        state.heard = now;
        state.parted = None;
        state.wire.entered(now);
        if let Some(before) = state.live.replace(port.clone()) {
            before.end(Ending::Goodbye("replaced by a newer link"));
        }
        Ok(())
    }

    /// A session is over.
    pub(crate) fn leave(&self, port: &Arc<Port>) {
        let mut state = self.state.lock();
        if state.live.take_if(|live| Arc::ptr_eq(live, port)).is_some() {
            state.pause = None;
        }
    }

    /// The peer cannot seed the tree for this reason, or it can. Says whether that is news.
    pub(crate) fn is_unfit(&self, why: Option<String>) -> bool {
        let mut state = self.state.lock();
        let news = state.unfit != why;
        state.unfit = why;
        news
    }

    /// Why the peer cannot seed the tree, as far as is known.
    pub(crate) fn unfit(&self) -> Option<String> {
        self.state.lock().unfit.clone()
    }

    /// The peer ends the session, and says why.
    pub(crate) fn parts(&self, reason: &str) {
        self.state.lock().parted = Some(reason.to_owned());
    }

    /// Whether there is a session.
    pub(crate) fn is_live(&self) -> bool {
        self.state.lock().live.is_some()
    }

    /// Whose records the session that is there carries.
    pub(crate) fn carried(&self) -> Vec<OriginTag> {
        self.state.lock().live.iter().flat_map(|port| port.origins().collect::<Vec<_>>()).collect()
    }

    /// Ends the session that is there.
    pub(crate) fn end(&self, ending: Ending) {
        if let Some(live) = self.state.lock().live.take() {
            live.end(ending);
        }
    }

    /// The peer was refused. Stays until something of it is taken. If it sent this cluster's own writes, its link is shut
    /// for a while.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if refusal.kind == RefusalKind::Paused {
            return;
        }
        self.metrics.refuse();
        let mut state = self.state.lock();
        if refusal.kind == RefusalKind::OwnOrigin {
            let shut = state.wire.trip(Instant::now());
            tracing::error!(peer = %self.peer, seconds = shut.as_secs(), "this cluster's own writes come back; the link is shut");
        }
        state.refused = Some(refusal.clone());
    }

    /// The next session leaves out some of what the peer forwards.
    pub(crate) fn leaves_out(&self, forwarded: &[(ClusterId, Incarnation)], refused: &[wire::OriginRefusal]) {
        let said = refused.iter().filter_map(|wire::OriginRefusal { origin, kind, detail }| {
            let (name, _) = forwarded.iter().find(|(name, _)| name.tag().get() == *origin)?;
            Some(format!("writes of {name} are not taken from {}: {kind}: {detail}", self.peer))
        });
        let said = said.collect::<Vec<_>>().join("; ");
        self.state.lock().left_out = (!said.is_empty()).then_some(said);
    }

    /// Why no session is let in now, if the link is shut because of what came over it.
    pub(crate) fn shut(&self) -> Option<Refusal> {
        let state = self.state.lock();
        let left = state.wire.shut(Instant::now())?;
        let mut refusal = state.refused.clone()?;
        refusal.page = None;
        refusal.detail = format!("{}; tried again in {} s", refusal.detail, left.as_secs() + 1);
        Some(refusal)
    }

    /// Ends the session that is there, and forgets what was noted against the peer.
    pub(crate) fn begin_anew(&self, ending: Ending) {
        let mut state = self.state.lock();
        (state.boots, state.refused, state.wire) = (Boots::default(), None, Tripwire::default());
        if let Some(live) = state.live.take() {
            live.end(ending);
        }
    }

    /// Something came from the peer.
    pub(crate) fn heard(&self) {
        self.state.lock().heard = Instant::now();
    }

    /// The records of an origin that the peer has reach up to here: it sent them, or said so. Whatever was refused of it is
    /// forgiven.
    pub(crate) fn reaches(&self, origin: OriginTag, ends: &[(PartitionId, Offset)], by_page: bool) {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.wire.brought(now) {
            state.refused = None;
        }
        if by_page {
            state.last_page = Some(now);
        }
        for (partition, end) in ends {
            let tail = state.tails.entry((origin, *partition)).or_default();
            *tail = (*tail).max(*end);
        }
    }

    /// The peer has so many bytes still to send.
    pub(crate) fn comes(&self, bytes: u64) {
        self.state.lock().to_come = bytes;
    }

    /// So many bytes of it have come.
    pub(crate) fn came(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.to_come = state.to_come.saturating_sub(bytes);
    }

    /// The peer is asked to pause, or not.
    pub(crate) fn paused(&self, pause: Option<&Pause>) {
        let mut state = self.state.lock();
        if state.pause.as_ref() != pause {
            state.pause = pause.cloned();
        }
    }

    /// Something was applied, or heard.
    pub(crate) fn progress(&self, view: &View) {
        let mut state = self.state.lock();
        if state.behind(view) == 0 {
            state.caught_up = Instant::now();
        }
    }

    /// How it stands now; `rests`: by order of the operator. Also brings the gauges up to date.
    pub(crate) fn status(&self, applier: &Applier, rests: bool) -> ReceiveStatus {
        let view = applier.view().get();
        applier.show_dead_letters();
        let series = applier.metrics(&self.peer);
        let state = self.state.lock();
        let entries = state.behind(&view);
        let to_come = if entries > 0 { state.to_come } else { 0 };
        let bytes = applier.queued(&self.peer).saturating_add(to_come);
        let waiting = state.live.as_ref().and_then(|port| view.waiting(port).next());
        let waits_for = waiting.map(|waiting| WaitsFor {
            origin: applier.name(waiting.on),
            hlc: waiting.until.to_string(),
            seconds: waiting.since.elapsed().as_secs_f64(),
            bytes: waiting.bytes,
        });
        let seed = applier.seed().filter(|(from, _)| *from == self.peer);
        let pause = state.pause.clone().or_else(|| view.stalled.as_deref().map(Stall::pause));
        let paused = pause.is_some() && state.live.is_some();
        let (state_name, reason) = match (&state.refused, &state.live, pause, &waits_for) {
            _ if rests => {
                (ReceiveState::Paused, Some("paused by the operator; what has come is kept".into()))
            }
            (_, Some(_), ..) if seed.is_some() => {
                let bytes = seed.map_or(0, |(_, bytes)| bytes);
                let reason = format!("reseeding: {bytes} bytes of a snapshot of {} have come", self.peer);
                (ReceiveState::Waiting, Some(reason))
            }
            (Some(refusal), ..) => (ReceiveState::Refused, Some(refusal.to_string())),
            (_, None, ..) => {
                let parted = state.parted.as_ref().map(|said| format!("; it last said: {said}"));
                let said = format!("{} has no link to here{}", self.peer, parted.unwrap_or_default());
                (ReceiveState::Connecting, Some(said))
            }
            (_, _, Some(Pause { kind, detail }), _) => (
                ReceiveState::Waiting,
                Some(format!("{} is asked to pause ({}): {detail}", self.peer, kind.name())),
            ),
            (_, _, _, Some(WaitsFor { origin, hlc, seconds, bytes })) => {
                let reason =
                    format!("{bytes} bytes wait for writes of {origin} up to {hlc}, for {seconds:.1} s");
                (ReceiveState::Waiting, Some(reason))
            }
            _ if state.heard.elapsed() >= SILENT => {
                let seconds = state.heard.elapsed().as_secs();
                let reason = format!("{} has said nothing for {seconds} s; its link may be cut", self.peer);
                (ReceiveState::Connecting, Some(reason))
            }
            _ if entries > 0 => (ReceiveState::Streaming, None),
            _ => (ReceiveState::CaughtUp, None),
        };
        let caught_up = entries == 0 && state.live.is_some();
        let seconds = if caught_up { 0.0 } else { state.caught_up.elapsed().as_secs_f64() };
        let status = ReceiveStatus {
            id: self.peer.to_string(),
            tree: applier.identity().tree.to_string(),
            direction: "receive",
            state: state_name,
            reason: reason.or_else(|| state.left_out.clone()),
            lag: ReceiveLag { entries, bytes, seconds },
            waits_for,
            paused,
            applied_without_dependencies: series.gave_up.get(),
            dead_letters: u64::try_from(series.dead_letters.get()).unwrap_or(0),
            last_page_seconds: state.last_page.map(|at| at.elapsed().as_secs_f64()),
        };
        self.metrics.show(&status);
        status
    }
}

impl State {
    /// Records that the peer is known to have and that are not applied.
    fn behind(&self, view: &View) -> u64 {
        let watermarks = &view.progress.watermarks;
        let applied = |origin, partition| {
            watermarks.origin(origin).map_or(Offset::ZERO, |marks| marks.get(partition).next)
        };
        let behind =
            self.tails.iter().map(|((origin, partition), tail)| tail.since(applied(*origin, *partition)));
        // The peer says what it likes.
        behind.fold(0, u64::saturating_add)
    }
}
