//! One link, from the first frame to the last: the thin part around [`Session`]. One task each.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_core::error::ErrorKind;
use tidewire_core::id::{ClusterId, Incarnation, OriginTag};
use tidewire_core::letters::Letter;
use tidewire_core::transport::marks::{encode_vector, encode_watermarks};
use tidewire_core::transport::pages::Page;
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::transport::{Link, LinkReceiver, LinkSender, ZSTD};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::applier::Applier;
use crate::hello::{Caller, PROTOCOL};
use crate::judging::judge;
use crate::pause::{Pause, pause};
use crate::port::{Ending, Port};
use crate::refusal::{Refusal, RefusalKind};
use crate::server::Inner;
use crate::session::{Event, Session, Standing, Terms};
use crate::settings::{FAREWELL, HELLO_TIMEOUT, REPEAT_ACK};
use crate::slot::Slot;
use crate::view::{Input, View};
use tidewire_core::latest::Follower;

/// A caller that may come in.
pub(crate) struct Admission {
    pub(crate) caller: Caller,
    pub(crate) applier: Applier,
    pub(crate) slot: Arc<Slot>,
    pub(crate) port: Arc<Port>,
}

/// Why a session is over.
pub(crate) enum End {
    /// This side has something to say.
    Here(Ending),
    /// The far side ended it, or the link broke: nobody listens any more.
    There(String),
}

/// Serves a link until it ends. `stranger` is held until the caller has said who it is.
pub(crate) async fn serve(mut link: Link, server: Arc<Inner>, stranger: impl Sized) {
    let first = tokio::select! { biased;
        () = server.stop.cancelled() => return,
        first = timeout(HELLO_TIMEOUT, link.receiver.receive()) => first,
    };
    drop(stranger);
    let admitted = match first {
        Ok(Ok(Some(Frame { session: 0, body: Some(Body::Hello(hello)) }))) => server.admit(&hello),
        Ok(Ok(Some(_))) => Err(Refusal::new(RefusalKind::Malformed, "a link begins with a hello")),
        Ok(Ok(None) | Err(_)) | Err(_) => {
            tracing::debug!(remote = link.remote, "link ended without a hello");
            return;
        }
    };
    let admission = match admitted {
        Ok(admission) => admission,
        Err(refusal) => {
            tracing::warn!(remote = link.remote, %refusal, "link refused");
            let frame = Frame::new(0, Body::Refusal(refusal.to_wire()));
            return farewell(link.sender, link.receiver, vec![frame]).await;
        }
    };
    let (slot, port) = (admission.slot.clone(), admission.port.clone());
    open(link, admission, &server).await;
    slot.leave(&port);
}

/// Makes the caller known to the tree, says where the tree stands, and runs the session.
async fn open(link: Link, admission: Admission, server: &Inner) {
    let Admission { caller, applier, slot, port } = admission;
    let (tree, peer) = (&caller.tree, &caller.peer);
    let enrolled = tokio::select! { biased;
        () = server.stop.cancelled() => return,
        enrolled = applier.target().enroll(peer, caller.incarnation) => enrolled,
    };
    let enrolled = enrolled.map_err(|error| {
        let known_otherwise = error.kind() == ErrorKind::Conflict;
        let kind = if known_otherwise { RefusalKind::Incarnation } else { RefusalKind::Unavailable };
        Refusal::new(kind, error.to_string())
    });
    let forwarded = if enrolled.is_ok() { caller.forwarded.as_slice() } else { &[] };
    let (origins, refused) = tokio::select! { biased;
        () = server.stop.cancelled() => return,
        carried = enroll_forwarded(&caller, forwarded, &applier, server) => carried,
    };
    let taken = origins.keys().filter(|origin| **origin != peer.tag()).map(|origin| origin.get()).collect();
    port.carry(origins.clone());
    slot.leaves_out(&caller.forwarded, &refused);
    if let Err(refusal) = enrolled.and_then(|()| server.enter(&caller, &slot, &port)) {
        tracing::warn!(%tree, %peer, %refusal, "link refused");
        slot.refused(&refusal);
        let frame = Frame::new(0, Body::Refusal(refusal.to_wire()));
        return farewell(link.sender, link.receiver, vec![frame]).await;
    }
    let mut view = applier.view();
    let now = view.get();
    if !port.is_of(now.epoch) {
        let anew = wire::Goodbye { reason: ANEW.to_owned() };
        return farewell(link.sender, link.receiver, vec![Frame::new(0, Body::Goodbye(anew))]).await;
    }
    // Looked at after the epoch: who is told of other keys belongs to one that is over.
    let held = applier.target().interest();
    let credit = applier.credit(peer, &now).min(applier.settings().initial_credit_bytes);
    let identity = applier.identity();
    let welcome = wire::Welcome {
        session: port.number.get(),
        protocol: PROTOCOL.1,
        cluster: identity.cluster.to_string(),
        boot_id: server.config.boot.get(),
        incarnation: identity.incarnation.get(),
        watermarks: encode_watermarks(&now.progress.watermarks),
        frontier: encode_vector(&now.progress.frontier),
        credit_bytes: credit,
        forwarded: taken,
        not_forwarded: refused,
        snapshot: server.snapshot_request(&applier, &caller, &origins),
        capabilities: if caller.packs { vec![ZSTD.to_owned()] } else { Vec::new() },
        interest: held.prefixes().to_vec(),
    };
    let session = begin(&caller, &applier, &port, &now, origins, &welcome);
    tracing::info!(%tree, %peer, session = %port.number, remote = link.remote, "link opened");
    let stop = server.stop.clone();
    let Link { sender, receiver, .. } = link;
    let mut running =
        Running { sender, receiver, applier, slot, port, session, view, stop, said_at: Instant::now() };
    let end = match running.send(Frame::new(running.port.number.get(), Body::Welcome(welcome))).await {
        Ok(()) => running.run().await,
        Err(end) => end,
    };
    running.finish(end, &caller).await;
}

/// The session that a welcome opens.
fn begin(
    caller: &Caller,
    applier: &Applier,
    port: &Port,
    now: &View,
    origins: BTreeMap<OriginTag, (ClusterId, Incarnation)>,
    welcome: &wire::Welcome,
) -> Session {
    let identity = applier.identity();
    let terms = Terms {
        me: identity.origin(),
        peer: caller.peer.clone(),
        origins,
        partitions: identity.partitions,
        packs: caller.packs,
        filters: !welcome.interest.is_empty(),
    };
    let pause = pause_of(applier, port, now);
    let said = Standing { credit: welcome.credit_bytes, ..standing(applier, port, now, pause.as_ref()) };
    let mut session = Session::new(port.number, terms, applier.settings(), said);
    if caller.relays {
        session.open_to_wishes();
    }
    if welcome.snapshot.is_some() {
        session.open_to_seed();
    }
    session
}

/// Makes known what the caller forwards: which origins the link carries, the caller's own included, and which it cannot.
async fn enroll_forwarded(
    caller: &Caller,
    forwarded: &[(ClusterId, Incarnation)],
    applier: &Applier,
    server: &Inner,
) -> (BTreeMap<OriginTag, (ClusterId, Incarnation)>, Vec<wire::OriginRefusal>) {
    let mut origins = BTreeMap::from([(caller.peer.tag(), (caller.peer.clone(), caller.incarnation))]);
    let mut refused = Vec::new();
    for (name, incarnation) in forwarded {
        let refusal = match applier.target().enroll(name, *incarnation).await {
            _ if let Some(refusal) = server.sealed(name) => refusal,
            Ok(()) if let Some(refusal) = applier.left_out().refusal(name, applier.target()) => refusal,
            _ if *name == applier.identity().cluster => {
                let detail = format!("{name} is this cluster itself: its records never come back");
                Refusal::new(RefusalKind::OwnOrigin, detail)
            }
            Ok(()) => {
                // Its series exist from here on.
                applier.metrics(name);
                origins.insert(name.tag(), (name.clone(), *incarnation));
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Refusal::new(RefusalKind::Incarnation, error.to_string())
            }
            Err(error) => Refusal::new(RefusalKind::Unavailable, error.to_string()),
        };
        tracing::warn!(tree = %caller.tree, peer = %caller.peer, origin = %name, %refusal, "an origin is not taken from a relay");
        let (kind, detail) = (refusal.kind.name().to_owned(), refusal.detail);
        refused.push(wire::OriginRefusal { origin: name.tag().get(), kind, detail });
    }
    (origins, refused)
}

/// A session with its link.
pub(crate) struct Running {
    sender: Box<dyn LinkSender>,
    pub(crate) receiver: Box<dyn LinkReceiver>,
    pub(crate) applier: Applier,
    pub(crate) slot: Arc<Slot>,
    pub(crate) port: Arc<Port>,
    pub(crate) session: Session,
    pub(crate) view: Follower<Arc<View>>,
    pub(crate) stop: CancellationToken,
    /// When the last acknowledgement was sent.
    said_at: Instant,
}

/// What was received and is not handed over yet: the link is not read before it is.
#[derive(Default)]
struct Pending {
    page: Option<(Page, Vec<Letter>)>,
    input: Option<Input>,
    /// A seed has begun.
    seed: Option<Vec<(ClusterId, Incarnation)>>,
}

/// Why a session of an older epoch ends.
const ANEW: &str = "the tree was seeded from a snapshot, or holds other keys now";

pub(crate) const SHUTTING_DOWN: End = End::Here(Ending::Goodbye("shutting down"));

impl Running {
    async fn run(&mut self) -> End {
        let mut pending = Pending::default();
        loop {
            if let Some(origins) = pending.seed.take() {
                return self.take_seed(origins).await;
            }
            let (waits, owes) = (pending.page.is_some() || pending.input.is_some(), self.owes());
            tokio::select! { biased;
                () = self.stop.cancelled() => return SHUTTING_DOWN,
                ending = self.port.ended() => return End::Here(ending),
                () = self.view.changed() => {
                    if let Err(end) = self.acknowledge(false).await {
                        return end;
                    }
                }
                () = sleep_until(self.said_at + REPEAT_ACK), if owes => {
                    if let Err(end) = self.acknowledge(true).await {
                        return end;
                    }
                }
                taken = hand_over(&self.applier, &self.port, &mut pending), if waits => {
                    if !taken {
                        return SHUTTING_DOWN;
                    }
                }
                frame = self.receiver.receive(), if !waits => match frame {
                    Ok(Some(frame)) => match self.take(frame) {
                        Ok(next) => pending = next,
                        Err(end) => return end,
                    },
                    Ok(None) => return End::There("the peer ended the link".into()),
                    Err(error) => return End::There(error.to_string()),
                },
            }
        }
    }

    /// Whether something that the peer sent may not be acknowledged yet.
    fn owes(&mut self) -> bool {
        self.applier.queued(&self.port.peer) > 0 || self.view.get().waiting(&self.port).next().is_some()
    }

    fn take(&mut self, frame: Frame) -> Result<Pending, End> {
        self.slot.heard();
        let target = self.applier.target();
        let event = self.session.receive(frame, &|hlc| target.excess_skew(hlc)).map_err(|refusal| {
            if refusal.kind == RefusalKind::OwnOrigin {
                self.applier.metrics(&self.port.peer).own_origin.inc();
            }
            End::Here(Ending::Refused(refusal))
        })?;
        match event {
            Event::Nothing | Event::SeedBytes(_) | Event::SeedEnd => Ok(Pending::default()),
            Event::SeedBegin(origins) => Ok(Pending { seed: Some(origins), ..Pending::default() }),
            Event::Goodbye(reason) => {
                self.slot.parts(&reason);
                Err(End::There(reason))
            }
            Event::Page(page, beyond) => {
                self.slot.reaches(page.origin, &page.through, true);
                self.slot.came(page.bytes());
                if let Some(beyond) = beyond {
                    self.slot.reaches(page.origin, &beyond.tails, true);
                    self.slot.comes(beyond.bytes);
                }
                Ok(Pending { page: Some((page, Vec::new())), ..Pending::default() })
            }
            Event::Faulty(page, faults) => {
                let judged = judge(&self.applier, &self.port.peer, faults);
                let letters =
                    judged.map_err(|refusal| End::Here(Ending::Refused(refusal.of_page(page.id))))?;
                self.slot.reaches(page.origin, &page.through, true);
                Ok(Pending { page: Some((page, letters)), ..Pending::default() })
            }
            Event::Heartbeat(heartbeat) => {
                self.slot.reaches(heartbeat.origin, &heartbeat.tails, false);
                if heartbeat.origin == self.port.peer.tag() {
                    self.slot.comes(0);
                }
                self.slot.progress(&self.applier.view().get());
                Ok(Pending { input: Some(Input::Heartbeat(heartbeat)), ..Pending::default() })
            }
        }
    }

    /// Whether the session goes on in this epoch of the tree.
    pub(crate) fn check_epoch(&mut self) -> Result<(), End> {
        let goes_on = self.port.is_of(self.view.get().epoch);
        if goes_on { Ok(()) } else { Err(End::Here(Ending::Goodbye(ANEW))) }
    }

    async fn acknowledge(&mut self, repeat: bool) -> Result<(), End> {
        let view = self.view.get();
        self.slot.progress(&view);
        if view.closed {
            return Err(SHUTTING_DOWN);
        }
        self.check_epoch()?;
        self.session.wish(&view.wanted);
        let pause = pause_of(&self.applier, &self.port, &view);
        self.slot.paused(pause.as_ref());
        match self.session.acknowledge(standing(&self.applier, &self.port, &view, pause.as_ref()), repeat) {
            Some(ack) => {
                self.said_at = Instant::now();
                self.send(ack).await
            }
            None => Ok(()),
        }
    }

    pub(crate) async fn send(&mut self, frame: Frame) -> Result<(), End> {
        tokio::select! { biased;
            () = self.stop.cancelled() => Err(SHUTTING_DOWN),
            ending = self.port.ended() => Err(End::Here(ending)),
            sent = self.sender.send(frame) => sent.map_err(|error| End::There(error.to_string())),
        }
    }

    async fn finish(mut self, end: End, caller: &Caller) {
        let Caller { tree, peer, .. } = caller;
        let session = self.port.number;
        let last = match &end {
            End::There(reason) => {
                tracing::info!(%tree, %peer, %session, reason, "link ended");
                // What it brought is whole pages in order: those in the inbox are still taken.
                return;
            }
            End::Here(Ending::Goodbye(reason)) => {
                tracing::info!(%tree, %peer, %session, reason, "link ended");
                vec![self.session.goodbye(reason)]
            }
            End::Here(Ending::Refused(refusal)) => {
                tracing::warn!(%tree, %peer, %session, %refusal, "link ended");
                self.slot.refused(refusal);
                let view = self.view.get();
                self.session.refuse(refusal, standing(&self.applier, &self.port, &view, None))
            }
        };
        farewell(self.sender, self.receiver, last).await;
    }
}

fn standing<'a>(applier: &Applier, port: &Port, view: &'a View, pause: Option<&'a Pause>) -> Standing<'a> {
    Standing {
        marks: &view.progress.watermarks,
        frontier: &view.progress.frontier,
        credit: applier.credit(&port.peer, view),
        held: held(port, view),
        pause,
    }
}

fn held(port: &Port, view: &View) -> u64 {
    view.waiting(port).map(|waiting| waiting.bytes).sum()
}

/// Why the peer is to pause now, if it is.
fn pause_of(applier: &Applier, port: &Port, view: &View) -> Option<Pause> {
    pause(view.stalled.as_deref(), applier.credit(&port.peer, view), held(port, view))
}

/// Hands over what is pending once there is room. Cancel-safe: what was not handed over is still pending. False: the
/// applier has ended.
async fn hand_over(applier: &Applier, port: &Arc<Port>, pending: &mut Pending) -> bool {
    if let Some((page, _)) = &pending.page {
        let permit = applier.room(&port.peer, page).await;
        pending.input = pending.page.take().map(|(page, letters)| Input::Page(page, permit, letters));
    }
    applier.submit(port, &mut pending.input).await
}

/// Says the last words and gives the far side a moment to read them and end its direction too.
async fn farewell(mut sender: Box<dyn LinkSender>, mut receiver: Box<dyn LinkReceiver>, last: Vec<Frame>) {
    let said = timeout(FAREWELL, async {
        for frame in last {
            sender.send(frame).await?;
        }
        Ok::<(), tidewire_core::error::LinkError>(())
    });
    if let Ok(Ok(())) = said.await {
        sender.close().await;
        let silence = async { while let Ok(Some(_)) = receiver.receive().await {} };
        // A far side that goes on talking is cut off.
        let _ended = timeout(FAREWELL, silence).await;
    }
}
