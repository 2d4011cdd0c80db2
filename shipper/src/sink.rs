//! [`Shipper`]: the sink whose far end is a peer's applier. The I/O of a session, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidewire_core::clock::WallClock;
use tidewire_core::error::{LinkError, SinkError, SinkErrorKind};
use tidewire_core::feed::{Batch, Cursor};
use tidewire_core::id::{BootId, ClusterId, Incarnation, OriginTag};
use tidewire_core::sink::{News, Sink, SinkContext};
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::transport::{DialTarget, Link, LinkReceiver, Transport};
use tidewire_core::tree::{Located, LogView};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::ShipError;
use crate::forward::Forward;
use crate::handshake::{self, Welcomed};
use crate::metrics::{PeerMetrics, ShipperMetrics};
use crate::outbox::Outbox;
use crate::packing::Compression;
use crate::route::{Route, held_of};
use crate::session::Session;
use crate::settings::Settings;
use crate::status::StatusBoard;

/// Told from where on a log is needed, before anything is read there. Takes effect at once.
pub type Hold = Arc<dyn Fn(Cursor) + Send + Sync>;

/// What a shipper is made of.
#[derive(Clone)]
pub struct ShipperConfig {
    /// Whom to ship to.
    pub peer: DialTarget,
    /// Whether to ship what came from other clusters too, as a relay does. Never what came from the peer itself.
    pub forward: Forward,
    /// What holds the log for the peer: told where shipping goes on, also if that lies behind what the peer had
    /// acknowledged before, and where a snapshot for it begins.
    pub hold: Hold,
    /// This run of this cluster's process.
    pub boot: BootId,
    /// Every cluster whose writes the log may name, asked at each connect.
    pub known_clusters: Arc<dyn Fn() -> Vec<ClusterId> + Send + Sync>,
    /// How to reach the peer.
    pub transport: Arc<dyn Transport>,
    /// How to go about it.
    pub settings: Settings,
    /// This cluster's wall clock, for the lag in seconds.
    pub wall: Arc<dyn WallClock>,
    /// Where to count.
    pub metrics: ShipperMetrics,
    /// Where to say that the peer was reached, and to hear that others were.
    pub news: News,
}

/// A session with its link.
struct Live {
    session: Session,
    outbox: Outbox,
    receiver: Box<dyn LinkReceiver>,
    log: Arc<dyn LogView>,
}

/// Seeds after which a peer that still needs another one is left alone for a while.
const SEEDS_IN_A_ROW: u32 = 3;
/// How long a session goes on without an origin of which the log lacks what the peer needs, before it is looked again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How long a peer may take to hear why it is left.
const FAREWELL: Duration = Duration::from_secs(1);

/// What came of a call.
enum Called {
    /// A session is open, from here on.
    Open(Cursor),
    /// The peer is to be seeded.
    Seed(Link, Box<Welcomed>),
}

/// Ships one tree to one peer.
pub struct Shipper {
    pub(crate) config: ShipperConfig,
    board: Arc<StatusBoard>,
    metrics: PeerMetrics,
    live: Option<Live>,
    /// Whose writes the peer has asked for.
    asked: BTreeSet<OriginTag>,
    /// When the log is looked at next for what it promises.
    stand_at: Instant,
    /// When the session ends to see whether an origin that was left out can be carried by now.
    look_again_at: Option<Instant>,
}

impl Shipper {
    /// A shipper of a log, not yet connected; `checkpoint` is what it had acknowledged when it last ran, for the lag
    /// alone. [`spawn`](crate::spawn) does this.
    pub fn new(config: ShipperConfig, log: Arc<dyn LogView>, checkpoint: Option<Cursor>) -> Self {
        let metrics = config.metrics.peer(&log.identity().tree, &config.peer.peer);
        let board = StatusBoard::new(log, config.wall.clone(), metrics.clone(), checkpoint);
        Self {
            board: Arc::new(board),
            metrics,
            config,
            live: None,
            asked: BTreeSet::new(),
            stand_at: Instant::now(),
            look_again_at: None,
        }
    }

    pub(crate) fn board(&self) -> Arc<StatusBoard> {
        self.board.clone()
    }

    pub(crate) fn peer(&self) -> &ClusterId {
        &self.config.peer.peer
    }

    /// Ends the session and shows why.
    fn fail(&mut self, error: ShipError) -> SinkError {
        self.live = None;
        self.board.failed(&error);
        error.into()
    }

    /// Dials, and speaks until a session is open. A peer that the log cannot serve is seeded first.
    async fn connect(&mut self, log: &Arc<dyn LogView>) -> Result<Cursor, ShipError> {
        for _ in 0..SEEDS_IN_A_ROW {
            match self.call(log).await? {
                Called::Open(cursor) => return Ok(cursor),
                Called::Seed(link, welcomed) => self.seed(link, &welcomed, log).await?,
            }
        }
        match self.call(log).await? {
            Called::Open(cursor) => Ok(cursor),
            // The log here forgets faster than the peer takes over.
            Called::Seed(..) => {
                Err(ShipError::FellOff { peer: self.peer().clone(), lowest: log.first().lsn })
            }
        }
    }

    /// Dials, and finds out what the peer needs.
    async fn call(&mut self, log: &Arc<dyn LogView>) -> Result<Called, ShipError> {
        let (me, peer) = (log.identity(), self.peer().clone());
        let link_error = |error: LinkError| ShipError::Link { peer: peer.clone(), error };
        let mut link = self.config.transport.dial(&self.config.peer).await.map_err(link_error)?;
        let forwarded = self.forwarded(log);
        let packs = self.config.settings.compression != Compression::None;
        let relays = self.config.forward == Forward::OnDemand;
        let known = (self.config.known_clusters)();
        let held = log.interest();
        let partial = log.whole().is_none_or(|whole| !whole.includes(&held));
        let holds = (&held, partial);
        let hello = handshake::hello(&me, self.config.boot, &known, &forwarded, packs, relays, holds);
        let Settings { welcome_timeout, .. } = self.config.settings;
        let answer = timeout(welcome_timeout, async {
            link.sender.send(hello).await?;
            link.receiver.receive().await
        });
        let answer = match answer.await {
            Ok(answer) => answer.map_err(link_error)?,
            Err(_) => return Err(ShipError::Silent { peer, silence: welcome_timeout }),
        };
        let ended = || ShipError::Ended { peer: peer.clone(), reason: "no answer to hello".to_owned() };
        let welcomed = handshake::answer(answer.ok_or_else(ended)?, &peer, &me)?;
        let whole = log.whole().is_some_and(|whole| whole.includes(&welcomed.interest));
        let unserved = || ShipError::Interest {
            peer: peer.clone(),
            wanted: welcomed.interest.clone(),
            here: log.whole(),
        };
        // While a seed is to bring what is held anew, only what others wrote is left out: who gives it may wait for the rest.
        if self.config.forward == Forward::Always && !held.includes(&welcomed.interest) {
            return Err(part(link, &welcomed, unserved()).await);
        }
        let own = welcomed.marks.clone();
        let located = log.locate(me.origin(), own.as_ref()).await?;
        let terms = welcomed.snapshot.clone().unwrap_or_default();
        let gone_back = matches!(located, Located::WentBack { .. });
        let fell_off = matches!(located, Located::FellOff { .. }) && terms.cover(me.origin());
        if fell_off && !whole {
            let (wanted, here) = (welcomed.interest.clone(), log.whole());
            let lowest = log.first().lsn;
            let unseeded = ShipError::Unseeded { peer: peer.clone(), wanted, here, lowest };
            return Err(part(link, &welcomed, unseeded).await);
        }
        if fell_off || terms.now && !gone_back && whole {
            return Ok(Called::Seed(link, Box::new(welcomed)));
        }
        let from = handshake::start(located, &peer)?;
        let mut route = Route::new(&me, own, from);
        match self.config.forward {
            Forward::Never => {}
            Forward::Always => route.forward(&peer),
            Forward::OnDemand => route.forward_on_demand(&peer, self.asked.clone()),
        }
        for (name, incarnation) in forwarded {
            match held_of(&welcomed, &name, incarnation, me.partitions) {
                Ok(_) if !whole => route.leave_out(&name, &unserved().to_string()),
                Ok(held) => {
                    let located = log.locate(name.tag(), Some(&held)).await?;
                    if matches!(located, Located::FellOff { .. }) && terms.cover(name.tag()) {
                        return Ok(Called::Seed(link, Box::new(welcomed)));
                    }
                    route.take_up(&name, held, located);
                }
                Err(why) => route.leave_out(&name, &why),
            }
        }
        Ok(Called::Open(self.open(link, &welcomed, route, log)))
    }

    fn forwards(&self) -> bool {
        match self.config.forward {
            Forward::Never => false,
            Forward::Always => true,
            Forward::OnDemand => !self.asked.is_empty(),
        }
    }

    /// The other origins that are to be sent on, by name.
    fn forwarded(&self, log: &Arc<dyn LogView>) -> Vec<(ClusterId, Incarnation)> {
        let mut origins = if self.forwards() { log.origins() } else { Vec::new() };
        let all = self.config.forward == Forward::Always;
        origins.retain(|(name, _)| name != self.peer() && (all || self.asked.contains(&name.tag())));
        origins
    }

    fn open(&mut self, link: Link, welcomed: &Welcomed, route: Route, log: &Arc<dyn LogView>) -> Cursor {
        let (me, peer, from) = (log.identity(), self.peer().clone(), route.from);
        let session = welcomed.session;
        tracing::info!(tree = %me.tree, %peer, %session, lsn = %from.lsn, origins = route.carried.len(), "shipping");
        for reason in &route.reasons {
            tracing::warn!(tree = %me.tree, %peer, reason, "an origin is left out of a link");
        }
        self.metrics.left_out.set(i64::try_from(route.reasons.len()).unwrap_or(i64::MAX));
        (self.config.hold)(from);
        self.config.news.tell();
        self.look_again_at = (route.fell_off || route.owes()).then(|| Instant::now() + LOOK_AGAIN);
        self.board.opened(route.carried.clone(), from, &route.reasons);
        let settings = self.config.settings.clone();
        let session = Session::new(peer, me, welcomed, route, settings, Instant::now());
        self.live = Some(Live {
            session,
            outbox: Outbox::new(link.sender),
            receiver: link.receiver,
            log: log.clone(),
        });
        self.stand_at = Instant::now();
        from
    }

    fn live(&mut self) -> Result<&mut Live, SinkError> {
        self.live.as_mut().ok_or_else(|| SinkError::new(SinkErrorKind::Transient, "there is no session"))
    }

    /// Puts on its way what may leave now.
    fn flush(&mut self) {
        let Some(live) = &mut self.live else { return };
        // Heartbeats do not pile up behind a link that takes nothing: they follow pages, which are bounded, or nothing.
        let mut may_promise = live.outbox.is_empty();
        while let Some(wave) = live.session.next_wave(Instant::now()) {
            self.metrics.records.inc_by(wave.records);
            self.metrics.bytes.inc_by(wave.bytes);
            self.metrics.sent.inc_by(wave.sent);
            wave.frames.into_iter().for_each(|frame| live.outbox.push(frame));
            may_promise = true;
        }
        if may_promise {
            live.session.flow().on_time(Instant::now());
            live.session.next_heartbeats().into_iter().for_each(|frame| live.outbox.push(frame));
        }
    }

    /// Looks now and then how far every origin is complete here, also while there are records all the time.
    async fn look(&mut self, idle: bool) -> Result<(), SinkError> {
        let now = Instant::now();
        if self.look_again_at.is_some_and(|at| at <= now) {
            return Err(self.say_again(ShipError::LookAgain { peer: self.peer().clone() }));
        }
        if now < self.stand_at && !(idle && self.forwards()) {
            return Ok(());
        }
        self.stand_at = now + self.config.settings.pump.idle_first;
        let log = self.live()?.log.clone();
        let outlook = log.outlook().await;
        let session = &mut self.live()?.session;
        let to_come = log.bytes_after(session.at());
        let mut ends = outlook.progress.watermarks.clone();
        ends.insert(log.identity().origin(), log.tails());
        session.flow().look(&ends, to_come);
        let stood = session.stand(outlook);
        stood.map_err(|error| self.say_again(error))
    }

    /// The session ends in order when it is closed, and the next one begins with a new hello.
    fn say_again(&self, error: ShipError) -> SinkError {
        self.board.failed(&error);
        error.into()
    }

    fn show(&mut self) {
        if let Some(Live { session, .. }) = &mut self.live {
            let paused = session.flow().paused(&self.config.peer.peer).is_some();
            let limited = session.flow().limited(Instant::now());
            self.board.flows(paused, limited);
            let ledger = session.ledger();
            self.board.moved(ledger.peer(), ledger.durable(), session.oldest(), session.waits());
        }
    }

    /// Waits for the next thing that happens on the link, and acts on it. Cancel-safe.
    async fn step(&mut self) -> Result<(), SinkError> {
        let peer = self.peer().clone();
        let live = self.live()?;
        let Live { session, outbox, receiver, .. } = live;
        let deadline = session.deadline();
        let link_error = |error: LinkError| ShipError::Link { peer: peer.clone(), error };
        let happened = tokio::select! { biased;
            frame = receiver.receive() => match frame {
                Ok(Some(frame)) => session.receive(frame, Instant::now()),
                Ok(None) => Err(ShipError::Ended { peer: peer.clone(), reason: "the stream ended".to_owned() }),
                Err(error) => Err(link_error(error)),
            },
            sent = outbox.drive(), if !outbox.is_empty() => sent.map(|()| false).map_err(link_error),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                session.on_time(Instant::now()).map(|()| false)
            }
        };
        match happened {
            Ok(acknowledged) => {
                if acknowledged {
                    self.board.heard(Instant::now());
                }
                self.flush();
                self.show();
                Ok(())
            }
            Err(ShipError::Asked { peer, wanted }) => {
                tracing::info!(%peer, origins = wanted.len(), "the peer asks for writes of others, or no more");
                self.asked.clone_from(&wanted);
                Err(self.say_again(ShipError::Asked { peer, wanted }))
            }
            Err(error) => Err(self.fail(error)),
        }
    }
}

/// Tells the peer why it is left.
async fn part(mut link: Link, welcomed: &Welcomed, why: ShipError) -> ShipError {
    let goodbye = Body::Goodbye(wire::Goodbye { reason: why.to_string() });
    let said = timeout(FAREWELL, async {
        link.sender.send(Frame::new(welcomed.session.get(), goodbye)).await?;
        link.sender.close().await;
        Ok::<(), LinkError>(())
    });
    // The status here says it in any case.
    let _unheard = said.await;
    why
}

#[async_trait]
impl Sink for Shipper {
    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.live = None;
        match self.connect(&ctx.log).await {
            Ok(from) => Ok(Some(from)),
            Err(error) => Err(self.fail(error)),
        }
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        self.look(batch.resolved().is_some()).await?;
        for (count, group) in (1..).zip(batch.groups()) {
            while !self.live()?.session.has_room(group) {
                self.flush();
                if self.live()?.session.has_room(group) {
                    break;
                }
                let look_at = self.stand_at;
                tokio::select! { biased;
                    stepped = self.step() => stepped?,
                    () = sleep_until(look_at) => {}
                }
                self.look(false).await?;
            }
            let now = Instant::now();
            let session = &mut self.live()?.session;
            let offered = session.offer(group, batch.cursor_after(count), now);
            let left_out = session.count_left_out();
            self.metrics.uninteresting.inc_by(left_out);
            offered.map_err(|error| self.say_again(error))?;
        }
        self.flush();
        if let Some(resolved) = batch.resolved() {
            let live = self.live()?;
            let tail_bytes = live.log.bytes_after(live.session.ledger().durable().lsn);
            live.session.promise(resolved.clone(), tail_bytes);
            self.flush();
        }
        self.show();
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        loop {
            if let Some(cursor) = self.live()?.session.take_durable() {
                return Ok(cursor);
            }
            self.step().await?;
        }
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        self.live()?.session.set_flushing(true);
        self.flush();
        while self.live()?.session.has_backlog() {
            self.step().await?;
        }
        let session = &mut self.live()?.session;
        session.set_flushing(false);
        session.take_durable();
        Ok(session.ledger().durable())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.board.closed();
        let Some(mut live) = self.live.take() else { return Ok(()) };
        live.outbox.push(live.session.goodbye("the shipper stops"));
        live.outbox.close().await.map_err(|error| {
            SinkError::new(SinkErrorKind::Transient, "goodbye could not be said").with_source(error)
        })
    }
}
