//! Claims about the bytes: round trips, golden bytes, and what damage is called.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::causal::VersionVector;
use crate::id::{GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};

const PARTITIONS: u16 = 8;
const INCARNATION: Incarnation = Incarnation::new(0x1122_3344_5566_7788);

fn build(mutations: &[(Mutation, u64)], deps: &VersionVector) -> Block {
    let mut next = [Offset::new(40); PARTITIONS as usize];
    let mut builder = BlockBuilder::new(OriginTag::new(0xAB), PARTITIONS, 0, 64);
    let mut hlc = Hlc::new(1000);
    for (mutation, step) in mutations {
        hlc = Hlc::new(hlc.get() + step);
        let partition = PartitionId::of(&mutation.key, PARTITIONS);
        let offset = &mut next[partition.index()];
        builder.push(mutation, partition, *offset, hlc, *step == 0);
        *offset = offset.next();
    }
    builder.seal(deps, INCARNATION)
}

fn mutations() -> impl Strategy<Value = Vec<(Mutation, u64)>> {
    let key = proptest::collection::vec(any::<u8>(), 1..20);
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    let one = (key, proptest::option::of(value), proptest::option::of(any::<u64>()), 0_u64..4).prop_map(
        |(key, value, deadline_ms, step)| {
            let mutation = match value {
                Some(value) => Mutation { deadline_ms, ..Mutation::set(key, value) },
                None => Mutation::delete(key),
            };
            (mutation, step)
        },
    );
    proptest::collection::vec(one, 1..30)
}

fn vectors() -> impl Strategy<Value = VersionVector> {
    proptest::collection::vec((1_u64..99, 1_u64..99), 0..5)
        .prop_map(|all| all.into_iter().map(|(o, h)| (OriginTag::new(o), Hlc::new(h))).collect())
}

proptest! {
    /// Filtered, and filtered again: what is kept is what the interest wants of the whole, with the same dots, dependencies
    /// and coverage.
    #[test]
    fn a_filtered_block_keeps_what_is_wanted_and_covers_the_rest(
        mutations in mutations(),
        deps in vectors(),
        prefixes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..2), 100),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let block = build(&mutations, &deps);
        let kept = |block: &Block, wide: &Interest| match wide.keeps(block) {
            Kept::Whole => block.clone(),
            Kept::Part => Coverage::default().filter(block, wide, INCARNATION),
            Kept::Nothing => Coverage::of(block).cover(block.origin(), INCARNATION),
        };
        let narrow = Interest::new(prefixes[..30].to_vec()).expect("prefixes");
        let wide = Interest::new(prefixes[..60].to_vec()).expect("prefixes");
        prop_assert!(wide.includes(&narrow));
        let filtered = kept(&block, &narrow);
        filtered.verify(INCARNATION).expect("checksum");
        filtered.check(PARTITIONS).expect("sound");
        let again = kept(&kept(&block, &wide), &narrow);
        prop_assert!(again == filtered, "by a relay or at once");
        prop_assert!(again.runs().eq(filtered.runs()) || !again.is_filtered());
        prop_assert!(block.runs().zip(filtered.runs()).all(|(a, b)| (a.partition, a.first, a.end()) == (b.partition, b.first, b.end())));
        let mut next: std::collections::BTreeMap<_, _> = block.runs().map(|run| (run.partition, run.first)).collect();
        let (mut wanted, mut last) = (Vec::new(), std::collections::BTreeMap::new());
        for record in block.records().flatten() {
            let offset = next.get_mut(&record.partition).expect("in the table");
            last.insert(record.partition, record.hlc);
            if narrow.wants(&record) {
                wanted.push(RecordView { offset: Some(*offset), ..record });
            }
            *offset = offset.next();
        }
        if filtered.is_filtered() {
            let said: std::collections::BTreeMap<_, _> = filtered.runs().map(|run| (run.partition, run.last)).collect();
            prop_assert_eq!(said, last, "whose log goes back is found out by it");
        }
        if filtered.is_filtered() && !filtered.is_cover() {
            prop_assert_eq!(filtered.records().flatten().collect::<Vec<_>>(), wanted);
            prop_assert_eq!(filtered.deps(), deps);
        } else {
            prop_assert_eq!(filtered.is_cover(), wanted.is_empty());
        }
        let mut bytes = filtered.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Block::parse(Bytes::from(bytes)).and_then(|block| block.verify(INCARNATION)).is_err());
    }

    #[test]
    fn a_block_reads_back_as_it_was_built(mutations in mutations(), deps in vectors()) {
        let block = build(&mutations, &deps);
        block.verify(INCARNATION).expect("checksum");
        block.check(PARTITIONS).expect("check");
        prop_assert_eq!(block.deps(), deps);
        let read: Vec<RecordView<'_>> = block.records().collect::<Result<_, _>>().expect("records");
        prop_assert_eq!(read.len(), mutations.len());
        for (record, (mutation, _)) in read.iter().zip(&mutations) {
            prop_assert_eq!(record.kind, mutation.kind);
            prop_assert_eq!(record.key, &mutation.key[..]);
            prop_assert_eq!(record.value, &mutation.value[..]);
            prop_assert_eq!(record.deadline_ms, mutation.deadline_ms);
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed(mutations in mutations(), deps in vectors(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let block = build(&mutations, &deps);
        let mut bytes = block.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let noticed = Block::parse(Bytes::from(bytes)).and_then(|block| block.verify(INCARNATION));
        prop_assert!(noticed.is_err());
    }

    #[test]
    fn a_block_of_another_incarnation_does_not_pass(mutations in mutations(), other in any::<u64>()) {
        prop_assume!(other != INCARNATION.get());
        let block = build(&mutations, &VersionVector::default());
        prop_assert_eq!(block.verify(Incarnation::new(other)), Err(FormatError::Checksum("a block")));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() > 8 {
            bytes[..4].copy_from_slice(b"TWB1");
            bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
        }
        let _ = Frame::parse(&bytes, 7);
        let _ = RecordView::parse(&bytes);
        if let Ok(block) = Block::parse(Bytes::from(bytes)) {
            let _ = (block.check(PARTITIONS), block.verify(INCARNATION), block.deps());
        }
    }

    #[test]
    fn a_frame_reads_back_and_is_tied_to_its_block_and_seed(sequence in any::<u64>(), lsn in any::<u64>(), skip in any::<u16>(), seed in any::<u64>()) {
        let block = build(&[(Mutation::set("k", "v"), 1)], &VersionVector::default());
        let frame = Frame {
            sequence: GroupSequence::new(sequence), index: 0, frames: 3, length: block.bytes().len() as u32,
            first_lsn: Lsn::new(lsn), closed: Hlc::new(9), skip,
        };
        let mut bytes = frame.encode(seed, &block.bytes()[block.bytes().len() - 4..]).to_vec();
        bytes.extend_from_slice(block.bytes());
        prop_assert_eq!(Frame::parse(&bytes, seed), Ok(frame));
        prop_assert!(Frame::parse(&bytes, seed ^ 1).is_err(), "a recycled segment's frame");
        *bytes.last_mut().expect("bytes") ^= 1;
        prop_assert!(Frame::parse(&bytes, seed).is_err(), "the block's checksum changed");
    }
}

#[test]
fn the_bytes_of_version_1_are_fixed() {
    let deps: VersionVector = [(OriginTag::new(5), Hlc::new(6))].into_iter().collect();
    let ttl = Mutation { deadline_ms: Some(3), ..Mutation::set("b", "w") };
    let block = build(&[(Mutation::set("a", "v"), 1), (ttl, 1), (Mutation::delete("a"), 0)], &deps);
    let hex: String = block.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("../../golden/block-v1.hex").trim());
    let frame = Frame {
        sequence: GroupSequence::new(1),
        index: 2,
        frames: 3,
        length: 4,
        first_lsn: Lsn::new(5),
        closed: Hlc::new(6),
        skip: 7,
    };
    let hex: String = frame.encode(8, &[9, 9, 9, 9]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("../../golden/frame-v1.hex").trim());
}

#[test]
fn the_bytes_of_filtered_blocks_are_fixed() {
    let deps: VersionVector = [(OriginTag::new(5), Hlc::new(6))].into_iter().collect();
    let block = build(
        &[(Mutation::set("a", "v"), 1), (Mutation::set("b", "w"), 1), (Mutation::delete("a"), 1)],
        &deps,
    );
    let interest = Interest::new(["b"]).expect("a prefix");
    let filtered = Coverage::default().filter(&block, &interest, INCARNATION);
    let cover = Coverage::of(&block).cover(block.origin(), INCARNATION);
    let hex = |block: &Block| block.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let all = [&filtered, &cover].map(hex).join("\n");
    assert_eq!(all, include_str!("../../golden/filtered-v1.hex").trim());
}

#[test]
fn a_block_that_does_not_add_up_is_kept_whole() {
    let mutations =
        [(Mutation::set("a", "v"), 1), (Mutation::set("b", "w"), 1), (Mutation::set("bb", "w"), 1)];
    let block = build(&mutations, &VersionVector::default());
    let interest = Interest::new(["b"]).expect("a prefix");
    assert_eq!(interest.keeps(&block), Kept::Part);
    let mut bytes = block.bytes().to_vec();
    // The first record says that it is of another partition than the table knows.
    let at = bytes.len() - 4 - block.records().left() + 2;
    bytes[at] = 63;
    let end = bytes.len() - 4;
    let crc = super::checksum(INCARNATION.get(), &[&bytes[..end]]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let odd = Block::parse(Bytes::from(bytes)).expect("its head is sound");
    odd.verify(INCARNATION).expect("checksum");
    assert_eq!(interest.keeps(&odd), Kept::Whole);
    let other = Interest::new(["a"]).expect("a prefix");
    assert_eq!(other.keeps(&odd), Kept::Whole);
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = build(&[(Mutation::set("a", "v"), 1)], &VersionVector::default()).bytes().to_vec();
    bytes[4] = 2;
    let error = Block::parse(Bytes::from(bytes)).expect_err("version 2");
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[test]
fn a_record_of_an_unknown_kind_is_refused() {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    record[0] = 9;
    assert_eq!(RecordView::parse(&record), Err(FormatError::Kind(9)));
}

#[test]
fn a_vector_larger_than_its_room_is_sealed_all_the_same() {
    for room in [0_usize, 3] {
        let mut builder = BlockBuilder::new(OriginTag::new(1), PARTITIONS, room, 64);
        builder.push(
            &Mutation::set("k", "v"),
            PartitionId::of(b"k", PARTITIONS),
            Offset::ZERO,
            Hlc::new(1),
            false,
        );
        let vector = (1..=3).map(|o| (OriginTag::new(o), Hlc::new(1))).collect();
        let block = builder.seal(&vector, INCARNATION);
        block.verify(INCARNATION).expect("whole");
        assert_eq!(block.deps(), vector);
    }
}
