//! [`Writer`]: gives out positions under one lock, and answers when they are durable and applied.
//!
//! LSN, offset and HLC of a tree are given out under one lock, so that per origin the order of the log is the order of
//! HLCs is the order of offsets. Positions that were given out are never given out again; a group that failed leaves a
//! gap. What happens to a group after that is the committer's part.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::latch::LogState;
use super::lead::Placed;
use super::metrics::LogMetrics;
use super::pending::Foreign;
use super::runner::CommitRunner;
use super::state::State;
use super::storage::WalStorage;
use crate::causal::VersionVector;
use crate::clock::HybridClock;
use crate::error::Error;
use crate::id::{GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, TreeName};
use crate::limits::{Limits, MAX_GROUPS_IN_FLIGHT};
use crate::record::{Group, Mutation, ReadyGroup};
use crate::wal::WalMetrics;

/// How often an append asks for room below the clock's ceiling before it gives up.
const CLOCK_TRIES: u32 = 8;

/// Who applies what became durable: the tree.
pub trait DurableGroups: Send + Sync + 'static {
    /// Called once for each group, in log order, before anybody who waits for it is woken.
    fn apply(&self, group: &Arc<Group>);

    /// Whether somebody waits for what is applied, or was woken by it and has not run since. While nobody does, a caller may
    /// commit several groups one after the other without giving way: it keeps nobody waiting on its thread.
    fn is_followed(&self) -> bool {
        true
    }
}

/// What a writer is made of.
pub struct WriterConfig {
    /// The tree, for messages and metrics.
    pub tree: TreeName,
    /// How this cluster appears in bytes.
    pub origin: OriginTag,
    /// The incarnation of this log.
    pub incarnation: Incarnation,
    /// Number of partitions.
    pub partitions: u16,
    /// The bounds.
    pub limits: Limits,
    /// The cluster's clock.
    pub clock: Arc<HybridClock>,
    /// Where groups become durable.
    pub storage: Arc<dyn WalStorage>,
    /// Where committing happens.
    pub runner: CommitRunner,
    /// Who applies.
    pub groups: Arc<dyn DurableGroups>,
    /// Where to count.
    pub metrics: WalMetrics,
}

/// Where a writer starts: behind everything that recovery found.
#[derive(Clone, Debug, Default)]
pub struct WriterStart {
    /// The next LSN.
    pub lsn: Lsn,
    /// The next group.
    pub sequence: GroupSequence,
    /// The next offset of each partition; empty for a new log.
    pub offsets: Vec<Offset>,
    /// The highest HLC of records applied, by foreign origin.
    pub observed: VersionVector,
}

pub(super) struct Shared {
    pub(super) tree: TreeName,
    pub(super) origin: OriginTag,
    pub(super) incarnation: Incarnation,
    pub(super) limits: Limits,
    pub(super) clock: Arc<HybridClock>,
    pub(super) storage: Arc<dyn WalStorage>,
    pub(super) runner: CommitRunner,
    pub(super) groups: Arc<dyn DurableGroups>,
    pub(super) metrics: LogMetrics,
    /// How many groups may be on their way at once.
    pub(super) in_flight: usize,
    pub(super) state: Mutex<State>,
    /// Somebody may go on: there is room, or nothing is pending any more.
    pub(super) changed: Notify,
    /// There is something to watch.
    pub(super) stirred: Notify,
}

/// The writing end of a log. Cheap to clone.
#[derive(Clone)]
pub struct Writer(Arc<Shared>);

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("tree", &self.0.tree).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer behind what recovery found.
    pub fn new(config: WriterConfig, start: WriterStart) -> Self {
        let state = State::new(config.origin, config.partitions, start);
        Self(Arc::new(Shared {
            metrics: config.metrics.of(&config.tree),
            in_flight: config.storage.in_flight().clamp(1, MAX_GROUPS_IN_FLIGHT),
            tree: config.tree,
            origin: config.origin,
            incarnation: config.incarnation,
            limits: config.limits,
            clock: config.clock,
            storage: config.storage,
            runner: config.runner,
            groups: config.groups,
            state: Mutex::new(state),
            changed: Notify::new(),
            stirred: Notify::new(),
        }))
    }

    /// Commits mutations of distinct keys as one unit: one HLC, one group. Returns the HLC once they are durable and
    /// applied. Dropping the future after its first poll leaves open whether they are; state and log agree either way.
    ///
    /// # Errors
    /// `Unavailable` when the log failed or is stopping: then nothing was applied.
    pub async fn append(&self, mutations: &[Mutation]) -> Result<Hlc, Error> {
        let bytes: usize = mutations.iter().map(Mutation::record_bytes).sum();
        let mut tries = CLOCK_TRIES;
        loop {
            let mut wall = Some(self.0.clock.ready().await?);
            // Whoever had to wait for room looks at the wall again.
            match self.0.with_room(|| self.0.place(mutations, bytes, wall.take())).await {
                Ok((hlc, placed)) => {
                    placed.wait(&self.0).await?;
                    return Ok(hlc);
                }
                // A page from a cluster with a faster clock used up what `ready` had found.
                Err(_) if tries > 0 && !self.0.clock.has_room() => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes groups of other origins as they are, in the order given and all in one group of this log. Raises
    /// `observed` and the clock before anybody can see them. Returns once they are durable and applied.
    ///
    /// # Errors
    /// `Unavailable` when the log failed or is stopping: then nothing was applied.
    pub async fn append_foreign(&self, mut groups: Vec<ReadyGroup>) -> Result<(), Error> {
        let newest = groups.iter().flat_map(|group| &group.blocks).map(|(block, _)| block.last_hlc()).max();
        let Some(newest) = newest else { return Ok(()) };
        let bytes: usize =
            groups.iter().flat_map(|group| &group.blocks).map(|(block, _)| block.bytes().len()).sum();
        let blocks: usize = groups.iter().map(|group| group.blocks.len()).sum();
        self.0.clock.observe(newest);
        let placed = self.0.with_room(|| self.0.place_foreign(&mut groups, bytes, blocks)).await?;
        placed.wait(&self.0).await
    }

    /// The highest HLC of records that a local write may have seen, by foreign origin.
    pub fn observed(&self) -> VersionVector {
        self.0.state.lock().observed.clone()
    }

    /// From here on local writes have offsets at or above these, and depend on all that is named. Their clock is the
    /// caller's matter.
    pub fn step_above(&self, offsets: &[(PartitionId, Offset)], observed: &VersionVector) {
        self.0.state.lock().step_above(offsets, observed);
    }

    /// A promise about the local origin: up to which HLC it is complete with the applied log, and where that log ends.
    /// None while anything is on its way into the log.
    ///
    /// # Errors
    /// When the clock has no durable ceiling to promise below.
    pub async fn resolved(&self) -> Result<Option<(Hlc, Lsn)>, Error> {
        self.0.clock.ready().await?;
        let state = self.0.state.lock();
        if !state.flights.is_empty() || state.latch.is_some() || !state.pending.is_empty() {
            return Ok(None);
        }
        // Taken under the lock that gives out positions: every later write gets a higher HLC.
        let Ok(closed) = self.0.clock.tick() else { return Ok(None) };
        Ok(Some((closed, state.next_lsn)))
    }

    /// Bytes of records that wait for the committer.
    pub fn pending_bytes(&self) -> u64 {
        self.0.state.lock().pending.bytes() as u64
    }

    /// Up to which HLC every local write is applied, if that can be said now: while a local write is on its way, or the log
    /// has failed, it cannot. What other origins wrote may be on its way.
    pub async fn local_promise(&self) -> Option<Hlc> {
        self.0.clock.ready().await.ok()?;
        let state = self.0.state.lock();
        if state.flights.holds(self.0.origin) || state.latch.is_some() || state.pending.has_local() {
            return None;
        }
        // Taken under the lock that gives out positions, as in `resolved`.
        self.0.clock.tick().ok()
    }

    /// Why writes fail at present, if they do.
    pub fn failure(&self) -> Option<Error> {
        self.0.state.lock().latch.as_ref().map(|latch| latch.cause.clone())
    }

    /// Whether writes are taken, and if not, what is done about it.
    pub fn log_state(&self) -> LogState {
        self.0.state.lock().log_state()
    }

    /// Watches the deadline of what is in flight, and has a log that failed repaired again; runs until dropped. Silent
    /// while nothing is on its way.
    pub async fn watch_deadlines(&self) {
        self.0.watch().await;
    }

    /// Takes no new writes, makes durable what is pending, and gives up on what is left after `budget`.
    pub async fn drain(&self, budget: Duration) {
        self.0.state.lock().stopping = true;
        if tokio::time::timeout(budget, self.settled()).await.is_err() {
            tracing::warn!(tree = %self.0.tree, "drain budget used up, pending writes fail");
            self.0.abandon(&Error::shutting_down());
        }
    }

    /// Fails everything that is not in flight, and waits until nothing is: what a crash leaves, without the crash.
    pub async fn kill(&self) {
        self.abandon();
        let _ = tokio::time::timeout(self.0.limits.commit_deadline, self.settled()).await;
    }

    /// Takes no more writes and fails what is pending, without waiting.
    pub fn abandon(&self) {
        self.0.abandon(&Error::shutting_down());
    }

    async fn settled(&self) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.0.state.lock().is_settled() {
                return;
            }
            changed.await;
        }
    }
}

impl Shared {
    /// The state, if writes are taken now.
    fn admit(self: &Arc<Self>) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Error::shutting_down());
        }
        if let Some(latch) = &state.latch {
            let cause = latch.cause.clone();
            if latch.write_may_retry() {
                state.try_again();
                // Never the caller's part: it is told at once that its write fails.
                let _waits = self.start(state);
            }
            return Err(cause);
        }
        Ok(state)
    }

    /// Tries until there is room. Registers for the news that there is some only when there is none.
    async fn with_room<T>(&self, mut place: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
        if let Some(placed) = place()? {
            return Ok(placed);
        }
        loop {
            let waiting = self.changed.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            if let Some(placed) = place()? {
                return Ok(placed);
            }
            waiting.await;
        }
    }

    /// Gives mutations their positions, if there is room for them.
    fn place(
        self: &Arc<Self>,
        mutations: &[Mutation],
        bytes: usize,
        wall_millis: Option<u64>,
    ) -> Result<Option<(Hlc, Placed)>, Error> {
        let mut state = self.admit()?;
        if !state.has_room(bytes, mutations.len(), &self.limits) {
            return Ok(None);
        }
        let hlc = wall_millis.map_or_else(|| self.clock.tick(), |wall| self.clock.tick_at(wall))?;
        for mutation in mutations {
            state.push(mutation, hlc, mutations.len() > 1);
        }
        state.pending.add_writer();
        let (ticket, records) = (state.pending.ticket.clone(), state.pending.records());
        let part = self.start(state);
        Ok(Some((hlc, Placed { ticket, records, part })))
    }

    /// Takes the blocks of groups over, if there is room for them.
    fn place_foreign(
        self: &Arc<Self>,
        groups: &mut Vec<ReadyGroup>,
        bytes: usize,
        blocks: usize,
    ) -> Result<Option<Placed>, Error> {
        let mut state = self.admit()?;
        if !state.has_room(bytes, blocks, &self.limits) {
            return Ok(None);
        }
        for group in groups.drain(..) {
            for (block, skip) in group.blocks {
                state.observed.raise(group.origin, block.last_hlc());
                state.pending.push_foreign(Foreign { block, closed: group.closed, skip });
            }
        }
        state.pending.add_writer();
        let (ticket, records) = (state.pending.ticket.clone(), state.pending.records());
        let part = self.start(state);
        Ok(Some(Placed { ticket, records, part }))
    }
}
