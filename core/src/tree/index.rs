//! [`KeyIndex`]: the order of keys, kept lazily.
//!
//! New keys are only noted; a scan sorts them into runs first. Runs double in size, as in a log-structured merge tree
//! (O'Neil et al., 1996), so that a key is merged a logarithmic number of times.

use std::cmp::Ordering;

/// New keys that one [`step`](KeyIndex::step) sorts: about a millisecond.
const STEP_SORTED: usize = 1024;
/// Keys that one step merges.
const STEP_MERGED: usize = 8 * 1024;

/// The slots of all keys, in runs ordered by key.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    fresh: Vec<u32>,
    runs: Vec<Vec<u32>>,
    /// What the last two runs have been merged into so far; they stay until it is whole.
    merging: Option<Merging>,
    sweep: Option<Sweep>,
    /// The most keys that were sorted at once.
    #[cfg(test)]
    pub(super) most_sorted: usize,
}

/// How far slots that are gone have been left out.
#[derive(Debug, Default)]
struct Sweep {
    /// The runs before it hold none that was gone when the sweep began.
    run: usize,
    at: usize,
    kept: Vec<u32>,
}

#[derive(Debug)]
struct Merging {
    merged: Vec<u32>,
    left: usize,
    right: usize,
}

impl KeyIndex {
    /// Of keys whose slots are in key order already: so many, from the first on.
    pub(super) fn sorted(slots: u32) -> Self {
        let runs = if slots == 0 { Vec::new() } else { vec![(0..slots).collect()] };
        Self { runs, ..Self::default() }
    }

    /// Notes a new key's slot.
    pub(super) fn push(&mut self, slot: u32) {
        self.fresh.push(slot);
    }

    /// Whether [`settle`](Self::settle) would take longer than a step.
    pub(super) fn is_unsettled(&self) -> bool {
        self.fresh.len() > STEP_SORTED
    }

    /// Does a small part of what [`settle`](Self::settle) would do at once, for whoever must not hold others up for
    /// long. Says whether there may be more to do.
    pub(super) fn step<'k>(&mut self, key: impl Fn(u32) -> &'k [u8]) -> bool {
        if let Some(mut merging) = self.merging.take() {
            let [.., left, right] = &self.runs[..] else { return false };
            if merging.advance(left, right, &key) {
                self.runs.truncate(self.runs.len() - 2);
                self.push_run(merging.merged);
            } else {
                self.merging = Some(merging);
            }
            return true;
        }
        if let [.., left, right] = &self.runs[..]
            && left.len() <= right.len() * 2
        {
            let merged = Vec::with_capacity(left.len() + right.len());
            self.merging = Some(Merging { merged, left: 0, right: 0 });
            return true;
        }
        if self.fresh.is_empty() {
            return false;
        }
        let part = self.fresh.len() - self.fresh.len().min(STEP_SORTED);
        let mut run = self.fresh.split_off(part);
        run.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        self.push_run(run);
        true
    }

    /// A sweep looks at it unless it is behind a run that it has not come to.
    fn push_run(&mut self, run: Vec<u32>) {
        self.runs.push(run);
        let last = self.runs.len() - 1;
        if let Some(sweep) = self.sweep.as_mut().filter(|sweep| sweep.run >= last) {
            *sweep = Sweep { run: last, ..Sweep::default() };
        }
    }

    /// Begins to leave out slots: those that are gone now.
    pub(super) fn begin_sweep(&mut self, gone: impl Fn(u32) -> bool) {
        self.fresh.retain(|slot| !gone(*slot));
        self.sweep = Some(Sweep::default());
    }

    /// Looks at some more slots. Says whether there may be more to do; if not, none is left that was gone at the
    /// beginning.
    pub(super) fn sweep_some(&mut self, gone: impl Fn(u32) -> bool) -> bool {
        let Some(mut sweep) = self.sweep.take() else { return false };
        let Some(run) = self.runs.get_mut(sweep.run) else { return false };
        let end = run.len().min(sweep.at + STEP_MERGED);
        sweep.kept.extend(run[sweep.at..end].iter().copied().filter(|slot| !gone(*slot)));
        sweep.at = end;
        if end == run.len() {
            // Who merges this run begins again.
            self.merging = None;
            sweep.kept.shrink_to_fit();
            *run = std::mem::take(&mut sweep.kept);
            if run.is_empty() {
                self.runs.remove(sweep.run);
            } else {
                sweep.run += 1;
            }
            sweep.at = 0;
        }
        self.sweep = Some(sweep);
        true
    }

    /// Sorts in what is new.
    pub(super) fn settle<'k>(&mut self, key: impl Fn(u32) -> &'k [u8]) {
        if self.fresh.is_empty() {
            return;
        }
        self.merging = None;
        let mut run = std::mem::take(&mut self.fresh);
        #[cfg(test)]
        {
            self.most_sorted = self.most_sorted.max(run.len());
        }
        // Keys are often made in order.
        if !run.is_sorted_by(|a, b| key(*a) < key(*b)) {
            run.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        }
        while self.runs.last().is_some_and(|last| last.len() <= run.len() * 2) {
            let last = self.runs.pop().expect("there is a last run");
            run = merge(&last, &run, &key);
        }
        self.push_run(run);
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

impl Merging {
    /// Merges some more; says whether nothing is left.
    fn advance<'k>(&mut self, left: &[u32], right: &[u32], key: &impl Fn(u32) -> &'k [u8]) -> bool {
        for _ in 0..STEP_MERGED {
            let next = match (left.get(self.left), right.get(self.right)) {
                (None, None) => return true,
                (Some(l), Some(r)) if key(*l) < key(*r) => (l, &mut self.left),
                (Some(l), None) => (l, &mut self.left),
                (_, Some(r)) => (r, &mut self.right),
            };
            self.merged.push(*next.0);
            *next.1 += 1;
        }
        false
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn walked<'k>(index: &KeyIndex, key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
        let mut found = Vec::new();
        index.walk(
            key,
            |_| false,
            |slot| {
                found.push(slot);
                true
            },
        );
        found
    }

    #[test]
    fn a_sweep_leaves_out_what_was_gone_when_it_began_whatever_happens_in_between() {
        for seed in 0..40 {
            let random = Random::from_seed(seed);
            let keys: Vec<Vec<u8>> = (0..40_000).map(|_| random.next_u64().to_be_bytes().to_vec()).collect();
            let key = |slot: u32| &keys[slot as usize][..];
            let (mut index, mut added) = (KeyIndex::default(), 10_000);
            (0..added).for_each(|slot| index.push(slot));
            for _ in 0..random.below(40) {
                index.step(key);
            }
            let gone = |slot: u32| slot < 10_000 && !slot.is_multiple_of(3);
            index.begin_sweep(gone);
            while index.sweep_some(gone) {
                match random.below(4) {
                    0 if added < keys.len() as u32 - 5_000 => {
                        let more = random.below(5_000) as u32;
                        (added..added + more).for_each(|slot| index.push(slot));
                        added += more;
                    }
                    1 if random.chance(0.1) => index.settle(key),
                    2 => _ = index.step(key),
                    _ => {}
                }
            }
            index.settle(key);
            let mut wanted: Vec<u32> = (0..added).filter(|slot| !gone(*slot)).collect();
            wanted.sort_by_key(|slot| &keys[*slot as usize]);
            assert!(walked(&index, key) == wanted, "seed {seed}");
        }
    }

    #[test]
    fn small_steps_between_other_things_give_the_same_order_as_everything_at_once() {
        for seed in 0..40 {
            let random = Random::from_seed(seed);
            let keys: Vec<Vec<u8>> = (0..20_000).map(|_| random.next_u64().to_be_bytes().to_vec()).collect();
            let key = |slot: u32| &keys[slot as usize][..];
            let mut index = KeyIndex::default();
            let mut added = 0;
            while added < keys.len() as u32 || index.step(key) {
                match random.below(6) {
                    0 => {
                        let more = random.below(5_000).min(keys.len() as u64 - u64::from(added));
                        (added..added + more as u32).for_each(|slot| index.push(slot));
                        added += more as u32;
                    }
                    1 if random.chance(0.02) => index.settle(key),
                    _ => _ = index.step(key),
                }
            }
            let mut wanted: Vec<u32> = (0..keys.len() as u32).collect();
            wanted.sort_by_key(|slot| &keys[*slot as usize]);
            assert!(walked(&index, key) == wanted, "seed {seed}");
            assert!(
                index.runs.windows(2).all(|pair| pair[0].len() > pair[1].len() * 2),
                "seed {seed}: few runs"
            );
        }
    }
}
