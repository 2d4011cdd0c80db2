//! [`Recent`]: the last groups, kept in memory for all followers together, bounded in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::Lsn;
use crate::record::Group;

#[derive(Debug, Default)]
struct Kept {
    groups: VecDeque<Arc<Group>>,
    bytes: u64,
}

/// The end of a log, in memory.
#[derive(Debug)]
pub(super) struct Recent {
    kept: Mutex<Kept>,
    bound: u64,
}

impl Recent {
    pub(super) fn new(bound: usize) -> Self {
        Self { kept: Mutex::default(), bound: bound as u64 }
    }

    /// Adds the group that follows the last one, and lets go of the oldest over the bound.
    pub(super) fn push(&self, group: Arc<Group>) {
        let mut kept = self.kept.lock();
        kept.bytes += group.stored_bytes();
        kept.groups.push_back(group);
        while kept.bytes > self.bound {
            let Some(oldest) = kept.groups.pop_front() else { break };
            kept.bytes -= oldest.stored_bytes();
        }
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.kept.lock().bytes
    }

    /// Groups from the first that reaches beyond `from`, about `limit` bytes; None if the log's files must be asked.
    pub(super) fn read(&self, from: Lsn, limit: usize) -> Option<Vec<Arc<Group>>> {
        let kept = self.kept.lock();
        let first = kept.groups.front()?;
        if from < first.first_lsn() {
            return None;
        }
        let start = kept.groups.partition_point(|group| group.next_lsn() <= from);
        let mut bytes = 0;
        let groups = kept.groups.range(start..).take_while(|group| {
            let take = bytes == 0 || bytes + group.stored_bytes() <= limit as u64;
            bytes += group.stored_bytes();
            take
        });
        Some(groups.cloned().collect())
    }
}
