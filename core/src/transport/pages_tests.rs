//! Claims about pages: cut into parts and put together, and whatever a stranger may send instead.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::causal::VersionVector;
use crate::record::{BlockBuilder, Mutation};

const PARTITIONS: u16 = 8;
const ORIGIN: OriginTag = OriginTag::new(7);
const INCARNATION: Incarnation = Incarnation::new(9);
const LIMIT: usize = 1 << 20;

/// A page whose groups have blocks with values of the given sizes; offsets begin at 10.
fn page(id: u64, groups: &[Vec<usize>]) -> Page {
    let mut next: BTreeMap<PartitionId, Offset> = BTreeMap::new();
    let mut hlc = Hlc::new(100);
    let groups = groups.iter().map(|sizes| {
        let block = |size: &usize| {
            let mut builder = BlockBuilder::new(ORIGIN, PARTITIONS, 0, 64);
            let key = format!("key-{}", hlc.get());
            let partition = PartitionId::of(key.as_bytes(), PARTITIONS);
            let offset = next.entry(partition).or_insert(Offset::new(10));
            hlc = hlc.next();
            builder.push(&Mutation::set(key, vec![1; *size]), partition, *offset, hlc, false);
            *offset = offset.next();
            builder.seal(&VersionVector::default(), INCARNATION)
        };
        let blocks = sizes.iter().map(block).collect();
        hlc = hlc.next();
        PageGroup { closed: hlc, blocks }
    });
    let groups = groups.collect();
    let after = next.keys().map(|partition| (*partition, Offset::new(10))).collect();
    let through = next.into_iter().collect();
    Page { id: PageId::new(id), origin: ORIGIN, incarnation: INCARNATION, after, groups, through }
}

fn shapes() -> impl Strategy<Value = Vec<Vec<usize>>> {
    proptest::collection::vec(proptest::collection::vec(0_usize..600, 1..6), 0..8)
}

/// One way in which a part can be wrong.
fn damage(part: &mut wire::Page, how: u8) {
    match how {
        0 => part.page_id += 1,
        1 => part.part += 1,
        2 => part.last = !part.last,
        3 => part.origin += 1,
        4 => part.incarnation += 1,
        5 => part.after.push(wire::PartitionMark { partition: 99, offset: 1 }),
        6 => part.through.push(wire::PartitionMark { partition: 99, offset: 1 }),
        7 => part.groups.push(wire::PageGroup::default()),
        8 => part.groups.iter_mut().for_each(|group| group.more = !group.more),
        9 => part.through.iter_mut().for_each(|mark| mark.offset = 0),
        _ => part.groups.push(wire::PageGroup {
            blocks: vec![Bytes::from_static(b"no block")],
            ..wire::PageGroup::default()
        }),
    }
}

proptest! {
    #[test]
    fn what_is_split_comes_together_again(shapes in proptest::collection::vec(shapes(), 1..4), part_bytes in 1_usize..2_000) {
        let mut assembler = Assembler::new(PARTITIONS, LIMIT);
        for (id, shape) in (1..).zip(&shapes) {
            let page = page(id, shape);
            let parts = split_into(&page, part_bytes);
            let count = parts.len();
            for (at, part) in parts.into_iter().enumerate() {
                prop_assert_eq!(part.last, at + 1 == count);
                let bytes: usize = part.groups.iter().flat_map(|group| &group.blocks).map(Bytes::len).sum();
                let blocks: usize = part.groups.iter().map(|group| group.blocks.len()).sum();
                prop_assert!(bytes <= part_bytes || blocks == 1, "only a large block makes a large part");
                let out = assembler.push(part).unwrap();
                prop_assert_eq!(assembler.is_midway(), at + 1 < count);
                prop_assert_eq!(out, (at + 1 == count).then(|| page.clone()));
            }
        }
    }

    #[test]
    fn a_wrong_part_is_refused_and_never_panics(
        shape in shapes(), part_bytes in 1_usize..2_000, at in any::<prop::sample::Index>(), how in 0_u8..11,
    ) {
        let page = page(1, &shape);
        let mut parts = split_into(&page, part_bytes);
        let at = at.index(parts.len());
        let good = parts[at].clone();
        damage(&mut parts[at], how);
        prop_assume!(parts[at] != good);
        let mut assembler = Assembler::new(PARTITIONS, LIMIT);
        let mut pages = Vec::new();
        let failed = parts.into_iter().any(|part| match assembler.push(part) {
            Ok(page) => { pages.extend(page); false }
            Err(_) => true,
        });
        // What is a page of its own right is for the session to judge: another incarnation, an origin without records,
        // groups cut elsewhere. And a last part that says it is not the last leaves the page open.
        let another = pages.iter().any(|out| {
            out.incarnation != page.incarnation || out.groups.is_empty() || out.groups != page.groups
        });
        prop_assert!(failed || another || assembler.is_midway());
        prop_assert!(!pages.contains(&page));
    }

    #[test]
    fn parts_out_of_order_or_repeated_are_refused(shape in shapes(), first in any::<prop::sample::Index>()) {
        let parts = split_into(&page(1, &shape), 300);
        let mut assembler = Assembler::new(PARTITIONS, LIMIT);
        let stop = first.index(parts.len());
        for part in &parts[..=stop] {
            assembler.push(part.clone()).unwrap();
        }
        prop_assert!(assembler.push(parts[stop].clone()).is_err());
    }

    #[test]
    fn random_messages_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(part) = <wire::Page as prost::Message>::decode(&bytes[..]) {
            drop(Assembler::new(PARTITIONS, LIMIT).push(part));
        }
    }
}

#[test]
fn f59_parts_stay_near_their_size_whatever_the_page_is() {
    let page = page(1, &[vec![100_000; 9], vec![700_000], vec![10; 3]]);
    let parts = split(&page);
    assert!(parts.len() >= 5);
    for part in parts {
        let size = prost::Message::encoded_len(&part);
        assert!(
            size <= PART_BYTES + 1_000 || part.groups.iter().all(|group| group.blocks.len() == 1),
            "{size}"
        );
    }
}

#[test]
fn a_page_over_the_bound_is_refused_before_it_is_held() {
    let parts = split_into(&page(1, &[vec![100; 20]]), 200);
    let mut assembler = Assembler::new(PARTITIONS, 1_000);
    let error = parts.into_iter().find_map(|part| {
        let error = assembler.push(part).err();
        assert!(assembler.bytes() <= 1_000);
        error
    });
    assert!(error.unwrap().to_string().contains("limit of 1000 bytes"));
}

#[test]
fn coverage_without_records_is_a_page() {
    let mut page = page(1, &[]);
    page.after = vec![(PartitionId::new(3), Offset::new(4))];
    page.through = vec![(PartitionId::new(3), Offset::new(9))];
    let [part]: [wire::Page; 1] = split(&page).try_into().unwrap();
    assert_eq!(Assembler::new(PARTITIONS, LIMIT).push(part).unwrap(), Some(page));
}

#[test]
fn records_outside_the_range_that_a_page_claims_are_refused() {
    let mut page = page(1, &[vec![5, 5]]);
    page.through.iter_mut().for_each(|(_, end)| *end = Offset::new(10));
    let [part]: [wire::Page; 1] = split(&page).try_into().unwrap();
    assert!(Assembler::new(PARTITIONS, LIMIT).push(part).is_err());
}
