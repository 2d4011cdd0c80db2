//! Seeded randomness, handed down from the top, so that a simulation can be repeated.

use std::sync::Arc;

use parking_lot::Mutex;

/// A generator of random numbers. Cheap to clone; clones share one sequence.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// A generator whose sequence is fixed by the seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A generator seeded by the operating system.
    pub fn from_os() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// A generator of its own, seeded from this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_seed(self.next_u64())
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }

    /// A number that is not zero: for ids, where zero means none.
    pub fn id(&self) -> u64 {
        self.0.lock().u64(1..)
    }

    /// A number below `bound`; zero if the bound is zero.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.lock().u64(..bound) }
    }

    /// True with the given probability, from 0 to 1.
    pub fn chance(&self, probability: f64) -> bool {
        self.0.lock().f64() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (a, b) = (Random::from_seed(7), Random::from_seed(7));
        let left: Vec<u64> = (0..100).map(|_| a.fork().below(1000)).collect();
        let right: Vec<u64> = (0..100).map(|_| b.fork().below(1000)).collect();
        assert_eq!(left, right);
    }
}
