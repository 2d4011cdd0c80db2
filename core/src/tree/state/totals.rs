//! [`Totals`]: what the entries of a state come to.

use crate::tree::deadlines::Deadlines;
use crate::tree::entry::Entry;

/// Counts of all entries.
#[derive(Debug, Default)]
pub(super) struct Totals {
    live: u64,
    bytes: u64,
    deadlines: Deadlines,
}

impl Totals {
    pub(super) fn add(&mut self, entry: &Entry) {
        self.bytes += entry.bytes() as u64;
        self.live += u64::from(entry.is_live());
        if let Some(deadline) = entry.deadline_ms() {
            self.deadlines.add(deadline);
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.bytes -= entry.bytes() as u64;
        self.live -= u64::from(entry.is_live());
        if let Some(deadline) = entry.deadline_ms() {
            self.deadlines.remove(deadline);
        }
    }

    /// Entries that hold a value, expired or not.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of keys, values and deadlines.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many have expired when the clock says `now`.
    pub(super) fn expired(&self, now: u64) -> u64 {
        self.deadlines.passed(now)
    }

    /// Whether one expires after one moment, and at another or before it.
    pub(super) fn expires_between(&self, after: u64, until: u64) -> bool {
        self.deadlines.any_between(after, until)
    }
}
