//! The state against a model that knows every write and takes the greatest version: whatever the order of arrival,
//! whatever was snapshotted in between.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::image::{EntryImage, RangeImage};
use super::state::State;
use crate::causal::VersionVector;
use crate::id::{GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::record::{BlockBuilder, Frame, FramedBlock, Group, Kind, Mutation};

const PARTITIONS: u16 = 4;
const KEYS: u8 = 12;
const INCARNATION: Incarnation = Incarnation::new(7);

#[derive(Clone, Debug)]
struct Write {
    version: Version,
    mutation: Mutation,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let deadline = prop_oneof![2 => Just(None), 1 => (0_u64..100).prop_map(Some)];
    prop_oneof![
        5 => (0..KEYS, any::<u8>(), deadline).prop_map(|(key, value, deadline_ms)| {
            Mutation { deadline_ms, ..Mutation::set(vec![key], vec![value]) }
        }),
        2 => (0..KEYS).prop_map(|key| Mutation::delete(vec![key])),
        2 => (0..KEYS, 1..KEYS).prop_map(|(from, long)| Mutation::delete_range(vec![from], vec![from + long])),
    ]
}

/// Writes with the versions 1, 2, 3, ... in an order of arrival; origins keep the order of their own.
fn arrivals() -> impl Strategy<Value = Vec<Write>> {
    proptest::collection::vec((mutation(), 1_u64..4, any::<u32>()), 1..40).prop_map(|all| {
        let mut writes: Vec<(u32, Write)> = (1..)
            .zip(all)
            .map(|(hlc, (mutation, origin, place))| {
                let version = Version { hlc: Hlc::new(hlc), origin: OriginTag::new(origin) };
                (place, Write { version, mutation })
            })
            .collect();
        writes.sort_by_key(|(place, write)| (*place, write.version));
        // What each origin sends stays in its order, in the places that the shuffle gave it.
        let mut queues: BTreeMap<OriginTag, Vec<Write>> = BTreeMap::new();
        for (_, write) in &writes {
            queues.entry(write.version.origin).or_default().push(write.clone());
        }
        queues.values_mut().for_each(|queue| queue.sort_by_key(|write| std::cmp::Reverse(write.version)));
        let next = |(_, write): &(u32, Write)| queues.get_mut(&write.version.origin)?.pop();
        writes.iter().filter_map(next).collect()
    })
}

/// Each write is a group of its own at the LSN of its place.
fn groups(writes: &[Write]) -> Vec<Group> {
    let mut offsets: BTreeMap<(OriginTag, PartitionId), Offset> = BTreeMap::new();
    let group = |(lsn, write): (u64, &Write)| {
        let Write { version, mutation } = write;
        let partition = PartitionId::of(&mutation.key, PARTITIONS);
        let offset = offsets.entry((version.origin, partition)).or_insert(Offset::ZERO);
        let mut builder = BlockBuilder::new(version.origin, PARTITIONS, 0, 64);
        builder.push(mutation, partition, *offset, version.hlc, false);
        *offset = offset.next();
        let block = builder.seal(&VersionVector::default(), INCARNATION);
        block.check(PARTITIONS).expect("what is built here may come from elsewhere");
        let frame = Frame {
            sequence: GroupSequence::new(lsn),
            index: 0,
            frames: 1,
            length: u32::try_from(block.bytes().len()).expect("small"),
            first_lsn: Lsn::new(lsn),
            closed: version.hlc,
            skip: 0,
        };
        Group::new(vec![FramedBlock { frame, block }])
    };
    (0..).zip(writes).map(group).collect()
}

fn applied(groups: &[Group]) -> State {
    let mut state = State::new(OriginTag::new(1), PARTITIONS);
    for group in groups {
        state.apply(group, |_| INCARNATION);
    }
    state
}

/// Whether a write says anything about a key.
fn about(write: &Write, key: &[u8]) -> bool {
    match &write.mutation.end_key {
        Some(end) => write.mutation.key <= key && key < &end[..],
        None => write.mutation.key == key,
    }
}

/// What a key holds after some writes: the greatest version wins.
fn winner<'w>(writes: &'w [Write], key: &[u8]) -> Option<&'w Write> {
    writes.iter().filter(|write| about(write, key)).max_by_key(|write| write.version)
}

fn key(number: u8) -> Vec<u8> {
    vec![number]
}

/// Whether the write at `at` was, for a key, greater than everything that came before it.
fn won(writes: &[Write], at: usize, key: &[u8]) -> bool {
    winner(&writes[..at], key).is_none_or(|other| other.version < writes[at].version)
}

/// Positions whose write lost on arrival. There is a key between any two, so a range loses against ranges alone.
fn losers(writes: &[Write]) -> BTreeSet<u64> {
    let lost = |at: &usize| {
        let write = &writes[*at];
        if write.mutation.kind != Kind::DeleteRange {
            return !won(writes, *at, &write.mutation.key);
        }
        let ranges = |write: &&Write| write.mutation.kind == Kind::DeleteRange;
        let earlier: Vec<Write> = writes[..*at].iter().filter(ranges).cloned().collect();
        (0..2 * KEYS)
            .map(key)
            .filter(|key| about(write, key))
            .all(|key| winner(&earlier, &key).is_some_and(|other| other.version > write.version))
    };
    (0..writes.len()).filter(lost).map(|at| at as u64).collect()
}

/// Keys that the range delete at `at` left dead, and that nothing has set or deleted since.
fn removed_by(writes: &[Write], at: usize) -> Vec<Vec<u8>> {
    let range = &writes[at];
    let dead = |key: &Vec<u8>| {
        let had = winner(&writes[..at], key)
            .is_some_and(|write| write.mutation.kind == Kind::Set && write.version < range.version);
        // A further range delete finds nothing to remove; everything else that wins has an entry of its own.
        let again = (at + 1..writes.len()).any(|later| {
            let write = &writes[later];
            write.mutation.kind != Kind::DeleteRange && about(write, key) && won(writes, later, key)
        });
        about(range, key) && had && !again
    };
    (0..2 * KEYS).map(key).filter(dead).collect()
}

fn check(state: &State, writes: &[Write], now: u64) -> Result<(), TestCaseError> {
    let mut rows = Vec::new();
    for key in (0..2 * KEYS).map(key) {
        let wanted = winner(writes, &key).filter(|write| {
            let Mutation { kind, deadline_ms, .. } = &write.mutation;
            *kind == Kind::Set && deadline_ms.is_none_or(|deadline| deadline > now)
        });
        let found = state.get(&key, || now);
        prop_assert_eq!(found.as_ref().map(|found| found.version), wanted.map(|wanted| wanted.version));
        prop_assert_eq!(
            found.as_ref().map(|found| &found.value),
            wanted.map(|wanted| &wanted.mutation.value)
        );
        rows.extend(found.map(|found| (key, found.version, found.value)));
    }
    let shown: Vec<_> = state.scan(b"", None, usize::MAX, now);
    prop_assert_eq!(shown.len(), rows.len());
    for (row, (key, version, value)) in shown.iter().zip(&rows) {
        prop_assert_eq!((&row.key[..], row.version, &row.value), (&key[..], *version, value));
    }
    prop_assert_eq!(state.live(now), rows.len() as u64);
    Ok(())
}

/// What a state holds beyond what readers see, in the order of keys.
fn everything(state: &State) -> (Vec<EntryImage>, Vec<RangeImage>, BTreeSet<u64>) {
    let lost = state.superseded().into_iter().flat_map(|range| range.start.get()..range.end.get());
    (state.export(None, usize::MAX), state.ranges(), lost.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_greatest_version_wins_whatever_the_order_of_arrival(writes in arrivals(), now in 0_u64..110) {
        let state = applied(&groups(&writes));
        check(&state, &writes, now)?;
        check(&state, &writes, 110 - now)?;
        let mut sorted = writes.clone();
        sorted.sort_by_key(|write| write.version);
        let in_order = applied(&groups(&sorted));
        prop_assert_eq!(state.digest(now), in_order.digest(now));
        prop_assert_eq!(in_order.superseded(), vec![], "in the order of versions nothing loses");
        let fragments = |state: &State| {
            state.ranges().into_iter().map(|range| (range.from, range.to, range.version)).collect::<Vec<_>>()
        };
        prop_assert_eq!(fragments(&state), fragments(&in_order));
    }

    #[test]
    fn superseded_is_exactly_what_changed_nothing_on_arrival(writes in arrivals()) {
        let (_, _, lost) = everything(&applied(&groups(&writes)));
        prop_assert_eq!(lost, losers(&writes));
    }

    #[test]
    fn what_a_range_delete_removed_is_known_by_its_position(writes in arrivals()) {
        let state = applied(&groups(&writes));
        for (at, write) in writes.iter().enumerate() {
            let Some(end) = &write.mutation.end_key else { continue };
            let range = &write.mutation.key[..]..&end[..];
            let removed = state.removed(range.clone(), Lsn::new(at as u64), None, usize::MAX);
            prop_assert_eq!(&removed, &removed_by(&writes, at));
            // In pages of one it is the same list.
            let (mut paged, mut after): (Vec<bytes::Bytes>, Option<bytes::Bytes>) = (Vec::new(), None);
            while let [next] = &state.removed(range.clone(), Lsn::new(at as u64), after.as_deref(), 1)[..] {
                paged.push(next.clone());
                after = Some(next.clone());
            }
            prop_assert_eq!(paged, removed);
        }
    }

    #[test]
    fn a_fuzzy_export_and_a_replay_give_what_the_whole_log_gives(
        writes in arrivals(), start in any::<prop::sample::Index>(), pace in 0_usize..3, bytes in 1_usize..12,
    ) {
        let groups = groups(&writes);
        let start = start.index(groups.len() + 1);
        let mut state = applied(&groups[..start]);
        // The scan sees each chunk a little later than the one before.
        let (ranges, mut at, mut images) = (state.ranges(), start, Vec::<EntryImage>::new());
        loop {
            let chunk = state.export(images.last().map(|last| &last.key[..]), bytes);
            if chunk.is_empty() {
                break;
            }
            images.extend(chunk);
            for group in groups[at..].iter().take(pace) {
                state.apply(group, |_| INCARNATION);
                at += 1;
            }
        }
        let mut opened = State::new(OriginTag::new(1), PARTITIONS);
        images.iter().for_each(|image| opened.install(image));
        ranges.iter().for_each(|range| opened.install_range(range));
        opened.install_superseded(state.superseded(), Lsn::new(at as u64));
        for (lsn, group) in groups.iter().enumerate().skip(start) {
            let outcome = opened.apply(group, |_| INCARNATION);
            prop_assert!(lsn >= at || outcome.conflicts == 0, "a conflict is counted again");
        }
        let whole = applied(&groups);
        prop_assert_eq!(everything(&opened), everything(&whole));
        prop_assert_eq!(opened.digest(50), whole.digest(50));
        prop_assert_eq!(opened.live(50), whole.live(50));
        prop_assert_eq!(opened.bytes(), whole.bytes());
    }
}

#[test]
fn a_conflict_is_counted_once_for_each_key_that_two_writers_met_at() {
    let conflicts = |writes: &[Write]| -> u64 {
        let mut state = State::new(OriginTag::new(1), PARTITIONS);
        groups(writes).iter().map(|group| state.apply(group, |_| INCARNATION).conflicts).sum()
    };
    let (a, b) = (write(1, 1, Mutation::set("a", "1")), write(2, 1, Mutation::set("b", "1")));
    // The state is that of origin 1: its own writes have seen everything; those of 2 have seen nothing of it.
    let range = |hlc, origin| write(hlc, origin, Mutation::delete_range("a", "c"));
    assert_eq!(conflicts(&[a.clone(), b.clone(), range(3, 1)]), 0, "the own range has seen both");
    assert_eq!(conflicts(&[a.clone(), b.clone(), range(3, 2)]), 2, "both lose");
    assert_eq!(conflicts(&[b.clone(), range(1, 2)]), 1, "the range loses");
    assert_eq!(conflicts(&[range(3, 1), write(1, 2, Mutation::set("a", "2"))]), 1, "a late write loses");
    assert_eq!(conflicts(&[range(1, 1), write(2, 2, Mutation::set("a", "2"))]), 1, "a late write wins");
    assert_eq!(conflicts(&[range(1, 2), write(2, 2, Mutation::set("a", "2"))]), 0, "of one origin");
    assert_eq!(conflicts(&[a, range(3, 1), write(2, 2, Mutation::set("a", "2"))]), 1, "one key, once");
}

fn write(hlc: u64, origin: u64, mutation: Mutation) -> Write {
    Write { version: Version { hlc: Hlc::new(hlc), origin: OriginTag::new(origin) }, mutation }
}

#[test]
fn f21_equal_times_are_decided_by_the_origin_on_every_cluster() {
    let rivals = [Mutation::set("k", "other"), Mutation::delete("k"), Mutation::delete_range("a", "z")];
    for mutation in rivals {
        let (one, two) = (write(5, 1, Mutation::set("k", "v")), write(5, 2, mutation));
        let (there, here) = ([one.clone(), two.clone()], [two.clone(), one]);
        let states = [applied(&groups(&there)), applied(&groups(&here))];
        assert_eq!(states[0].digest(0), states[1].digest(0));
        let wanted = (two.mutation.kind == Kind::Set).then_some(two.version);
        for state in &states {
            assert_eq!(state.get(b"k", || 0).map(|found| found.version), wanted, "the greater origin wins");
        }
        assert_eq!(states[0].superseded(), []);
        assert_eq!(states[1].superseded(), [Lsn::new(1)..Lsn::new(2)]);
    }
}

#[test]
fn f62_an_expired_entry_still_wins_against_an_older_write() {
    let expiring = Mutation { deadline_ms: Some(10), ..Mutation::set("k", "new") };
    let state = applied(&groups(&[write(5, 1, expiring), write(3, 2, Mutation::set("k", "old"))]));
    assert!(state.get(b"k", || 9).is_some());
    assert_eq!(state.get(b"k", || 10), None);
    assert_eq!((state.live(9), state.live(10)), (1, 0));
    assert_eq!(state.superseded(), [Lsn::new(1)..Lsn::new(2)]);
}

#[test]
fn a_digest_tells_deadlines_apart() {
    let of = |deadline_ms| {
        let state = applied(&groups(&[write(1, 1, Mutation { deadline_ms, ..Mutation::set("k", "v") })]));
        state.digest(5)
    };
    let (never, soon, later, over) = (of(None), of(Some(6)), of(Some(7)), of(Some(5)));
    assert!(never != soon && soon != later && never != later);
    assert_eq!(over, applied(&[]).digest(5), "what has expired is not there");
}
