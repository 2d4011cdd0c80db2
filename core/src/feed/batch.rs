//! [`Batch`]: what a consumer takes over at once.

use std::sync::Arc;

use super::cursor::Cursor;
use crate::causal::OriginMarks;
use crate::id::Hlc;
use crate::record::Group;

/// A promise about the local origin at the end of the log, taken while nothing was on its way into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Nothing of the local origin at or below this HLC is still to come. Taken before `tails`.
    pub closed: Hlc,
    /// Where the local origin's applied records end, by partition.
    pub tails: OriginMarks,
}

/// Whole groups in log order. Owned, cheap to clone; blocks stay encoded until somebody reads them.
#[derive(Clone, Debug)]
pub struct Batch {
    groups: Arc<[Arc<Group>]>,
    start: Cursor,
    end: Cursor,
    resolved: Option<Resolved>,
}

impl Batch {
    /// Groups from `start`; reading goes on at `end`.
    pub fn new(groups: Vec<Arc<Group>>, start: Cursor, end: Cursor) -> Self {
        Self { groups: groups.into(), start, end, resolved: None }
    }

    /// Progress without records: the log ends at `end`, and this is what holds there.
    pub fn idle(end: Cursor, resolved: Resolved) -> Self {
        Self { groups: Arc::new([]), start: end, end, resolved: Some(resolved) }
    }

    /// The groups, in log order.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Where it starts.
    pub fn start(&self) -> Cursor {
        self.start
    }

    /// Where reading goes on after it.
    pub fn end(&self) -> Cursor {
        self.end
    }

    /// Where reading goes on after its first `count` groups.
    pub fn cursor_after(&self, count: usize) -> Cursor {
        let lsn = match count.checked_sub(1).map(|last| self.groups.get(last)) {
            None => self.start.lsn,
            Some(None) => self.end.lsn,
            Some(Some(group)) => group.next_lsn(),
        };
        Cursor { incarnation: self.start.incarnation, lsn }
    }

    /// What is promised at its end, if it ends where the log ended.
    pub fn resolved(&self) -> Option<&Resolved> {
        self.resolved.as_ref()
    }

    /// Bytes of its groups in the log.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.stored_bytes()).sum()
    }

    /// How many records it holds.
    pub fn records(&self) -> u64 {
        self.groups.iter().map(|group| group.records()).sum()
    }
}
