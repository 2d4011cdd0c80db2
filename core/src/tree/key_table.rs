//! [`KeyTable`]: where the entry of a key lies. Knows keys by a tag only: the caller compares what it finds.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// Tables that the keys are spread over: each grows on its own, so that no write waits until all of them have moved,
/// and several can be filled at once.
const SHARDS: usize = 16;

/// Half of the hash of a key. A table keeps it beside each place, so that it grows, and passes over other keys,
/// without looking at any entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyTag(u32);

impl KeyTag {
    /// The tag of a key.
    pub(super) fn of(key: &[u8]) -> Self {
        // The lower half is as good as the upper one.
        Self((xxh3_64(key) & u64::from(u32::MAX)) as u32)
    }

    fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    /// Spread over 64 bits again: tables take places from the lower bits and tell keys apart by the upper ones.
    fn hash(self) -> u64 {
        u64::from(self.0 / SHARDS as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    tag: KeyTag,
    slot: u32,
}

type Shard = HashTable<Place>;

/// The slots of all keys.
#[derive(Debug)]
pub(super) struct KeyTable {
    shards: Vec<Shard>,
}

impl Default for KeyTable {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::new()).collect() }
    }
}

impl KeyTable {
    /// The slot among those of a tag that `is_it` says yes to.
    pub(super) fn find(&self, tag: KeyTag, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let shard = &self.shards[tag.shard()];
        shard.find(tag.hash(), |place| place.tag == tag && is_it(place.slot)).map(|place| place.slot)
    }

    /// Notes the slot of a key that is not there yet.
    pub(super) fn insert(&mut self, tag: KeyTag, slot: u32) {
        self.shards[tag.shard()].insert_unique(tag.hash(), Place { tag, slot }, |place| place.tag.hash());
    }

    /// Forgets a slot.
    pub(super) fn remove(&mut self, tag: KeyTag, slot: u32) {
        let found = self.shards[tag.shard()]
            .find_entry(tag.hash(), |place| place.slot == slot)
            .expect("what is removed was inserted");
        found.remove();
    }

    /// Gives memory back where most of a shard is empty. Says whether there is a shard behind it.
    pub(super) fn shrink(&mut self, shard: usize) -> bool {
        if let Some(shard) = self.shards.get_mut(shard).filter(|shard| shard.len() < shard.capacity() / 4) {
            shard.shrink_to(shard.len() * 2, |place| place.tag.hash());
        }
        shard + 1 < self.shards.len()
    }
}

/// A part of a table that is filled at once, apart from the others.
#[derive(Debug)]
pub(super) struct KeyTablePart(Vec<Shard>);

impl KeyTablePart {
    /// Every how many-th shard one of `parts` parts has: the `part`-th, filled with the slots of distinct keys, which
    /// are the places of their tags.
    pub(super) fn fill(tags: &[KeyTag], part: usize, parts: usize) -> Self {
        let mut shards: Vec<Shard> = (part..SHARDS)
            .step_by(parts)
            // A little more than their share, so that hardly one has to grow.
            .map(|_| Shard::with_capacity(tags.len() / SHARDS + tags.len() / 256))
            .collect();
        for (slot, tag) in (0_u32..).zip(tags) {
            let shard = tag.shard();
            if shard % parts == part {
                shards[shard / parts]
                    .insert_unique(tag.hash(), Place { tag: *tag, slot }, |place| place.tag.hash());
            }
        }
        Self(shards)
    }

    /// The table of all parts, in their order.
    pub(super) fn join(parts: Vec<Self>) -> KeyTable {
        let count = parts.len();
        let mut parts: Vec<_> = parts.into_iter().map(|part| part.0.into_iter()).collect();
        let shards = (0..SHARDS).filter_map(|shard| parts[shard % count].next()).collect();
        KeyTable { shards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(count: u32) -> Vec<KeyTag> {
        (0..count).map(|at| KeyTag::of(&at.to_le_bytes())).collect()
    }

    #[test]
    fn a_table_filled_in_parts_holds_what_one_filled_key_by_key_does() {
        for parts in [1, 2, 3, 16] {
            for count in [0, 1, 1_000, 20_000] {
                let tags = tags(count);
                let filled = (0..parts).map(|part| KeyTablePart::fill(&tags, part, parts)).collect();
                let joined = KeyTablePart::join(filled);
                let mut single = KeyTable::default();
                (0_u32..).zip(&tags).for_each(|(slot, tag)| single.insert(*tag, slot));
                for (slot, tag) in (0_u32..).zip(&tags) {
                    assert_eq!(
                        joined.find(*tag, |found| found == slot),
                        Some(slot),
                        "{parts} parts of {count}"
                    );
                    assert_eq!(single.find(*tag, |found| found == slot), Some(slot));
                }
                let len = |table: &KeyTable| table.shards.iter().map(HashTable::len).sum::<usize>();
                assert_eq!((len(&joined), len(&single)), (tags.len(), tags.len()));
                assert!(
                    joined.shards.iter().all(|shard| shard.iter().all(|place| place.tag.shard() < SHARDS))
                );
            }
        }
    }

    #[test]
    fn keys_with_one_tag_are_told_apart_by_whoever_asks() {
        let mut table = KeyTable::default();
        let tag = KeyTag(7);
        table.insert(tag, 1);
        table.insert(tag, 2);
        assert_eq!(table.find(tag, |slot| slot == 2), Some(2));
        assert_eq!(table.find(tag, |slot| slot == 3), None);
        assert_eq!(table.find(KeyTag(23), |_| true), None, "another tag in the same shard");
        table.remove(tag, 1);
        assert_eq!((table.find(tag, |slot| slot == 1), table.find(tag, |slot| slot == 2)), (None, Some(2)));
        (0..SHARDS).for_each(|shard| _ = table.shrink(shard));
        assert_eq!(table.find(tag, |_| true), Some(2));
    }
}
