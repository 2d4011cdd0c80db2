//! [`WalFaults`]: what a [`FaultyStorage`](super::FaultyStorage) is to do wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::completion::Completion;
use crate::error::StorageErrorKind;
use crate::random::Random;
use crate::record::Group;

/// A call of a log provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WalCall {
    /// `append`.
    Append,
    /// `reconcile`.
    Reconcile,
    /// `read` and `read_filtered`.
    Read,
    /// `trim`.
    Trim,
    /// `enroll`.
    Enroll,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalFault {
    /// It fails, and nothing comes of it.
    Fail(StorageErrorKind),
    /// No answer, whoever gives up on it; it goes on, late, when the faults are released.
    Hang,
    /// The same, and the thread that calls hangs with it. Not for a simulation, which has only one.
    Block,
    /// It comes so much later than it would.
    Late(Duration),
    /// It is done at once, and only the answer comes so much later. For an append.
    AnswerLate(Duration),
    /// The provider panics.
    Panic,
}

/// A call that hangs.
pub(super) enum Hanging {
    Append(Arc<Group>, Completion),
    Reconcile(Completion),
}

#[derive(Default)]
struct Plan {
    counts: BTreeMap<WalCall, u64>,
    scripted: BTreeMap<(WalCall, u64), WalFault>,
    always: BTreeMap<WalCall, WalFault>,
    chances: BTreeMap<WalCall, f64>,
    latency: (Duration, Duration),
    hanging: Vec<Hanging>,
    /// Raised by every release.
    releases: u64,
}

struct Inner {
    plan: Mutex<Plan>,
    random: Random,
    blocked: Condvar,
    waiting: Notify,
}

/// The faults of one log provider, to be changed while it is in use. Clones are the same faults. Without an order
/// nothing goes wrong.
#[derive(Clone)]
pub struct WalFaults(Arc<Inner>);

impl WalFaults {
    /// No faults yet. The seed decides those that are left to chance, and how long a call takes.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Inner {
            plan: Mutex::default(),
            random: Random::from_seed(seed),
            blocked: Condvar::new(),
            waiting: Notify::new(),
        }))
    }

    /// Something goes wrong with the `nth` call of a kind from now on; 1 is the next one.
    pub fn order(&self, call: WalCall, nth: u64, fault: WalFault) {
        let mut plan = self.0.plan.lock();
        let at = plan.counts.get(&call).copied().unwrap_or(0) + nth;
        plan.scripted.insert((call, at), fault);
    }

    /// Something goes wrong with every call of a kind.
    pub fn always(&self, call: WalCall, fault: WalFault) {
        self.0.plan.lock().always.insert(call, fault);
    }

    /// Calls of a kind go wrong with a probability from 0 to 1: most fail, some hang or answer
    /// late.
    pub fn by_chance(&self, call: WalCall, chance: f64) {
        self.0.plan.lock().chances.insert(call, chance);
    }

    /// Every append takes from `least` to `most` before it reaches the provider.
    pub fn latency(&self, least: Duration, most: Duration) {
        self.0.plan.lock().latency = (least, most);
    }

    /// How many calls of a kind there were.
    pub fn count(&self, call: WalCall) -> u64 {
        self.0.plan.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// How many calls hang.
    pub fn hanging(&self) -> usize {
        self.0.plan.lock().hanging.len()
    }

    /// The end of all faults but latency; what hangs goes on hanging until [`FaultyStorage::release`] lets it go.
    ///
    /// [`FaultyStorage::release`]: super::FaultyStorage::release
    pub fn heal(&self) {
        let mut plan = self.0.plan.lock();
        plan.scripted.clear();
        plan.always.clear();
        plan.chances.clear();
    }

    /// Counts a call and says what goes wrong with it.
    pub(super) fn next(&self, call: WalCall) -> Option<WalFault> {
        let mut plan = self.0.plan.lock();
        let count = plan.counts.entry(call).or_insert(0);
        *count += 1;
        let at = (call, *count);
        let chance = plan.chances.get(&call).copied().unwrap_or(0.0);
        let by_chance = || {
            let kinds = [
                WalFault::Fail(StorageErrorKind::Io),
                WalFault::Fail(StorageErrorKind::Full),
                WalFault::Hang,
                WalFault::AnswerLate(Duration::from_millis(self.0.random.below(1_000))),
            ];
            let unlucky = chance > 0.0 && self.0.random.chance(chance);
            unlucky.then(|| kinds[usize::try_from(self.0.random.below(4)).unwrap_or(0)])
        };
        plan.scripted.remove(&at).or_else(|| plan.always.get(&call).copied()).or_else(by_chance)
    }

    /// How long an append takes.
    pub(super) fn delay(&self) -> Duration {
        let (least, most) = self.0.plan.lock().latency;
        let spread = u64::try_from(most.saturating_sub(least).as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(self.0.random.below(spread.saturating_add(1)))
    }

    pub(super) fn hang(&self, call: Hanging) {
        self.0.plan.lock().hanging.push(call);
    }

    /// Blocks the thread until the next release.
    pub(super) fn block(&self) {
        let mut plan = self.0.plan.lock();
        let before = plan.releases;
        while plan.releases == before {
            self.0.blocked.wait(&mut plan);
        }
    }

    /// Waits until the next release.
    pub(super) async fn wait(&self) {
        self.0.waiting.notified().await;
    }

    /// Lets everything go that hangs.
    pub(super) fn release(&self) -> Vec<Hanging> {
        let mut plan = self.0.plan.lock();
        plan.releases += 1;
        self.0.blocked.notify_all();
        self.0.waiting.notify_waiters();
        std::mem::take(&mut plan.hanging)
    }
}
