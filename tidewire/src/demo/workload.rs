//! What the demo writes: fixed by the seed, whatever happens to the clusters meanwhile.

use std::time::Duration;

use bytes::Bytes;
use tidewire_core::random::Random;
use xxhash_rust::xxh3::Xxh3;

/// Writes of each cluster.
pub(super) const WRITES: u64 = 18_000;
/// Between two writes of a cluster.
pub(super) const PACE: Duration = Duration::from_micros(500);
/// Keys that all clusters write to: few enough that they meet.
const SHARED_KEYS: u64 = 3_000;
/// Each so many writes one is a probe.
const PROBE_EVERY: u64 = 40;

/// One write.
pub(super) enum Write {
    /// Sets a shared key.
    Set(String, Bytes),
    /// Deletes a shared key.
    Delete(String),
    /// Sets a key of its own, whose way to the others is timed.
    Probe(String, Bytes),
}

/// The writes of one cluster, in order.
pub(super) fn writes(seed: u64, cluster: &str) -> Vec<Write> {
    let salt = cluster.bytes().fold(seed, |salt, byte| salt.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let random = Random::from_seed(salt);
    (0..WRITES)
        .map(|at| {
            let mut value = vec![0; 40 + usize::try_from(random.below(200)).unwrap_or(0)];
            value.fill_with(|| b'a' + u8::try_from(random.below(26)).unwrap_or(0));
            if at % PROBE_EVERY == 0 {
                Write::Probe(format!("{}{cluster}-{at}", crate::local::PROBE_PREFIX), value.into())
            } else if random.below(20) == 0 {
                Write::Delete(format!("key-{}", random.below(SHARED_KEYS)))
            } else {
                Write::Set(format!("key-{}", random.below(SHARED_KEYS)), value.into())
            }
        })
        .collect()
}

/// A fingerprint of the writes of all clusters.
pub(super) fn fingerprint<'w>(all: impl Iterator<Item = &'w Write>) -> u64 {
    let mut hash = Xxh3::new();
    for write in all {
        let (kind, key, value) = match write {
            Write::Set(key, value) => (1_u8, key, &value[..]),
            Write::Delete(key) => (2, key, &[][..]),
            Write::Probe(key, value) => (3, key, &value[..]),
        };
        hash.update(&[kind]);
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key.as_bytes());
        hash.update(&(value.len() as u64).to_le_bytes());
        hash.update(value);
    }
    hash.digest()
}
