//! The watch over a writer: gives up on what is past its deadline, and has a failed log repaired again.
//!
//! It ticks only while there is something to watch, so an idle tree has no timer. The first write after a quiet time
//! wakes it, and does not commit in its own thread: a task that was woken by a thread that then blocks may have to wait
//! for that thread.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::committer::{Committer, tell};
use super::state::State;
use super::writer::Shared;
use crate::error::{Error, StorageError, StorageErrorKind};

/// How often the watch looks at a log whose writers may commit in their own threads.
const NOTICE: Duration = Duration::from_millis(50);

impl Shared {
    /// Watches; runs until dropped.
    pub(super) async fn watch(self: &Arc<Self>) {
        let quiet = self.limits.commit_deadline / 8;
        // A leader that nobody polls is noticed by the next write, or here.
        let tick = if self.runner.lends_threads() { quiet.min(NOTICE) } else { quiet };
        let mut stirred: Option<Instant> = None;
        loop {
            let next = {
                let mut state = self.state.lock();
                if state.stirs() {
                    stirred = Some(Instant::now());
                }
                state.watched = stirred.is_some_and(|at| at.elapsed() < quiet);
                state.watched.then(|| {
                    let tick = Instant::now() + tick;
                    state.repairable().map_or(tick, |latch| latch.next_try().min(tick))
                })
            };
            match next {
                None => self.stirred.notified().await,
                Some(at) => {
                    tokio::time::sleep_until(at).await;
                    self.expire();
                }
            }
        }
    }

    /// Gives up on a group, or on a repair, that is past its deadline, and has a failed repair tried again when its time
    /// has come.
    fn expire(self: &Arc<Self>) {
        let deadline = self.limits.commit_deadline;
        let said = format!("the disk did not answer within {} s", deadline.as_secs_f64());
        let late = StorageError::new(StorageErrorKind::Deadline, said);
        let mut state = self.state.lock();
        if let Some(repair) = state.repair.take_if(|repair| repair.is_late(deadline)) {
            if let Some((_, fate)) = &repair.asked {
                fate.give_up();
            }
            // Whoever hangs in it finds that others have gone on when it returns.
            state.duty.relieve();
            drop(state);
            Committer::repaired(self, repair, &Err(late));
            return;
        }
        if let Some(at) = state.flights.give_up_late(deadline) {
            state.fail_from(at, self, &late);
            state.duty.relieve();
        }
        if state.repairable().is_some_and(|latch| latch.next_try() <= Instant::now()) {
            state.try_again();
        }
        self.send_for_work(state);
    }

    /// Has a committer come, if there is work and nobody is at it.
    pub(super) fn send_for_work(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let shift = if state.has_work(self) { state.duty.begin() } else { None };
        drop(state);
        if let Some(shift) = shift {
            Committer::submit(self, shift);
        }
    }

    /// Answers everybody that nothing was made durable for, and takes no more writes.
    pub(super) fn abandon(&self, cause: &Error) {
        let waiting = self.state.lock().abandon();
        tell(&waiting, cause);
        self.changed.notify_waiters();
    }
}
