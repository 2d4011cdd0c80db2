//! [`KeyIndex`]: the order of keys, kept lazily.
//!
//! New keys are only noted; a scan sorts them into runs first. Runs double in size, as in a log-structured merge tree
//! (O'Neil et al., 1996), so that a key is merged a logarithmic number of times.

use std::cmp::Ordering;

/// The slots of all keys, in runs ordered by key.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    fresh: Vec<u32>,
    runs: Vec<Vec<u32>>,
}

impl KeyIndex {
    /// Notes a new key's slot.
    pub(super) fn push(&mut self, slot: u32) {
        self.fresh.push(slot);
    }

    /// Sorts in what is new.
    pub(super) fn settle<'k>(&mut self, key: impl Fn(u32) -> &'k [u8]) {
        if self.fresh.is_empty() {
            return;
        }
        let mut run = std::mem::take(&mut self.fresh);
        // Entries of a snapshot come in order.
        if !run.is_sorted_by(|a, b| key(*a) < key(*b)) {
            run.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        }
        while self.runs.last().is_some_and(|last| last.len() <= run.len() * 2) {
            let last = self.runs.pop().expect("there is a last run");
            run = merge(&last, &run, &key);
        }
        self.runs.push(run);
    }

    /// Visits slots in key order, from the first key for which `before` is false, until `visit` says stop. Call
    /// [`settle`](Self::settle) first.
    pub(super) fn walk<'k>(
        &self,
        key: impl Fn(u32) -> &'k [u8],
        before: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(u32) -> bool,
    ) {
        debug_assert!(self.fresh.is_empty(), "settled before it is walked");
        let mut heads: Vec<&[u32]> = self
            .runs
            .iter()
            .map(|run| &run[run.partition_point(|slot| before(key(*slot)))..])
            .filter(|run| !run.is_empty())
            .collect();
        loop {
            // Few runs: a look at each head is cheaper than a heap.
            let least = (0..heads.len()).min_by(|a, b| key(heads[*a][0]).cmp(key(heads[*b][0])));
            let Some(least) = least else { return };
            let slot = heads[least][0];
            heads[least] = &heads[least][1..];
            if heads[least].is_empty() {
                heads.swap_remove(least);
            }
            if !visit(slot) {
                return;
            }
        }
    }
}

fn merge<'k>(left: &[u32], right: &[u32], key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left, right);
    while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right) {
        if key(*l).cmp(key(*r)) == Ordering::Less {
            merged.push(*l);
            left = left_rest;
        } else {
            merged.push(*r);
            right = right_rest;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    merged
}
