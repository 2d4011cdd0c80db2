//! [`Tree::reap`]: one pass.

use parking_lot::Mutex;

use super::horizon::Horizon;
use super::report::{Graves, ReapHold, ReapReport};
use crate::error::Error;
use crate::id::{Hlc, Lsn, SeedNumber};
use crate::tree::Tree;
use crate::tree::state::State;

/// Slices after which others get the processor.
const SLICES_PER_STEP: usize = 8;

/// What others say about a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReapTerms {
    /// Takes nothing out.
    pub dry_run: bool,
    /// Every reader of the log has acknowledged what lies below.
    pub acknowledged: Lsn,
    /// Which one has not acknowledged more.
    pub slowest: Option<String>,
    /// A peer that must be heard first: whether this log went back to an older copy, only peers can tell.
    pub unheard: Option<String>,
    /// Up to which seed every sink was told what came; None: there are no sinks. Nothing goes while that is not the last
    /// one: what a seed deleted is told of by nothing but what is dead in the state.
    pub filled: Option<SeedNumber>,
    /// Which one was not told of the last one.
    pub unfilled: Option<String>,
}

/// What is remembered between passes.
#[derive(Debug, Default)]
pub(in crate::tree) struct Reaper {
    horizon: tokio::sync::Mutex<Horizon>,
    scanned: Mutex<Option<Scanned>>,
    last: Mutex<Option<ReapReport>>,
}

/// What the last look at all entries went by: another one finds nothing while none of it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scanned {
    reaped: Hlc,
    expired_by: u64,
    /// Of the seeds: one may bring what is dead and older.
    epoch: u64,
}

impl Tree {
    /// Takes out of the state what is dead for good: tombstones, expired entries and deleted ranges that nothing can meet
    /// any more that is older. Says what went, what is left, and what keeps it. In slices, between which writes go on.
    ///
    /// # Errors
    /// When the tree is stopping.
    pub async fn reap(&self, terms: &ReapTerms) -> Result<ReapReport, Error> {
        let mut horizon = self.0.reaper.horizon.lock().await;
        // Before the look at the frontier: what is written after it has a higher HLC.
        let closed = self.0.writer.local_promise().await.unwrap_or(Hlc::ZERO);
        let (held_by, complete) = self.raise_reaped(&mut horizon, terms, closed);
        let gone = if terms.dry_run { Graves::default() } else { self.take_out_dead(terms.filled).await? };
        self.0.gauges.reaped(gone);
        let now = self.0.clock.wall_millis();
        let report = {
            let state = self.0.applied.state.read();
            ReapReport { reaped: state.progress.reaped, gone, left: state.graves(now), held_by, complete }
        };
        *self.0.reaper.last.lock() = Some(report.clone());
        Ok(report)
    }

    /// What the last pass reported.
    pub fn last_reaping(&self) -> Option<ReapReport> {
        self.0.reaper.last.lock().clone()
    }

    /// Raises the HLC up to which the dead may go, as far as that is possible. Answers what keeps the rest, and up to
    /// where that is.
    fn raise_reaped(&self, horizon: &mut Horizon, terms: &ReapTerms, closed: Hlc) -> (ReapHold, Hlc) {
        let age = (!self.0.limits.reap_after.is_zero()).then(|| Hlc::from_millis(self.oldest_kept()));
        // Within the lock of the state: whoever becomes known as a member later finds what is decided here, and is
        // measured by it before a record of it is taken.
        let mut state = self.0.applied.state.write();
        let Some((hold, complete)) = self.complete(&state, closed, age) else {
            return (ReapHold::Undeclared, Hlc::ZERO);
        };
        if self.0.seeds.wish().is_some() || !self.0.seeds.holes().is_empty() {
            // What is missing here and comes with the seed must not be taken for dead.
            return (ReapHold::Seed, complete);
        }
        if let Some(sink) = &terms.unfilled {
            return (ReapHold::Unfilled(sink.clone()), complete);
        }
        if let Some(unheard) = &terms.unheard {
            return (ReapHold::Unheard(unheard.clone()), complete);
        }
        let mut looked = *horizon;
        let to = looked.look(complete, state.next_lsn, terms.acknowledged);
        if to.is_some_and(|to| to > state.progress.reaped) && state.is_read() {
            return (ReapHold::Reading, complete);
        }
        if !terms.dry_run {
            // What was not made use of stays for the next pass.
            *horizon = looked;
            if let Some(to) = to {
                state.raise_reaped(to);
            }
        }
        let held_by = match to {
            Some(_) => hold,
            None => terms.slowest.clone().map_or(hold, ReapHold::Consumer),
        };
        (held_by, complete)
    }

    /// Up to which HLC everything is applied that may ever come, and who has no more; None while nobody knows who takes
    /// part.
    fn complete(&self, state: &State, closed: Hlc, age: Option<Hlc>) -> Option<(ReapHold, Hlc)> {
        let (own, frontier) = (self.0.identity.origin(), &state.progress.frontier);
        let origins = self.members()?.into_iter().map(|(origin, name)| {
            // The own promise counts what has its HLC already and is not applied yet.
            let promised = if origin == own { closed } else { Hlc::ZERO };
            (ReapHold::Origin(name), frontier.get(origin).max(promised))
        });
        // What is parked as a dead letter may still be applied.
        let parked = state.parked.lowest_hlc();
        let parked = parked.map(|parked| (ReapHold::Parked, Hlc::new(parked.get().saturating_sub(1))));
        let age = age.map(|age| (ReapHold::Age, age));
        origins.chain(age).chain(parked).min_by_key(|(_, hlc)| *hlc)
    }

    /// When something must have died to go, by the clock here.
    fn oldest_kept(&self) -> u64 {
        let kept = u64::try_from(self.0.limits.reap_after.as_millis()).unwrap_or(u64::MAX);
        self.0.clock.wall_millis().saturating_sub(kept)
    }

    /// Whether a sink may still have to be told of what is dead: asked within the lock of the state, under which a seed is
    /// joined.
    fn is_told_of(&self, filled: Option<SeedNumber>) -> bool {
        let seeds = &self.0.seeds;
        filled.is_none_or(|filled| !seeds.is_joining() && filled >= seeds.joined())
    }

    async fn take_out_dead(&self, filled: Option<SeedNumber>) -> Result<Graves, Error> {
        let mut gone = Graves::default();
        let now = self.0.clock.wall_millis();
        let expired_by = self.oldest_kept();
        let last = *self.0.reaper.scanned.lock();
        let (graves, scan, same) = {
            let state = self.0.applied.state.read();
            let scan = Scanned { reaped: state.progress.reaped, expired_by, epoch: self.0.seeds.epoch() };
            let same = last.is_some_and(|last| {
                Scanned { expired_by, ..last } == scan && !state.expires_between(last.expired_by, expired_by)
            });
            (state.graves(now), scan, same)
        };
        let mut from = (graves.tombstones + graves.expired > 0 && !same).then_some(0);
        while let Some(first) = from {
            let (tree, most) = (self.clone(), self.0.limits.reap_slots);
            let step = self.0.tasks.blocking(move || {
                let (mut next, mut went) = (Some(first), Graves::default());
                for _ in 0..SLICES_PER_STEP {
                    let Some(at) = next else { break };
                    let mut state = tree.0.applied.state.write();
                    if !tree.is_told_of(filled) {
                        return (None, went, false);
                    }
                    let (after, more) = state.reap_slots(at, most, expired_by);
                    next = after;
                    went += more;
                }
                (next, went, true)
            });
            let (next, went, may_go_on) = step.await?;
            from = next;
            gone += went;
            if !may_go_on {
                return Ok(gone);
            }
            tokio::task::yield_now().await;
        }
        *self.0.reaper.scanned.lock() = Some(scan);
        if graves.ranges > 0 {
            gone += self.take_out_ranges().await?;
        }
        if gone.total() > 0 {
            self.sweep().await?;
        }
        Ok(gone)
    }

    /// Takes out of the state what is not held any more, in slices as what is dead. Answers how many keys that were.
    pub(in crate::tree) async fn take_out_unheld(&self) -> Result<u64, Error> {
        let _one = self.0.reaper.horizon.lock().await;
        let (mut from, mut dropped) = (Some(0), 0);
        while let Some(first) = from {
            let (applied, most) = (self.0.applied.clone(), self.0.limits.reap_slots);
            let step = self.0.tasks.blocking(move || {
                let (mut next, mut went) = (Some(first), 0);
                for _ in 0..SLICES_PER_STEP {
                    let Some(at) = next else { break };
                    let (after, more) = applied.state.write().drop_unheld(at, most);
                    next = after;
                    went += more;
                }
                (next, went)
            });
            let (next, went) = step.await?;
            from = next;
            dropped += went;
            tokio::task::yield_now().await;
        }
        self.sweep().await?;
        Ok(dropped)
    }

    async fn take_out_ranges(&self) -> Result<Graves, Error> {
        let (applied, most) = (self.0.applied.clone(), self.0.limits.reap_slots);
        let taken = self.0.tasks.blocking(move || {
            let (mut went, mut after) = (Graves::default(), None::<Box<[u8]>>);
            loop {
                let (next, more) = applied.state.write().reap_ranges(after.as_deref(), most);
                went += more;
                after = next;
                if after.is_none() {
                    return went;
                }
            }
        });
        taken.await
    }

    /// Gives up the places of what was reaped, once there are many.
    async fn sweep(&self) -> Result<(), Error> {
        let (applied, most) = (self.0.applied.clone(), self.0.limits.reap_slots);
        let swept = self.0.tasks.blocking(move || {
            applied.settle();
            if !applied.state.write().begin_sweep() {
                return;
            }
            while applied.state.read().sweep_some() {}
            while applied.state.write().end_sweep(most) {}
        });
        swept.await
    }
}

impl Default for ReapTerms {
    /// Nobody reads the log.
    fn default() -> Self {
        Self {
            dry_run: false,
            acknowledged: Lsn::new(u64::MAX),
            slowest: None,
            unheard: None,
            filled: None,
            unfilled: None,
        }
    }
}
