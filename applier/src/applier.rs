//! [`Applier`]: takes what all links of one tree bring, and hands what is ready to the tree. One task.
//!
//! While the tree makes one batch durable the inbox fills, and the next batch is everything that has come meanwhile: that
//! is all the batching there is. Nothing is acknowledged that the tree has not answered for: sessions acknowledge from
//! the [`View`] that is published after each call.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::causal::VersionVector;
use tidewire_core::error::Error;
use tidewire_core::id::{ClusterId, Hlc, OriginTag};
use tidewire_core::letters::{Letter, RecordFault};
use tidewire_core::record::ReadyGroup;
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::pages::Page;
use tidewire_core::tree::{ApplyTarget, TreeIdentity};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::batch::Batch;
use crate::budget::{Budget, Permit};
use crate::canaries::Canaries;
use crate::demand::Demands;
use crate::faults::{Attempts, TRIES};
use crate::gate::{Gate, page_cost};
use crate::judging::{park_and_apply, tell_given_up, tell_taken};
use crate::late::{LeftOut, take_late};
use crate::metrics::{ApplierMetrics, OriginMetrics, applied, show_dead_letters, took};
use crate::pause::Stall;
use crate::port::Port;
use crate::seeding::Shown;
use crate::settings::{BUSY, INBOX, RECHECK, RETRY, Settings};
use crate::turn::{Done, Turn, Work};
use crate::view::{Input, View};
use tidewire_core::latest::{Follower, Latest};

#[derive(Debug)]
enum Message {
    From(Arc<Port>, Input),
    Forget(Vec<OriginTag>, oneshot::Sender<()>),
    Turn(Turn),
}

struct Shared {
    target: Arc<dyn ApplyTarget>,
    identity: TreeIdentity,
    settings: Settings,
    metrics: ApplierMetrics,
    origins: Mutex<BTreeMap<OriginTag, (ClusterId, OriginMetrics)>>,
    budget: Budget,
    inbox: mpsc::Sender<Message>,
    view: Latest<Arc<View>>,
    stop: CancellationToken,
    seed: Shown,
    attempts: Attempts,
    left_out: LeftOut,
}

/// The applier of one tree. Cheap to clone; clones are the same applier.
#[derive(Clone)]
pub struct Applier(Arc<Shared>);

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("tree", &self.0.identity.tree).finish_non_exhaustive()
    }
}

impl Applier {
    /// Starts the applier of a tree. It runs until the tasks are stopped or [`stop`](Self::stop) is called.
    ///
    /// # Errors
    /// `Invalid` when the settings do not fit each other.
    pub fn spawn(
        tasks: &Tasks,
        target: Arc<dyn ApplyTarget>,
        settings: Settings,
        metrics: &ApplierMetrics,
    ) -> Result<Self, Error> {
        let settings = settings.validate()?;
        let identity = target.identity();
        let (inbox, messages) = mpsc::channel(INBOX);
        let view = View { progress: target.progress(), ..View::default() };
        let shared = Arc::new(Shared {
            target,
            budget: Budget::new(settings.buffer_bytes),
            settings,
            metrics: metrics.clone(),
            origins: Mutex::default(),
            inbox,
            view: Latest::new(Arc::new(view)),
            stop: tasks.stop_token().child_token(),
            seed: Shown::default(),
            attempts: Attempts::default(),
            left_out: LeftOut::default(),
            identity,
        });
        let identity = &shared.identity;
        metrics.show_seeds(&identity.tree);
        let relay_after = Some(shared.settings.relay_after).filter(|after| !after.is_zero());
        let runner = Runner {
            gate: Gate::new(identity.partitions, identity.consistency),
            demands: Demands::new(relay_after),
            shared: shared.clone(),
            messages,
            stalled: None,
            turn: None,
            epoch: 0,
            canaries: Canaries::default(),
        };
        tasks.spawn(format!("apply {}", identity.tree), runner.run());
        Ok(Self(shared))
    }

    /// Ends the task after the call of the tree that is under way. Sessions on the tree say goodbye.
    pub fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Which tree this is.
    pub fn identity(&self) -> &TreeIdentity {
        &self.0.identity
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.0.attempts
    }

    pub(crate) fn left_out(&self) -> &LeftOut {
        &self.0.left_out
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn target(&self) -> &dyn ApplyTarget {
        &*self.0.target
    }

    pub(crate) fn view(&self) -> Follower<Arc<View>> {
        self.0.view.follow()
    }

    /// The series of an origin, which exist from here on.
    pub(crate) fn metrics(&self, origin: &ClusterId) -> OriginMetrics {
        let mut origins = self.0.origins.lock();
        let entry = origins
            .entry(origin.tag())
            .or_insert_with(|| (origin.clone(), self.0.metrics.origin(&self.0.identity.tree, origin)));
        entry.1.clone()
    }

    /// The families of series.
    pub(crate) fn families(&self) -> &ApplierMetrics {
        &self.0.metrics
    }

    /// The name of an origin, as far as it is known here.
    pub(crate) fn name(&self, origin: OriginTag) -> String {
        let Shared { identity, origins, .. } = &*self.0;
        match origins.lock().get(&origin) {
            Some((name, _)) => name.to_string(),
            None if origin == identity.origin() => identity.cluster.to_string(),
            None => format!("a cluster that is not known here, tag {origin}"),
        }
    }

    /// Bytes that were taken and are not applied, and how many may be. One page of each peer may come on top.
    pub fn buffered(&self) -> (u64, u64) {
        self.0.budget.total()
    }

    /// Bytes that a peer brought and that are not applied.
    pub(crate) fn queued(&self, peer: &ClusterId) -> u64 {
        self.0.budget.used(peer.tag())
    }

    /// What a peer may send now.
    pub(crate) fn credit(&self, peer: &ClusterId, view: &View) -> u64 {
        if view.stalled.is_some() || view.closed { 0 } else { self.0.budget.credit(peer.tag()) }
    }

    /// Takes room for a page of a peer. Cancel-safe.
    pub(crate) async fn room(&self, peer: &ClusterId, page: &Page) -> Permit {
        self.0.budget.take(peer.tag(), page_cost(page)).await
    }

    /// Waits for a place in the inbox and fills it. Cancel-safe in that all or nothing is handed over; false: the applier
    /// has ended.
    pub(crate) async fn submit(&self, port: &Arc<Port>, input: &mut Option<Input>) -> bool {
        let Ok(place) = self.0.inbox.reserve().await else { return false };
        if let Some(input) = input.take() {
            place.send(Message::From(port.clone(), input));
        }
        true
    }

    /// Has work done between two rounds. None: the applier has ended.
    pub(crate) async fn turn(&self, work: Work) -> Option<oneshot::Receiver<Done>> {
        let (answer, answered) = oneshot::channel();
        self.0.inbox.send(Message::Turn(Turn { work, answer })).await.ok()?;
        Some(answered)
    }

    /// Brings the gauges of the dead letters up to date, which are settled without the applier.
    pub fn show_dead_letters(&self) {
        let counts = self.0.target.parking().map(|parking| parking.counts).unwrap_or_default();
        show_dead_letters(&self.0.origins.lock(), &counts);
    }

    /// Shows whose seed comes in.
    pub(crate) fn show_seed(&self, seed: Option<(ClusterId, u64)>) {
        *self.0.seed.lock() = seed;
    }

    /// Whose seed comes in, and how many bytes have come, if one does.
    pub fn seed(&self) -> Option<(ClusterId, u64)> {
        self.0.seed.lock().clone()
    }

    /// Drops what waits of origins that no session brings. When it returns, nothing of them is applied any more.
    pub(crate) async fn forget(&self, origins: Vec<OriginTag>) {
        let (done, forgotten) = oneshot::channel();
        // An applier that has ended holds nothing.
        if self.0.inbox.send(Message::Forget(origins, done)).await.is_ok() {
            let _ended = forgotten.await;
        }
    }
}

struct Runner {
    shared: Arc<Shared>,
    gate: Gate,
    demands: Demands,
    messages: mpsc::Receiver<Message>,
    stalled: Option<Arc<Stall>>,
    turn: Option<Turn>,
    epoch: u64,
    /// Promises whose way is being measured.
    canaries: Canaries,
}

impl Runner {
    async fn run(mut self) {
        let stop = self.shared.stop.clone();
        self.publish(false);
        loop {
            tokio::select! { biased;
                () = stop.cancelled() => break,
                Some(message) = self.messages.recv() => self.take(message),
                () = sleep(RECHECK), if self.gate.is_holding() || self.demands.is_asking() => {}
            }
            if !self.round().await {
                break;
            }
        }
        self.messages.close();
        self.publish(true);
    }

    /// Applies until nothing is ready. False: the tree takes nothing any more.
    async fn round(&mut self) -> bool {
        let mut pause = RETRY.0;
        loop {
            // One turn at a time: what comes behind it waits in the inbox.
            while self.turn.is_none()
                && let Ok(message) = self.messages.try_recv()
            {
                self.take(message);
            }
            if let Some(turn) = self.turn.take()
                && !self.turn(turn).await
            {
                return false;
            }
            let frontier = self.shared.target.visible();
            self.give_up(&frontier);
            let mut batch = self.gate.take(&frontier, self.shared.settings.apply_bytes);
            for (origin, closed) in &batch.advances {
                self.shared.target.advance(*origin, *closed);
            }
            let groups = batch.ready();
            if groups.is_empty() && batch.advances.is_empty() {
                // What the tree did not take is not waiting any more: others would be asked to pause for ever.
                self.stalled = None;
                self.publish(false);
                return true;
            }
            if groups.is_empty() {
                continue;
            }
            match self.apply(batch.letters(), groups).await {
                Ok(()) => {
                    self.applied(&batch);
                    pause = RETRY.0;
                    drop(batch);
                    self.publish(false);
                }
                Err(error) => {
                    if let Some(RecordFault { dot, reason }) = RecordFault::of(&error)
                        && self.shared.attempts.count(*dot) >= TRIES
                        && batch.blame(*dot, reason)
                    {
                        self.gate.give_back(batch);
                        continue;
                    }
                    self.gate.give_back(batch);
                    if error.is_shutting_down() {
                        return false;
                    }
                    self.stall(&error);
                    tokio::select! { biased;
                        () = self.shared.stop.cancelled() => return false,
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(RETRY.1);
                }
            }
            if self.shared.stop.is_cancelled() {
                return false;
            }
        }
    }

    /// Hands groups to the tree. If that takes long, the log is saturated, and peers are asked to pause.
    async fn apply(&mut self, letters: Vec<Letter>, groups: Vec<ReadyGroup>) -> Result<(), Error> {
        let target = self.shared.target.clone();
        let mut applied = Box::pin(park_and_apply(&*target, letters, groups));
        match timeout(BUSY, &mut applied).await {
            Ok(applied) => applied,
            Err(_) => {
                if self.stalled.is_none() {
                    self.stalled = Some(Arc::new(Stall::Busy));
                    self.publish(false);
                }
                let applied = applied.await;
                self.stalled.take_if(|stall| **stall == Stall::Busy);
                applied
            }
        }
    }

    /// Where the settings say so, lets go what has waited too long.
    fn give_up(&mut self, frontier: &VersionVector) {
        let Some(patience) = self.shared.settings.apply_after else { return };
        for one in self.gate.give_up(frontier, patience, Instant::now()) {
            tell_given_up(&Applier(self.shared.clone()), &self.shared.origins, &one);
        }
    }

    /// Does it, with the tree at rest, and forgets what waited: links begin anew. False: the tree takes nothing any more.
    async fn turn(&mut self, Turn { work, answer }: Turn) -> bool {
        let (target, before) = (self.shared.target.clone(), self.shared.target.interest());
        let done = tokio::select! { biased;
            () = self.shared.stop.cancelled() => return false,
            done = work.run(&*target, self.epoch) => done,
        };
        // Other keys may be held though not all that is to go has gone.
        if done.is_ok() || target.interest() != before {
            let TreeIdentity { tree, partitions, consistency, .. } = &self.shared.identity;
            self.gate = Gate::new(*partitions, *consistency);
            self.epoch += 1;
            done.iter().flatten().for_each(|imported| self.shared.metrics.seeded(tree, imported));
            self.publish(false);
        }
        let _gone = answer.send(done);
        true
    }

    fn take(&mut self, message: Message) {
        let (port, input) = match message {
            Message::Turn(turn) => {
                self.turn = Some(turn);
                return;
            }
            Message::Forget(origins, done) => {
                origins.into_iter().for_each(|origin| self.gate.forget(origin));
                return drop(done);
            }
            Message::From(port, input) => (port, input),
        };
        let mut applied = self.shared.target.progress();
        if port.has_ended() || !port.is_of(self.epoch) {
            return;
        }
        let (origin, taken) = match input {
            Input::Page(page, permit, mut letters) => {
                let (origin, id) = (page.origin, page.id);
                self.demands.came(origin, origin == port.peer.tag(), Instant::now());
                let late = self.gate.late(&page, &applied);
                if !late.is_empty() {
                    if !take_late(&Applier(self.shared.clone()), &port, &applied, &mut letters, late) {
                        return;
                    }
                    applied.reaped = Hlc::ZERO;
                }
                let taken = self.gate.admit(page, permit, &applied, Instant::now());
                if taken.is_ok() {
                    self.gate.blame(letters);
                }
                (origin, taken.map_err(|refusal| refusal.of_page(id)))
            }
            Input::Heartbeat(heartbeat) => {
                if heartbeat.origin == port.peer.tag() {
                    self.demands.came(heartbeat.origin, true, Instant::now());
                }
                let taken = self.gate.heartbeat(&heartbeat, &applied).map(|()| 0);
                if heartbeat.canary && taken.is_ok() {
                    self.canaries.set_out(heartbeat.origin, heartbeat.closed);
                }
                (heartbeat.origin, taken)
            }
        };
        tell_taken(&self.shared.origins, &port, origin, taken);
    }

    fn applied(&mut self, batch: &Batch) {
        if self.stalled.take().is_some() {
            tracing::info!(tree = %self.shared.identity.tree, "the log takes groups again");
        }
        let wall = self.shared.target.wall_millis();
        let origins = self.shared.origins.lock();
        applied(&origins, &batch.counts());
        took(&origins, wall, batch.written());
    }

    fn stall(&mut self, error: &Error) {
        if self.stalled.is_none() {
            tracing::warn!(tree = %self.shared.identity.tree, %error, "the log takes no groups, they are kept and tried again");
        }
        self.stalled = Some(Arc::new(Stall::Failing { full: error.is_disk_full(), said: error.to_string() }));
        self.publish(false);
    }

    /// Tells the sessions how things stand.
    fn publish(&mut self, closed: bool) {
        let progress = self.shared.target.progress();
        let arrived = self.canaries.arrived(&progress.frontier);
        took(&self.shared.origins.lock(), self.shared.target.wall_millis(), arrived);
        let waiting = self.gate.waiting(&self.shared.target.visible());
        let Shared { identity, origins, .. } = &*self.shared;
        self.shared.metrics.show(identity, &origins.lock(), &waiting, &progress.frontier);
        let wanted = self.demands.look(waiting.iter(), Instant::now());
        let (stalled, epoch) = (self.stalled.clone(), self.epoch);
        self.shared.view.set(Arc::new(View { progress, waiting, wanted, stalled, closed, epoch }));
    }
}
