//! [`MemTarget`]: an [`ApplyTarget`] in memory, for tests, that checks every duty of its caller and fails on demand.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::identity::{Consistency, TreeIdentity};
use super::target::{Applied, ApplyTarget, Progress};
use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind};
use crate::id::{ClusterId, Dot, Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::letters::{Letter, Parked, RecordFault};
use crate::record::ReadyGroup;
use crate::record::{Block, Kind};

#[derive(Debug, Default)]
struct State {
    progress: Progress,
    known: BTreeMap<OriginTag, (ClusterId, Incarnation)>,
    applied: Vec<Dot>,
    calls: Vec<usize>,
    violations: Vec<String>,
    failures: u32,
    stopping: bool,
    wall: Option<(u64, Duration)>,
    /// Records that are refused for their own fault, unless they are parked.
    poison: Vec<Dot>,
    letters: Vec<Letter>,
    keeps_letters: bool,
}

/// A tree in memory that only remembers what was applied.
#[derive(Debug)]
pub struct MemTarget {
    identity: TreeIdentity,
    state: Mutex<State>,
    open: watch::Sender<bool>,
}

impl MemTarget {
    /// An empty tree. It takes everything at once and has no wall clock.
    pub fn new(identity: TreeIdentity) -> Self {
        Self { identity, state: Mutex::default(), open: watch::Sender::new(true) }
    }

    /// The next calls of `apply` fail, that many times.
    pub fn fail_next(&self, times: u32) {
        self.state.lock().failures = times;
    }

    /// From now on calls of `apply` wait, or go on again.
    pub fn hang(&self, hang: bool) {
        self.open.send_replace(!hang);
    }

    /// From now on nothing is taken: the cluster is stopping.
    pub fn shut_down(&self) {
        self.state.lock().stopping = true;
    }

    /// Sets the wall clock, in milliseconds, and how far a remote HLC may be ahead of it.
    pub fn set_wall(&self, millis: u64, accepted: Duration) {
        self.state.lock().wall = Some((millis, accepted));
    }

    /// Keeps dead letters from now on.
    pub fn keep_letters(&self) {
        self.state.lock().keeps_letters = true;
    }

    /// From now on a record is refused for its own fault.
    pub fn poison(&self, dot: Dot) {
        self.state.lock().poison.push(dot);
    }

    /// What is parked.
    pub fn letters(&self) -> Vec<Letter> {
        self.state.lock().letters.clone()
    }

    /// A write of this cluster itself is applied.
    pub fn write_own(&self, hlc: Hlc) {
        self.state.lock().progress.frontier.raise(self.identity.origin(), hlc);
    }

    /// Every record that was applied, in order.
    pub fn applied(&self) -> Vec<Dot> {
        self.state.lock().applied.clone()
    }

    /// How many groups each call of `apply` that succeeded brought.
    pub fn calls(&self) -> Vec<usize> {
        self.state.lock().calls.clone()
    }

    /// Which duties the caller broke.
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }
}

impl State {
    fn take(&mut self, identity: &TreeIdentity, group: &ReadyGroup) {
        let ReadyGroup { origin, incarnation, closed, blocks } = group;
        if *origin == identity.origin() {
            self.violations.push("own records came back".into());
        }
        if self.known.get(origin).map(|(_, known)| known) != Some(incarnation) {
            self.violations.push(format!("origin {origin} was not enrolled with incarnation {incarnation}"));
        }
        for (block, skip) in blocks {
            if identity.consistency == Consistency::Causal
                && let Some((on, until)) = self.progress.frontier.first_missing(&block.deps())
                && on != *origin
            {
                self.violations.push(format!("a group of {origin} came before {until} of {on}"));
            }
            self.take_block(identity, *incarnation, block, *skip);
        }
        if !self.progress.frontier.raise(*origin, *closed) {
            self.violations.push(format!("a group of {origin} does not move its frontier"));
        }
    }

    fn take_block(&mut self, identity: &TreeIdentity, incarnation: Incarnation, block: &Block, skip: u16) {
        let origin = block.origin();
        let reached = self.progress.frontier.get(origin);
        let marks = self.progress.watermarks.origin_mut(origin, incarnation, identity.partitions);
        let mut left_out = Parked::of(self.letters.iter()).left_out_of(block);
        let mut next: BTreeMap<PartitionId, Offset> =
            block.runs().map(|run| (run.partition, run.first)).collect();
        for (index, record) in block.records().enumerate() {
            let Ok(record) = record else {
                if left_out.is_some() {
                    for run in block.runs() {
                        marks.advance(run.partition, run.end(), Hlc::ZERO);
                    }
                    return;
                }
                self.violations.push("a record cannot be read".into());
                return;
            };
            let Some(at) = next.get_mut(&record.partition) else {
                self.violations.push("a record of a partition that is not in the block's table".into());
                return;
            };
            let offset = record.offset.unwrap_or(*at);
            *at = offset.next();
            let covered = offset < marks.get(record.partition).next;
            if covered != (index < usize::from(skip)) {
                self.violations.push(format!("offset {offset} of {origin}: covered {covered}, skip {skip}"));
            }
            if covered {
                continue;
            }
            if record.hlc <= reached {
                self.violations
                    .push(format!("a record of {origin} at {} below its frontier {reached}", record.hlc));
            }
            marks.advance(record.partition, offset.next(), record.hlc);
            if record.kind == Kind::Mark {
                continue;
            }
            if left_out.as_mut().is_some_and(|left_out| left_out.passes(&record)) {
                continue;
            }
            self.applied.push(Dot { origin, incarnation, partition: record.partition, offset });
        }
        for run in block.runs() {
            if marks.advance(run.partition, run.end(), run.last) && run.last == Hlc::ZERO {
                marks.forget_hlc(run.partition);
            }
        }
    }
}

#[async_trait]
impl ApplyTarget for MemTarget {
    fn identity(&self) -> TreeIdentity {
        self.identity.clone()
    }

    fn progress(&self) -> Progress {
        let state = self.state.lock();
        let frontier = Parked::of(state.letters.iter()).claimed(&state.progress.frontier);
        Progress { frontier, ..state.progress.clone() }
    }

    fn excess_skew(&self, remote: Hlc) -> Option<Duration> {
        let (wall, accepted) = self.state.lock().wall?;
        let ahead = Duration::from_millis(remote.millis().saturating_sub(wall));
        (ahead > accepted).then_some(ahead)
    }

    fn wall_millis(&self) -> Option<u64> {
        self.state.lock().wall.map(|(millis, _)| millis)
    }

    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), Error> {
        let mut state = self.state.lock();
        let known = state.known.entry(origin.tag()).or_insert_with(|| (origin.clone(), incarnation));
        if *known == (origin.clone(), incarnation) {
            return Ok(());
        }
        let detail = format!("{origin} is known with incarnation {}, not {incarnation}", known.1);
        Err(Error::new(ErrorKind::Conflict, detail))
    }

    async fn apply(&self, groups: Vec<ReadyGroup>) -> Result<Applied, Error> {
        let opened = self.open.subscribe().wait_for(|open| *open).await.is_ok();
        assert!(opened, "the switch lives as long as the target");
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Error::shutting_down());
        }
        if state.failures > 0 {
            state.failures -= 1;
            return Err(Error::new(ErrorKind::Unavailable, "the disk is full, on purpose"));
        }
        let held = |dot: &Dot| {
            let mut blocks = groups.iter().flat_map(|group| &group.blocks);
            let run = |block: &Block| block.run(dot.partition).filter(|_| block.origin() == dot.origin);
            blocks
                .any(|(block, _)| run(block).is_some_and(|run| (run.first..run.end()).contains(&dot.offset)))
        };
        let parked = |dot: &Dot| state.letters.iter().any(|letter| letter.dot() == *dot);
        if let Some(dot) = state.poison.iter().find(|dot| held(dot) && !parked(dot)) {
            let fault = RecordFault { dot: *dot, reason: "poison".to_owned() };
            return Err(Error::new(ErrorKind::Invalid, "a record is at fault").with_source(fault));
        }
        let before = state.applied.len();
        for group in &groups {
            state.take(&self.identity, group);
        }
        state.calls.push(groups.len());
        Ok(Applied { records: (state.applied.len() - before) as u64 })
    }

    fn visible(&self) -> VersionVector {
        self.state.lock().progress.frontier.clone()
    }

    async fn park(&self, letters: Vec<Letter>) -> Result<(), Error> {
        if let Some(error) = self.cannot_park(&letters) {
            return Err(error);
        }
        self.state.lock().letters.extend(letters);
        Ok(())
    }

    fn cannot_park(&self, letters: &[Letter]) -> Option<Error> {
        let none = !self.state.lock().keeps_letters && !letters.is_empty();
        none.then(|| Error::new(ErrorKind::Refused, "this target keeps no dead letters"))
    }

    fn advance(&self, origin: OriginTag, closed: Hlc) {
        self.state.lock().progress.frontier.raise(origin, closed);
    }
}
