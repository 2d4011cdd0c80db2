//! [`Digesting`]: the digest of a [`State`] in the making, a few entries under one lock.
//!
//! What changes among the entries that were looked at already is taken out of the sum as it was and put in as it is. So
//! when the last one is looked at, the sum is that of all entries in this moment, and nobody waited for it longer than
//! for a step.

use xxhash_rust::xxh3::Xxh3;

use super::State;
use crate::tree::entry::Entry;

/// Bytes of keys and values after which a step ends.
const STEP_BYTES: usize = 1024 * 1024;

/// How far a digest has come.
#[derive(Debug)]
pub(super) struct Digesting {
    /// What the clock says.
    now: u64,
    /// The entries below this slot are in the sum.
    next: usize,
    sum: u128,
}

impl Digesting {
    /// An entry is about to change, or to go.
    pub(super) fn leaves(&mut self, slot: u32, entry: &Entry) {
        if (slot as usize) < self.next {
            self.sum = self.sum.wrapping_sub(digest_of(entry, self.now));
        }
    }

    /// An entry is as it is from now on.
    pub(super) fn comes(&mut self, slot: u32, entry: &Entry) {
        if (slot as usize) < self.next {
            self.sum = self.sum.wrapping_add(digest_of(entry, self.now));
        }
    }
}

/// What an entry adds to the digest when the clock says `now`: nothing unless it is live.
fn digest_of(entry: &Entry, now: u64) -> u128 {
    let Some(value) = entry.value_at(now) else { return 0 };
    let mut hasher = Xxh3::new();
    hasher.update(&(entry.key().len() as u64).to_le_bytes());
    hasher.update(entry.key());
    hasher.update(&entry.version.hlc.get().to_le_bytes());
    hasher.update(&entry.version.origin.get().to_le_bytes());
    // No deadline counts as zero: whoever has that one has expired.
    hasher.update(&entry.deadline_ms().unwrap_or_default().to_le_bytes());
    hasher.update(value);
    hasher.digest128()
}

impl State {
    /// Begins a digest of the keys that are live when the clock says `now`, with values, versions and deadlines, whatever
    /// order they came in: the sum of one 128-bit xxh3 each. One at a time; one that was begun before is given up.
    pub(in crate::tree) fn begin_digest(&self, now: u64) {
        *self.digesting.lock() = Some(Digesting { now, next: 0, sum: 0 });
    }

    /// Goes on with it, by no more than `most` entries. The digest of this moment, if those were the last.
    pub(in crate::tree) fn digest_some(&self, most: usize) -> Option<u128> {
        let mut digesting = self.digesting.lock();
        let now = digesting.as_mut()?;
        let (end, mut bytes) = (self.entries.len().min(now.next.saturating_add(most)), 0);
        while now.next < end && bytes < STEP_BYTES {
            let entry = &self.entries[now.next];
            now.sum = now.sum.wrapping_add(digest_of(entry, now.now));
            now.next += 1;
            bytes += entry.bytes();
        }
        let done = now.next >= self.entries.len();
        if done { digesting.take().map(|digesting| digesting.sum) } else { None }
    }

    /// The digest of this moment, all under one lock.
    #[cfg(test)]
    pub(in crate::tree) fn digest(&self, now: u64) -> u128 {
        self.entries.iter().fold(0, |sum: u128, entry| sum.wrapping_add(digest_of(entry, now)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::disk::MemDisk;
    use crate::random::Random;
    use crate::tree::reaping::{Graves, ReapTerms};
    use crate::tree::tests::Site;
    use crate::tree::{Members, Operation, PutOptions, Tree};

    async fn write(tree: &Tree, random: &Random) {
        let key = format!("k{:03}", random.below(200));
        match random.below(10) {
            0..=3 => _ = tree.put(key, vec![7; random.below(20) as usize]).await.expect("put"),
            4 | 5 => _ = tree.delete(key).await.expect("deleted"),
            6 => _ = tree.delete_range(key.clone(), format!("{}~", &key[..3])).await,
            7 => {
                let ttl = PutOptions::ttl(Duration::from_millis(1 + random.below(40)));
                tree.put_with(key, "short", ttl).await.expect("put");
            }
            _ => {
                let sets = (0..5).map(|at| Operation::Set(format!("{key}{at}").into(), "v".into()));
                tree.batch(sets.collect()).await.expect("written");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_digest_in_steps_is_that_of_its_last_moment_whatever_is_written_and_reaped_meanwhile() {
        let (mut went, mut most_steps) = (Graves::default(), 0);
        for seed in 0..60 {
            let (mut site, random) = (Site::new("a", seed), Random::from_seed(seed));
            site.limits.snapshot_log_bytes = u64::MAX;
            site.limits.reap_slots = 16;
            let tree = site.open(Arc::new(MemDisk::new())).await.expect("opens");
            tree.declare_members(Members::default());
            for _ in 0..6 {
                for _ in 0..40 {
                    write(&tree, &random).await;
                }
                tokio::time::sleep(Duration::from_millis(random.below(30))).await;
                let now = tree.0.clock.wall_millis();
                tree.0.applied.state.read().begin_digest(now);
                for steps in 1.. {
                    let digest = {
                        let state = tree.0.applied.state.read();
                        state.digest_some(7).map(|digest| (digest, state.digest(now)))
                    };
                    if let Some((digest, whole)) = digest {
                        assert_eq!(digest, whole, "seed {seed}, {steps} steps");
                        most_steps = most_steps.max(steps);
                        break;
                    }
                    write(&tree, &random).await;
                    if random.chance(0.1) {
                        went += tree.reap(&ReapTerms::default()).await.expect("reaped").gone;
                    }
                }
                let (digest, now) = (tree.digest(), tree.0.clock.wall_millis());
                let whole = tree.0.applied.state.read().digest(now);
                assert_eq!(digest.digest, whole, "seed {seed}: nobody writes");
            }
        }
        assert!(most_steps > 20 && went.tombstones > 100 && went.expired > 20, "{most_steps}, {went:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_digest_looks_at_few_entries_under_one_lock_and_at_fewer_large_ones() {
        let tree = Site::new("a", 1).open(Arc::new(MemDisk::new())).await.expect("opens");
        for at in 0..40 {
            let sets = (0..20).map(|key| Operation::Set(format!("{at}/{key}").into(), "v".into()));
            tree.batch(sets.collect()).await.expect("written");
        }
        let steps = |most| {
            let state = tree.0.applied.state.read();
            state.begin_digest(0);
            1 + std::iter::repeat_with(|| state.digest_some(most)).take_while(Option::is_none).count()
        };
        assert_eq!((steps(100), steps(usize::MAX)), (8, 1));
        let larger = super::STEP_BYTES / 2;
        for at in 0..4 {
            let fresh = crate::tree::entry::Entry::new(
                format!("large {at}").as_bytes(),
                Some(&vec![1; larger]),
                None,
                crate::id::Version { hlc: crate::id::Hlc::new(1), origin: crate::id::OriginTag::new(1) },
                crate::id::Lsn::ZERO,
            );
            tree.0.applied.state.write().overwrite(fresh);
        }
        assert_eq!(steps(usize::MAX), 2, "two of half the bound, and two");
    }
}
