//! What is found in blocks whose checksum is right and whose records are not.

use proptest::prelude::*;
use tidewire_core::record::{BlockBuilder, Mutation};
use tidewire_core::{causal::VersionVector, id::OriginTag};

use super::*;

const PARTITIONS: u16 = 4;
const LOG: Incarnation = Incarnation::new(9);

/// A block of records of 8 bytes, but for those at `large`, and a place in it for each.
fn block(keys: &[&str], large: &[usize]) -> (Block, Vec<Dot>) {
    let origin = OriginTag::new(3);
    let mut builder = BlockBuilder::new(origin, PARTITIONS, 0, 1024);
    let (mut next, mut dots) = ([5_u64; PARTITIONS as usize], Vec::new());
    for (at, key) in keys.iter().enumerate() {
        let partition = PartitionId::of(key.as_bytes(), PARTITIONS);
        let offset = Offset::new(next[partition.index()]);
        next[partition.index()] += 1;
        let value = vec![7; if large.contains(&at) { 200 } else { 7 }];
        builder.push(
            &Mutation::set(key.to_string(), value),
            partition,
            offset,
            Hlc::new(100 + at as u64),
            false,
        );
        dots.push(Dot { origin, incarnation: LOG, partition, offset });
    }
    (builder.seal(&VersionVector::default(), LOG), dots)
}

/// The same block with a byte of its records changed, and a checksum that is right.
fn rewritten(block: &Block, at: usize, byte: u8) -> Block {
    let mut bytes = block.bytes().to_vec();
    let records_at = bytes.len() - 4 - block.records().left();
    bytes[records_at + at] = byte;
    let end = bytes.len() - 4;
    let sum = tidewire_core::record::checksum(LOG.get(), &[&bytes[..end]]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    let block = Block::parse(bytes.into()).unwrap();
    block.verify(LOG).expect("its checksum is right");
    block
}

proptest! {
    #[test]
    fn f35_of_a_block_exactly_the_records_over_the_limit_are_parked(
        keys in proptest::collection::vec("[a-f]", 1..20), large in proptest::collection::btree_set(0_usize..20, 0..4),
    ) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let large: Vec<usize> = large.into_iter().filter(|at| *at < keys.len()).collect();
        let (block, dots) = block(&keys, &large);
        let faults = find(&block, LOG, PARTITIONS, 100);
        let found: Vec<Dot> = faults.iter().map(|fault| fault.letter.dot()).collect();
        prop_assert_eq!(found, large.iter().map(|at| dots[*at]).collect::<Vec<_>>());
        for (fault, at) in faults.iter().zip(&large) {
            prop_assert_eq!(fault.kind, RefusalKind::TooLarge);
            let (record, length) = RecordView::parse(&fault.letter.bytes).unwrap();
            prop_assert_eq!((record.key, length), (keys[*at].as_bytes(), fault.letter.bytes.len()));
            prop_assert_eq!((fault.letter.hlc, fault.letter.records()), (record.hlc, 1));
        }
        for (at, dot) in dots.iter().enumerate() {
            let letter = of_dot(&block, *dot, "refused").unwrap();
            let (record, _) = RecordView::parse(&letter.bytes).unwrap();
            prop_assert_eq!((record.key, letter.dot()), (keys[at].as_bytes(), *dot));
        }
    }
}

#[test]
fn behind_a_record_that_cannot_be_read_everything_is_parked_as_one() {
    let (block, dots) = block(&["a", "b", "a", "c"], &[]);
    let length = block.records().left() / 4;
    // The third record is of a kind that is not known here.
    let faults = find(&rewritten(&block, 2 * length, 77), LOG, PARTITIONS, 100);
    let [Fault { kind: RefusalKind::Malformed, letter }] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(
        (letter.records(), letter.hlc),
        (2, Hlc::new(101)),
        "none of them is older than the one before"
    );
    let stands_for = |dot: &Dot| {
        let mut stretches = letter.stretches.iter();
        stretches.any(|s| s.partition == dot.partition && (s.first..s.end()).contains(&dot.offset))
    };
    assert_eq!(dots.iter().map(stands_for).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(letter.bytes.len(), 2 * length);
}

#[test]
fn a_block_that_does_not_add_up_is_parked_whole() {
    let (block, _) = block(&["a", "b"], &[]);
    // The first record says that it is of a partition that the block does not have.
    let wrong = rewritten(&block, 2, 3 ^ block.runs().next().unwrap().partition.get() as u8);
    let faults = find(&wrong, LOG, PARTITIONS, 100);
    assert_eq!(faults.iter().map(|fault| fault.letter.records()).sum::<u64>(), 2, "{faults:?}");
}

#[test]
fn a_record_is_tried_some_times_and_others_are_counted_apart() {
    let attempts = Attempts::default();
    let dot = |offset| Dot {
        origin: OriginTag::new(1),
        incarnation: LOG,
        partition: PartitionId::new(0),
        offset: Offset::new(offset),
    };
    assert_eq!([1, 1, 2, 1].map(|offset| attempts.count(dot(offset))), [1, 2, 1, 3]);
    (0..10_000).for_each(|offset| _ = attempts.count(dot(offset)));
    assert!(attempts.0.lock().len() <= REMEMBERED);
}
