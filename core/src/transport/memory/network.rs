//! The network that the clusters of one simulation share, and its switches.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fault::Wire;
use super::pipe::{End, Pipe, PipeReceiver, PipeSender};
use super::transport::MemTransport;
use crate::error::{LinkError, LinkErrorKind};
use crate::id::ClusterId;
use crate::random::Random;
use crate::transport::link::Link;

/// Bytes that may be on the way in one direction of a link; a single larger frame passes alone.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Links that may wait to be accepted by one endpoint.
pub(super) const BACKLOG: usize = 64;
/// How long a link lives through a cut before both ends take the other for dead: the keep-alive of a real transport.
pub(super) const SILENCE: Duration = Duration::from_secs(20);

pub(super) struct State {
    pub(super) random: Random,
    window: usize,
    default_wire: Wire,
    wires: BTreeMap<(ClusterId, ClusterId), Wire>,
    pub(super) listeners: BTreeMap<ClusterId, (u64, mpsc::Sender<Link>)>,
    pipes: Vec<Weak<Pipe>>,
    pub(super) next_number: u64,
}

/// Named endpoints and the wires between them. Cheap to clone; clones are the same network.
#[derive(Clone)]
pub struct MemNetwork {
    pub(super) state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for MemNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemNetwork").field("open_links", &self.open_links()).finish()
    }
}

impl MemNetwork {
    /// A perfect network: no delay, no faults.
    pub fn new(random: &Random) -> Self {
        let state = State {
            random: random.fork(),
            window: WINDOW_BYTES,
            default_wire: Wire::default(),
            wires: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pipes: Vec::new(),
            next_number: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Bounds the bytes on the way in each direction of links opened from now on.
    #[must_use]
    pub fn with_window(self, bytes: usize) -> Self {
        self.state.lock().window = bytes;
        self
    }

    /// The transport of a cluster on this network. Its address is `mem://` and the name.
    pub fn endpoint(&self, cluster: &ClusterId) -> MemTransport {
        MemTransport::new(self.clone(), cluster.clone())
    }

    /// Sets how long frames are on the way between two clusters, each direction drawn between the two bounds. Order is
    /// kept.
    pub fn set_delay(&self, a: &ClusterId, b: &ClusterId, shortest: Duration, longest: Duration) {
        self.both_ways(a, b, |wire| wire.delay = (shortest, longest.max(shortest)));
    }

    /// Sets the chance that a frame between two clusters breaks its link, and is lost with all that is on the way.
    pub fn set_break_chance(&self, a: &ClusterId, b: &ClusterId, chance: f64) {
        self.both_ways(a, b, |wire| wire.break_chance = chance);
    }

    /// Sets the chances that a frame between two clusters arrives twice, and that it overtakes the one before it: what no
    /// stream does, and a session must survive.
    pub fn set_adversary(&self, a: &ClusterId, b: &ClusterId, repeat: f64, reorder: f64) {
        self.both_ways(a, b, |wire| (wire.repeat_chance, wire.reorder_chance) = (repeat, reorder));
    }

    /// Sets delay and break chance for every pair that has no setting of its own yet.
    pub fn set_default(&self, shortest: Duration, longest: Duration, break_chance: f64) {
        let mut state = self.state.lock();
        state.default_wire.delay = (shortest, longest.max(shortest));
        state.default_wire.break_chance = break_chance;
    }

    /// Nothing passes between two clusters any more. Frames wait, links live on for 20 s of silence, dials time out.
    pub fn cut(&self, a: &ClusterId, b: &ClusterId) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// As [`cut`](Self::cut), for one direction only.
    pub fn cut_one_way(&self, from: &ClusterId, to: &ClusterId) {
        let now = Instant::now();
        self.change(from, to, |wire| wire.cut_since = wire.cut_since.or(Some(now)));
    }

    /// Ends every cut between two clusters. What waited arrives.
    pub fn heal(&self, a: &ClusterId, b: &ClusterId) {
        self.both_ways(a, b, |wire| wire.cut_since = None);
    }

    /// Ends every fault: cuts, breaks, repeats and reorders. Delays stay.
    pub fn heal_all(&self) {
        {
            let mut state = self.state.lock();
            let State { wires, default_wire, .. } = &mut *state;
            for wire in wires.values_mut().chain([default_wire]) {
                *wire = Wire { delay: wire.delay, ..Wire::default() };
            }
        }
        self.wake(|_| true);
    }

    /// Breaks the links between two clusters now, both ends learn it. Dialling again works.
    pub fn break_links(&self, a: &ClusterId, b: &ClusterId) {
        self.break_where(|pipe| pipe.joins(a, b), "the connection was reset");
    }

    /// What the death of a cluster's process does: its links break, frames on their way are lost, it accepts no more.
    /// It is back when it listens again.
    pub fn kill(&self, cluster: &ClusterId) {
        self.state.lock().listeners.remove(cluster);
        self.break_where(|pipe| pipe.touches(cluster), "the connection was reset by a dead process");
    }

    /// How many directions of links are open: for tests that nothing leaks.
    pub fn open_links(&self) -> usize {
        self.state.lock().pipes.iter().filter_map(Weak::upgrade).filter(|pipe| pipe.is_open()).count()
    }

    /// The state of one direction now.
    pub(super) fn wire(&self, from: &ClusterId, to: &ClusterId) -> Wire {
        self.state.lock().wire(from, to).clone()
    }

    /// Joins two clusters by a new link; the first end is the caller's.
    pub(super) fn join(&self, from: &ClusterId, to: &ClusterId) -> (Link, Link) {
        let mut state = self.state.lock();
        state.pipes.retain(|pipe| pipe.strong_count() > 0);
        let window = state.window;
        let mut pipe = |from: &ClusterId, to: &ClusterId| {
            let pipe = Arc::new(Pipe::new(from.clone(), to.clone(), window, state.random.fork()));
            state.pipes.push(Arc::downgrade(&pipe));
            pipe
        };
        let (there, back) = (pipe(from, to), pipe(to, from));
        let end = |out: &Arc<Pipe>, back: &Arc<Pipe>| Link {
            sender: Box::new(PipeSender::new(self.clone(), out.clone(), back.clone())),
            receiver: Box::new(PipeReceiver::new(self.clone(), back.clone(), out.clone())),
            remote: format!("mem://{}", out.to),
        };
        (end(&there, &back), end(&back, &there))
    }

    fn both_ways(&self, a: &ClusterId, b: &ClusterId, change: impl Fn(&mut Wire)) {
        self.change(a, b, &change);
        self.change(b, a, &change);
    }

    fn change(&self, from: &ClusterId, to: &ClusterId, change: impl FnOnce(&mut Wire)) {
        {
            let mut state = self.state.lock();
            let default = state.default_wire.clone();
            change(state.wires.entry((from.clone(), to.clone())).or_insert(default));
        }
        self.wake(|pipe| pipe.joins(from, to));
    }

    fn wake(&self, which: impl Fn(&Pipe) -> bool) {
        for pipe in self.pipes() {
            if which(&pipe) {
                pipe.wake();
            }
        }
    }

    fn break_where(&self, which: impl Fn(&Pipe) -> bool, why: &str) {
        for pipe in self.pipes() {
            if which(&pipe) {
                pipe.end(End::Broken(LinkError::new(LinkErrorKind::Unreachable, why)));
            }
        }
    }

    fn pipes(&self) -> Vec<Arc<Pipe>> {
        self.state.lock().pipes.iter().filter_map(Weak::upgrade).collect()
    }
}

impl State {
    fn wire(&self, from: &ClusterId, to: &ClusterId) -> &Wire {
        self.wires.get(&(from.clone(), to.clone())).unwrap_or(&self.default_wire)
    }
}
