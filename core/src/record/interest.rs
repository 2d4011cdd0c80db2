//! [`Interest`]: which keys a cluster holds of a tree, by their prefixes. Pure.
//!
//! Declared once for the receiving cluster's tree, and the same on each link into it: so coverage means the same whatever
//! path it came by. Senders leave out what lies outside, and still cover it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{Block, PartitionRun};
use super::mutation::{Kind, Mutation};
use super::view::RecordView;
use crate::limits::{MAX_INTEREST_BYTES, MAX_INTEREST_PREFIXES, MAX_KEY_BYTES, MAX_PARTITIONS};

/// Why prefixes are no interest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterestError {
    /// A prefix of no bytes.
    #[error("a prefix has at least one byte; leave the list empty to hold all keys")]
    Empty,
    /// A prefix that no key can have.
    #[error("a prefix of {0} bytes is longer than a key may be, {MAX_KEY_BYTES} bytes")]
    Long(usize),
    /// Too many of them.
    #[error("{0} prefixes, at most {MAX_INTEREST_PREFIXES} can be; name what they have in common")]
    Many(usize),
    /// Too many bytes together.
    #[error(
        "prefixes of {0} bytes together, at most {MAX_INTEREST_BYTES} can be; name what they have in common"
    )]
    Large(usize),
}

/// What an interest keeps of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Every record.
    Whole,
    /// Some of them.
    Part,
    /// None.
    Nothing,
}

/// Prefixes of the keys that are held, in order, none of them the prefix of another; without any: all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest(Arc<[Bytes]>);

impl Interest {
    /// All keys.
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys with one of these prefixes; all keys if there are none.
    ///
    /// # Errors
    /// When a prefix cannot be, or there are too many of them.
    pub fn new<P: Into<Bytes>>(prefixes: impl IntoIterator<Item = P>) -> Result<Self, InterestError> {
        let mut given: Vec<Bytes> = prefixes.into_iter().map(Into::into).collect();
        given.sort_unstable();
        let mut kept: Vec<Bytes> = Vec::new();
        for prefix in given {
            if prefix.is_empty() {
                return Err(InterestError::Empty);
            }
            if prefix.len() > MAX_KEY_BYTES {
                return Err(InterestError::Long(prefix.len()));
            }
            if !kept.last().is_some_and(|last| prefix.starts_with(last)) {
                kept.push(prefix);
            }
        }
        if kept.len() > MAX_INTEREST_PREFIXES {
            return Err(InterestError::Many(kept.len()));
        }
        let bytes = kept.iter().map(Bytes::len).sum();
        if bytes > MAX_INTEREST_BYTES {
            return Err(InterestError::Large(bytes));
        }
        Ok(Self(kept.into()))
    }

    /// Whether it is all keys.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The prefixes, in order; none: all keys.
    pub fn prefixes(&self) -> &[Bytes] {
        &self.0
    }

    /// Whether a key is held.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_all() || self.prefix_of(key).is_some()
    }

    /// The prefix under which a key is held: the last one at or below it, or none.
    fn prefix_of(&self, key: &[u8]) -> Option<&Bytes> {
        let after = self.0.partition_point(|prefix| &prefix[..] <= key);
        self.0[..after].last().filter(|prefix| key.starts_with(prefix))
    }

    /// Whether any key from one up to, and without, another can be held.
    pub fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        let after = self.0.partition_point(|prefix| &prefix[..] < from);
        self.contains(from) || self.0.get(after).is_some_and(|prefix| &prefix[..] < to)
    }

    /// Whether every key that another interest holds is held.
    pub fn includes(&self, other: &Self) -> bool {
        self.is_all() || !other.is_all() && other.0.iter().all(|prefix| self.contains(prefix))
    }

    /// The keys that both hold; None if there are none.
    pub fn common(&self, other: &Self) -> Option<Self> {
        if self.is_all() || other.is_all() {
            return Some(if self.is_all() { other.clone() } else { self.clone() });
        }
        let mine = self.0.iter().filter(|prefix| other.contains(prefix));
        let theirs = other.0.iter().filter(|prefix| self.contains(prefix));
        let mut both: Vec<Bytes> = mine.chain(theirs).cloned().collect();
        both.sort_unstable();
        both.dedup();
        (!both.is_empty()).then(|| Self(both.into()))
    }

    /// Whether a record may concern a key that is held: of a range any part. Maintenance never does.
    pub fn wants(&self, record: &RecordView<'_>) -> bool {
        match (record.kind, record.end_key) {
            (Kind::Mark, _) => false,
            (Kind::DeleteRange, Some(to)) => self.overlaps(record.key, to),
            _ => self.contains(record.key),
        }
    }

    /// Whether a write concerns no key but such as are held: a range lies under one prefix.
    pub fn allows(&self, mutation: &Mutation) -> bool {
        let Some(to) = &mutation.end_key else { return self.contains(&mutation.key) };
        let below =
            |prefix: &Bytes| to.starts_with(prefix) || end_of(prefix).is_none_or(|end| to[..] <= end[..]);
        self.is_all() || self.prefix_of(&mutation.key).is_some_and(below)
    }

    /// What it keeps of a block. One with a record that cannot be read, or that does not add up, is kept as it is: nobody can
    /// say what it is about.
    pub fn keeps(&self, block: &Block) -> Kept {
        if self.is_all() && !block.is_cover() {
            return Kept::Whole;
        }
        let (mut kept, mut all) = (0_u32, 0_u32);
        let mut counts = [0_u32; MAX_PARTITIONS as usize];
        for record in block.records() {
            let Ok(record) = record else { return Kept::Whole };
            let Some(count) = counts.get_mut(record.partition.index()) else { return Kept::Whole };
            *count += 1;
            kept += u32::from(self.wants(&record));
            all += 1;
        }
        let adds_up = |run: PartitionRun| counts[run.partition.index()] == run.count;
        if all != block.count() || !block.runs().all(adds_up) {
            return Kept::Whole;
        }
        match kept {
            0 => Kept::Nothing,
            _ if kept == all => Kept::Whole,
            _ => Kept::Part,
        }
    }
}

/// The first key above all with a prefix; None: there is none.
fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

impl fmt::Display for Interest {
    /// For people: the prefixes as a configuration lists them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all keys");
        }
        let named: Vec<String> =
            self.0.iter().map(|prefix| format!("{:?}", String::from_utf8_lossy(prefix))).collect();
        write!(f, "the keys under {}", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interest(prefixes: &[&'static str]) -> Interest {
        Interest::new(prefixes.iter().copied()).unwrap()
    }

    #[test]
    fn prefixes_are_put_in_order_and_none_is_within_another() {
        let given = interest(&["us/", "eu/de/", "eu/", "us/", "eu"]);
        assert_eq!(given, interest(&["eu", "us/"]));
        assert_eq!(given.to_string(), r#"the keys under "eu", "us/""#);
        assert!(interest(&[]).is_all());
        assert_eq!(Interest::new([""]), Err(InterestError::Empty));
        assert_eq!(Interest::new([vec![1; MAX_KEY_BYTES + 1]]), Err(InterestError::Long(MAX_KEY_BYTES + 1)));
        let many = (0..=MAX_INTEREST_PREFIXES).map(|at| format!("{at:04}"));
        assert_eq!(Interest::new(many), Err(InterestError::Many(MAX_INTEREST_PREFIXES + 1)));
        let large = (0..MAX_INTEREST_PREFIXES).map(|at| vec![u8::try_from(at).unwrap(); MAX_KEY_BYTES]);
        assert!(matches!(Interest::new(large), Err(InterestError::Large(_))));
    }

    fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let word = proptest::collection::vec(prop::sample::select(vec![0_u8, b'a', b'b', 255]), 1..4);
        proptest::collection::vec(word, 0..5)
    }

    fn keys() -> Vec<Vec<u8>> {
        let letters = [0_u8, b'a', b'b', 254, 255];
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for length in 0..3 {
            let longer: Vec<Vec<u8>> = keys.iter().filter(|key| key.len() == length).cloned().collect();
            keys.extend(longer.iter().flat_map(|key| letters.map(|letter| [&key[..], &[letter]].concat())));
        }
        keys.retain(|key| !key.is_empty());
        keys.sort_unstable();
        keys
    }

    proptest! {
        /// Against the plain meaning of the words, over every short key.
        #[test]
        fn an_interest_is_what_its_prefixes_say(mine in words(), theirs in words(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
            let held = |words: &[Vec<u8>], key: &[u8]| words.is_empty() || words.iter().any(|word| key.starts_with(word));
            let (here, there) = (Interest::new(mine.clone()).unwrap(), Interest::new(theirs.clone()).unwrap());
            let keys = keys();
            for key in &keys {
                prop_assert_eq!(here.contains(key), held(&mine, key));
                let both = here.common(&there).is_some_and(|both| both.contains(key));
                prop_assert_eq!(both, held(&mine, key) && held(&theirs, key));
            }
            if here.includes(&there) {
                prop_assert!(keys.iter().all(|key| !held(&theirs, key) || held(&mine, key)));
            } else {
                prop_assert!(theirs.is_empty() || theirs.iter().any(|word| !held(&mine, word)));
            }
            let (from, to) = (from.get(&keys), to.get(&keys));
            prop_assume!(from < to);
            let within: Vec<_> = keys.iter().filter(|key| (from..to).contains(key)).collect();
            let overlap = here.overlaps(from, to);
            prop_assert!(overlap || within.iter().all(|key| !held(&mine, key)));
            let range = Mutation::delete_range(from.clone(), to.clone());
            if here.allows(&range) {
                prop_assert!(overlap && within.iter().all(|key| held(&mine, key)));
            }
        }
    }

    #[test]
    fn a_range_is_allowed_under_one_prefix_and_nowhere_else() {
        let eu = interest(&["eu/", "us/"]);
        let range = |from: &'static str, to: &'static str| eu.allows(&Mutation::delete_range(from, to));
        assert!(range("eu/", "eu0") && range("eu/1", "eu/2") && range("us/", "us/9"));
        assert!(!range("eu", "eu0") && !range("eu/", "eu1") && !range("eu/", "us/5") && !range("a", "b"));
        assert!(eu.overlaps(b"a", b"z") && eu.overlaps(b"eu/zz", b"f") && !eu.overlaps(b"f", b"us/"));
        assert!(eu.allows(&Mutation::set("us/x", "1")) && !eu.allows(&Mutation::delete("u")));
    }
}
