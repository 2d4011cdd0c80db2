//! Bytes gone wrong: by chance as a disk does it, and on purpose as a stranger does it.

use crate::random::Random;

/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x10000, 0x7fff_ffff, 0xffff_ffff, 1 << 62, u64::MAX];

/// Changes bytes in one to three places: flipped bits, cut and added ends, parts taken out, said twice or brought from
/// another sample, and numbers at the edges of their types. The answer is never empty and may be what it was.
pub fn mutate(bytes: &[u8], other: &[u8], random: &Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        change(&mut changed, other, random);
        if changed.is_empty() {
            changed.push(0);
        }
    }
    changed
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &Random) {
    let below = |bound: usize| usize::try_from(random.below(bound as u64)).expect("below a length");
    let (at, length) = (below(bytes.len()), 1 + below(40));
    let end = (at + length).min(bytes.len());
    match random.below(9) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = random.below(256).to_le_bytes()[0],
        3 => bytes.truncate(at),
        4 => bytes.extend((0..length).map(|_| random.below(256).to_le_bytes()[0])),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        7 => {
            let from = below(other.len().max(1)).min(other.len());
            let part = &other[from..(from + length).min(other.len())];
            let end = (at + part.len()).min(bytes.len());
            bytes.splice(at..end, part.iter().copied());
        }
        _ => {
            let near = bytes.len() as u64;
            let edges = [EDGES[below(EDGES.len())], near, near.wrapping_sub(4), near + 1];
            let number = edges[below(edges.len())].to_le_bytes();
            let width = 1 << random.below(4);
            for (byte, new) in bytes[at..].iter_mut().zip(&number[..width]) {
                *byte = *new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn almost_every_mutation_changes_something_and_none_takes_everything() {
        let (random, bytes) = (Random::from_seed(1), b"a sample of some length".to_vec());
        let changed = (0..1_000).map(|_| mutate(&bytes, b"another one", &random));
        let changed: Vec<Vec<u8>> = changed.inspect(|changed| assert!(!changed.is_empty())).collect();
        assert!(changed.iter().filter(|changed| **changed != bytes).count() > 900);
        assert!(changed.iter().any(|changed| changed.len() < bytes.len()));
        assert!(changed.iter().any(|changed| changed.len() > bytes.len()));
    }
}
