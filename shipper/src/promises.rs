//! [`Promises`]: which promises without records may leave now. Pure.
//!
//! A promise says that everything of an origin up to an HLC lies before some tails. It leaves behind every page with a
//! record before those tails, never ahead of one. What holds at the end of the log is one look at the log, tails and
//! promises together; until the session has taken the log over up to that end it waits here.

use std::collections::BTreeMap;

use tidewire_core::causal::{OriginMarks, VersionVector};
use tidewire_core::id::{Hlc, Lsn, OriginTag};
use tidewire_core::tree::{Progress, Standing};

/// Nothing of an origin at or below an HLC lies beyond its tails.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) closed: Hlc,
    pub(crate) tails: OriginMarks,
}

/// Promises on their way.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    due: BTreeMap<OriginTag, Promise>,
    /// Those that every record before their tails has left ahead of, whatever else is open.
    free: BTreeMap<OriginTag, Promise>,
    standing: Option<(Lsn, Progress)>,
    /// What was promised of other origins, or is known to the peer.
    known: VersionVector,
}

impl Promises {
    /// Promises that need not be made: the peer knows them.
    pub(crate) fn know(&mut self, frontier: &VersionVector) {
        self.known.join(frontier);
    }

    /// Takes over a promise that may leave behind every page so far. A later one of the same origin replaces it.
    pub(crate) fn make(&mut self, origin: OriginTag, promise: Promise) {
        self.due.insert(origin, promise);
    }

    /// Takes over what of an end of the log may leave at once, though the session has not taken the log over up to there:
    /// where everything of an origin before its tails has left. `nothing` as in [`reach`](Self::reach).
    pub(crate) fn free(
        &mut self,
        progress: &Progress,
        nothing: impl Fn(OriginTag) -> Option<OriginMarks>,
        has_left: impl Fn(OriginTag, &OriginMarks) -> bool,
    ) {
        let newer = |(origin, closed): &(OriginTag, Hlc)| *closed > self.known.get(*origin);
        for (origin, closed) in progress.frontier.iter().filter(newer) {
            let tails = progress.watermarks.origin(origin).cloned().or_else(|| nothing(origin));
            if let Some(tails) = tails.filter(|tails| has_left(origin, tails)) {
                self.free.insert(origin, Promise { closed, tails });
            }
        }
    }

    /// Takes over what holds at the end of the log. An earlier one that still waits stays: it is reached sooner.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.standing.get_or_insert((standing.end.lsn, standing.progress));
    }

    /// The session has taken the log over up to `at`. `wanted` gives marks of nothing for an origin whose promises the
    /// link passes on.
    pub(crate) fn reach(&mut self, at: Lsn, wanted: impl Fn(OriginTag) -> Option<OriginMarks>) {
        let Some((_, progress)) = self.standing.take_if(|(end, _)| *end <= at) else { return };
        for (origin, closed) in progress.frontier.iter() {
            if closed > self.known.get(origin)
                && let Some(nothing) = wanted(origin)
            {
                let tails = progress.watermarks.origin(origin).cloned().unwrap_or(nothing);
                self.due.insert(origin, Promise { closed, tails });
            }
        }
    }

    /// Whether any may leave.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Gives out what is due, by origin; everything that was taken over has left.
    pub(crate) fn take(&mut self) -> Vec<(OriginTag, Promise)> {
        let mut due = std::mem::take(&mut self.due);
        // A later one may have left before.
        due.retain(|origin, promise| promise.closed >= self.known.get(*origin));
        for (origin, promise) in std::mem::take(&mut self.free) {
            match due.get(&origin) {
                Some(other) if other.closed >= promise.closed => {}
                _ => _ = due.insert(origin, promise),
            }
        }
        self.give_out(due)
    }

    /// Gives out what is due though something is open, by origin.
    pub(crate) fn take_free(&mut self) -> Vec<(OriginTag, Promise)> {
        let free = std::mem::take(&mut self.free);
        self.give_out(free)
    }

    fn give_out(&mut self, promises: BTreeMap<OriginTag, Promise>) -> Vec<(OriginTag, Promise)> {
        for (origin, promise) in &promises {
            self.known.raise(*origin, promise.closed);
        }
        promises.into_iter().collect()
    }
}
