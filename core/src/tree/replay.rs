//! [`Replay`]: groups of a log on their way into a state, read ahead on one thread while another applies them.
//!
//! The thread that reads never waits for the other one: when it is too far ahead it applies a part itself. So a replay
//! ends whether or not there is a second thread to be had, and a short one asks for none.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::snapshot::PROGRESS_EVERY;
use super::state::State;
use crate::causal::VersionVector;
use crate::clock::HybridClock;
use crate::id::{Lsn, OriginTag};
use crate::record::Group;
use crate::tasks::{Tasks, Threads};
use crate::wal::file::Manifest;

/// Bytes of groups that are handed over at once.
const PORTION_BYTES: u64 = if cfg!(test) { 1_000 } else { 1024 * 1024 };
/// Most portions that wait.
const WAITING: usize = 8;

/// What groups are applied to.
pub(super) struct Replayed {
    pub(super) state: State,
    pub(super) observed: VersionVector,
    pub(super) own: OriginTag,
    pub(super) known: Manifest,
    pub(super) clock: Arc<HybridClock>,
    /// For messages: the log, and where the replay began.
    pub(super) dir: PathBuf,
    pub(super) from: Lsn,
    pub(super) told: Instant,
}

impl Replayed {
    fn apply(&mut self, group: &Group) {
        let known = &self.known;
        self.state.apply(group, |origin| known.incarnation_of(origin).unwrap_or(known.incarnation));
        for framed in group.blocks() {
            // The clock and the writer have seen what is replayed.
            self.clock.observe(framed.block.last_hlc());
            if framed.block.origin() == self.own {
                self.clock.observe(framed.frame.closed);
            } else {
                self.observed.raise(framed.block.origin(), framed.block.last_hlc());
            }
        }
    }

    fn tell(&mut self, at: Lsn) {
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            tracing::info!(dir = %self.dir.display(), from = %self.from, at = %at, "replaying a log");
        }
    }
}

type Portion = Vec<Arc<Group>>;

#[derive(Default)]
struct Waiting {
    portions: VecDeque<Portion>,
    complete: bool,
}

struct Shared {
    waiting: Mutex<Waiting>,
    came: Condvar,
    /// Not there while a portion is applied, and for good if that panicked.
    replayed: Mutex<Option<Replayed>>,
}

impl Shared {
    /// Applies the portion that is next; says whether there was one.
    fn apply_one(&self) -> bool {
        // Held over both, so that portions are applied in their order.
        let mut place = self.replayed.lock();
        let Some(portion) = self.waiting.lock().portions.pop_front() else { return false };
        if let Some(mut replayed) = place.take() {
            portion.iter().for_each(|group| replayed.apply(group));
            replayed.tell(portion.last().map_or(Lsn::ZERO, |last| last.next_lsn()));
            *place = Some(replayed);
        }
        true
    }

    /// Applies portions as they come, until there are no more.
    fn follow(&self) {
        loop {
            {
                let mut waiting = self.waiting.lock();
                while waiting.portions.is_empty() && !waiting.complete {
                    self.came.wait(&mut waiting);
                }
                if waiting.portions.is_empty() {
                    return;
                }
            }
            self.apply_one();
        }
    }
}

/// A replay that is going on.
pub(super) struct Replay {
    shared: Arc<Shared>,
    tasks: Tasks,
    portion: Portion,
    bytes: u64,
    helped: bool,
}

impl Replay {
    pub(super) fn new(replayed: Replayed, tasks: Tasks) -> Self {
        let shared =
            Shared { waiting: Mutex::default(), came: Condvar::new(), replayed: Mutex::new(Some(replayed)) };
        Self { shared: Arc::new(shared), tasks, portion: Vec::new(), bytes: 0, helped: false }
    }

    /// Takes the group that follows.
    pub(super) fn push(&mut self, group: &Arc<Group>) {
        self.bytes += group.stored_bytes();
        self.portion.push(group.clone());
        if self.bytes >= PORTION_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let portion = std::mem::take(&mut self.portion);
        self.bytes = 0;
        let ahead = {
            let mut waiting = self.shared.waiting.lock();
            waiting.portions.push_back(portion);
            waiting.portions.len() > WAITING
        };
        self.shared.came.notify_one();
        if self.tasks.threads() == Threads::Inline {
            self.shared.apply_one();
            return;
        }
        if !self.helped {
            self.helped = true;
            let shared = self.shared.clone();
            // Nobody waits for it: what it leaves is applied here.
            drop(self.tasks.begin_blocking(move || shared.follow()));
        }
        if ahead {
            self.shared.apply_one();
        }
    }

    /// Applies what is left; None if applying panicked.
    pub(super) fn finish(mut self) -> Option<Replayed> {
        self.hand_over();
        self.shared.waiting.lock().complete = true;
        self.shared.came.notify_all();
        while self.shared.apply_one() {}
        self.shared.replayed.lock().take()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // A reading that failed: whoever follows it ends.
        self.shared.waiting.lock().complete = true;
        self.shared.came.notify_all();
    }
}
