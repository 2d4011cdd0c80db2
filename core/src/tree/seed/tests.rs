//! Claims about what becomes of a key when a seed is joined with what is here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::rules::{Choice, Rules, Stand, comes_too_late, joined};
use super::{Imported, LateRows, SeedReader};
use crate::causal::{OriginMarks, Watermark, Watermarks};
use crate::disk::MemDisk;
use crate::error::{Error, ErrorKind};
use crate::id::{ClusterId, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::record::{Coverage, Interest};
use crate::tree::ranges::{Cut, RangeTombstones};
use crate::tree::target::Progress;
use crate::tree::tests::{Site, ready_groups};
use crate::tree::{ApplyTarget, Members, ReapTerms, Tree};

const ME: OriginTag = OriginTag::new(1);
const GIVER: OriginTag = OriginTag::new(2);
const THIRD: OriginTag = OriginTag::new(3);
const KEY: &[u8] = b"k";

fn version(origin: OriginTag, hlc: u64) -> Version {
    Version { hlc: Hlc::new(hlc), origin }
}

fn live(origin: OriginTag, hlc: u64) -> Option<Stand> {
    Some(Stand { version: version(origin, hlc), live: true })
}

fn grave(origin: OriginTag, hlc: u64) -> Option<Stand> {
    Some(Stand { version: version(origin, hlc), live: false })
}

fn marks(next: u64, hlc: u64) -> OriginMarks {
    let mut marks = OriginMarks::new(Incarnation::new(7), 1);
    marks.advance(PartitionId::ZERO, Offset::new(next), Hlc::new(hlc));
    marks
}

fn progress(frontier: &[(OriginTag, u64)], mine: (u64, u64)) -> Progress {
    let mut watermarks = Watermarks::default();
    watermarks.insert(ME, marks(mine.0, mine.1));
    let frontier = frontier.iter().map(|(origin, hlc)| (*origin, Hlc::new(*hlc))).collect();
    Progress { frontier, watermarks, reaped: Hlc::ZERO }
}

/// Here the third cluster is complete up to 10, at the giver up to 50; of this cluster the giver has what it wrote up to
/// 20, of 40.
fn rules() -> Rules {
    Rules {
        own: ME,
        partitions: 1,
        mine: progress(&[(THIRD, 10), (ME, 45)], (8, 40)),
        theirs: progress(&[(THIRD, 50), (GIVER, 60), (ME, 45)], (4, 20)),
        gone_back: BTreeSet::new(),
        ranges: RangeTombstones::default(),
        widening: None,
    }
}

fn buried(origin: OriginTag, hlc: u64) -> Choice {
    Choice::Grave(version(origin, hlc), Lsn::ZERO)
}

#[test]
fn f44_the_newer_of_both_stays() {
    let rules = rules();
    assert_eq!(rules.resolve(KEY, live(THIRD, 60), live(GIVER, 59)), Choice::Here);
    assert_eq!(rules.resolve(KEY, live(THIRD, 9), live(GIVER, 59)), Choice::Row);
    assert_eq!(rules.resolve(KEY, None, live(GIVER, 59)), Choice::Row);
    assert_eq!(rules.resolve(KEY, live(THIRD, 9), grave(GIVER, 59)), Choice::Row);
    assert_eq!(rules.resolve(KEY, live(THIRD, 55), None), Choice::Here, "the giver has not seen it yet");
    assert_eq!(rules.resolve(KEY, live(THIRD, 40), live(THIRD, 40)), Choice::Here, "the same");
}

#[test]
fn f45_what_the_giver_covers_and_lacks_or_holds_lower_is_dead() {
    let rules = rules();
    assert_eq!(rules.resolve(KEY, live(THIRD, 50), None), buried(THIRD, 50));
    assert_eq!(rules.resolve(KEY, live(THIRD, 50), live(THIRD, 49)), Choice::Row);
    assert_eq!(rules.resolve(KEY, live(THIRD, 50), grave(THIRD, 49)), Choice::Row);
    assert_eq!(rules.resolve(KEY, grave(THIRD, 50), None), Choice::Here, "graves leave by reaping alone");
    // The giver was seeded itself by somebody who had reaped what buried it.
    assert_eq!(rules.resolve(KEY, live(THIRD, 50), grave(THIRD, 50)), Choice::Row);
    assert_eq!(rules.resolve(KEY, grave(THIRD, 50), live(THIRD, 50)), Choice::Here);
}

#[test]
fn what_was_deleted_here_does_not_come_back() {
    let rules = rules();
    assert_eq!(rules.resolve(KEY, None, live(THIRD, 10)), Choice::Nothing, "covered here, and not here");
    assert_eq!(rules.resolve(KEY, None, live(THIRD, 11)), Choice::Row);
    assert_eq!(rules.resolve(KEY, None, live(ME, 40)), Choice::Nothing);
}

#[test]
fn a_write_of_this_cluster_above_the_givers_watermark_is_never_dead() {
    let mut rules = rules();
    assert_eq!(rules.resolve(KEY, live(ME, 21), None), Choice::Here, "though the giver's frontier covers it");
    assert_eq!(rules.resolve(KEY, live(ME, 20), None), buried(ME, 20));
    // A log that went back: the marks of the two sides do not mean the same writes.
    rules.gone_back.insert(PartitionId::ZERO);
    assert_eq!(rules.resolve(KEY, live(ME, 20), None), Choice::Here);
    assert_eq!(rules.resolve(KEY, None, live(ME, 30)), Choice::Row, "it was lost here");
    // What is reaped on a side was known there: who has it still has missed that it died.
    (rules.theirs.reaped, rules.mine.reaped) = (Hlc::new(20), Hlc::new(10));
    assert_eq!(rules.resolve(KEY, live(ME, 20), None), buried(ME, 20));
    assert_eq!(rules.resolve(KEY, live(ME, 21), None), Choice::Here);
    assert_eq!(rules.resolve(KEY, None, live(ME, 10)), Choice::Nothing, "it died here");
    assert_eq!(rules.resolve(KEY, None, live(ME, 11)), Choice::Row);
    // It is complete beyond what it knows of the old log: what is written here since, by a slow clock, it never had.
    rules.theirs.reaped = Hlc::new(35);
    assert_eq!(rules.resolve(KEY, live(ME, 20), None), buried(ME, 20));
    assert_eq!(rules.resolve(KEY, live(ME, 21), None), Choice::Here);
}

#[test]
fn what_nothing_waited_for_comes_too_late() {
    let mut mine = progress(&[(THIRD, 10), (ME, 45)], (8, 40));
    mine.reaped = Hlc::new(30);
    assert!(comes_too_late(&mine, ME, version(GIVER, 30)), "nothing of it was heard");
    assert!(!comes_too_late(&mine, ME, version(GIVER, 31)), "newer than all that is forgotten");
    assert!(comes_too_late(&mine, ME, version(THIRD, 11)), "sealed out when it was complete up to 10");
    assert!(!comes_too_late(&mine, ME, version(THIRD, 10)), "covered, so it is not taken in any case");
    assert!(!comes_too_late(&mine, ME, version(ME, 30)), "own writes are measured by their marks");
}

async fn seed(to: &Tree, from: &Tree) -> Result<Imported, Error> {
    let mut reader = from.give_seed(&to.interest()).expect("given");
    let mut staging = to.stage_seed().await.expect("staged");
    while let Some(piece) = reader.next().await.expect("read") {
        staging.write(piece).await.expect("staged");
    }
    staging.import().await
}

#[tokio::test(start_paused = true)]
async fn f45_a_seed_does_not_bring_back_what_is_forgotten_here_and_nothing_of_it_is_taken() {
    let [mut here, mut there, mut away] = [("a", 1), ("b", 2), ("z", 3)].map(|(name, n)| Site::new(name, n));
    let tree = here.open(Arc::new(MemDisk::new())).await.expect("opens");
    let giver = there.open(Arc::new(MemDisk::new())).await.expect("opens");
    let other = away.open(Arc::new(MemDisk::new())).await.expect("opens");
    let (b, z) = (ClusterId::new("b").expect("a name"), ClusterId::new("z").expect("a name"));
    other.put("k", "old").await.expect("written");
    giver.enroll(&z, other.identity().incarnation).await.expect("enrolled");
    giver.apply(ready_groups(&other).await).await.expect("applied");
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Nobody here waits for z.
    tree.declare_members(Members::default());
    tree.delete("k").await.expect("deleted");
    assert_eq!(tree.reap(&ReapTerms::default()).await.expect("reaped").gone.tombstones, 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    giver.put("more", "newer than all that is forgotten").await.expect("written");
    for (name, origin) in [(&b, &giver), (&z, &other)] {
        tree.enroll(name, origin.identity().incarnation).await.expect("enrolled");
    }
    let before = tree.progress();
    let refused = seed(&tree, &giver).await.expect_err("it might bring k back");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let late = std::error::Error::source(&refused).and_then(|cause| cause.downcast_ref::<LateRows>());
    assert_eq!(late, Some(&LateRows { origin: "z".to_owned(), rows: 1, reaped: before.reaped }));
    assert_eq!((tree.get("k"), tree.get("more"), tree.progress()), (None, None, before));
    // The way out that it names.
    giver.put("k", "anew").await.expect("written");
    seed(&tree, &giver).await.expect("taken");
    assert_eq!(tree.get("k").map(|value| value.value), Some("anew".into()));
    assert!(tree.get("more").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_giver_that_lacks_what_was_passed_over_is_found_out_by_its_first_bytes_unless_its_origin_is_sealed_out()
 {
    let [mut here, mut there, mut away] = [("a", 1), ("b", 2), ("z", 3)].map(|(name, n)| Site::new(name, n));
    here.interest = Interest::new(["eu/"]).expect("a prefix");
    let disk = MemDisk::new();
    let tree = here.open(Arc::new(disk.clone())).await.expect("opens");
    let giver = there.open(Arc::new(MemDisk::new())).await.expect("opens");
    let other = away.open(Arc::new(MemDisk::new())).await.expect("opens");
    let (b, z) = (ClusterId::new("b").expect("a name"), ClusterId::new("z").expect("a name"));
    other.put("us/z", "passed over").await.expect("written");
    for number in 0..200 {
        giver.put(format!("us/{number}"), vec![1; 100]).await.expect("written");
    }
    for (name, origin) in [(&b, &giver), (&z, &other)] {
        tree.enroll(name, origin.identity().incarnation).await.expect("enrolled");
    }
    let mut left_out = ready_groups(&other).await;
    for group in &mut left_out {
        for (block, _) in &mut group.blocks {
            *block = Coverage::of(block).cover(group.origin, group.incarnation);
        }
    }
    tree.apply(left_out).await.expect("applied");
    drop(tree);
    here.interest = Interest::all();
    let tree = here.open(Arc::new(disk.crash(1))).await.expect("opens");
    tree.declare_members(Members::default());

    let refused = async |tree: &Tree| {
        let mut reader = giver.give_seed(&Interest::all()).expect("given");
        let mut staging = tree.stage_seed().await.expect("staged");
        for pieces in 1.. {
            let piece = reader.next().await.expect("read").expect("it is not over");
            if let Err(error) = staging.write(piece).await {
                assert!(pieces < 10, "of about a hundred: {pieces}");
                return error;
            }
        }
        unreachable!("it is refused")
    };
    let error = refused(&tree).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let said = error.to_string();
    assert!(said.contains("b has yet to get writes of z") && said.contains("peers seal z"), "{said}");
    let since = tree.seed_lacks()[0].since_ms;
    tokio::time::sleep(Duration::from_secs(9)).await;
    refused(&tree).await;
    let lacks = tree.seed_lacks();
    assert_eq!((lacks.len(), lacks[0].since_ms), (1, since), "since when it was first seen");

    tree.declare_members(Members { sealed: [z.clone()].into(), ..Members::default() });
    assert!(tree.seed_lacks().is_empty());
    seed(&tree, &giver).await.expect("nobody waits for z");
    assert!(tree.seed_wish().is_none() && tree.get("us/7").is_some() && tree.get("us/z").is_none());

    // What it wrote is covered here: it comes with another seed or never.
    assert!(!tree.let_return(&b).await.expect("stored") && tree.let_return(&z).await.expect("stored"));
    tree.declare_members(Members::default());
    assert!(refused(&tree).await.to_string().contains("writes of z"));
    giver.enroll(&z, other.identity().incarnation).await.expect("enrolled");
    giver.apply(ready_groups(&other).await).await.expect("applied");
    seed(&tree, &giver).await.expect("taken");
    assert!(tree.seed_wish().is_none() && tree.get("us/z").is_some());
}

#[test]
fn a_range_deletes_what_either_side_has_below_it() {
    let mut rules = rules();
    rules.ranges.insert(b"a", b"z", Cut { version: version(GIVER, 58), lsn: Lsn::ZERO });
    assert_eq!(rules.resolve(KEY, live(THIRD, 55), None), buried(GIVER, 58));
    assert_eq!(rules.resolve(KEY, None, live(THIRD, 55)), buried(GIVER, 58));
    assert_eq!(rules.resolve(KEY, None, live(THIRD, 59)), Choice::Row);
    assert_eq!(rules.resolve(KEY, grave(THIRD, 55), None), Choice::Here);
    assert_eq!(rules.resolve(b"zz", live(THIRD, 55), None), Choice::Here);
}

#[test]
fn positions_are_joined_by_what_reaches_further() {
    let mine = progress(&[(THIRD, 10), (ME, 90)], (8, 40));
    let theirs = progress(&[(THIRD, 50), (ME, 45)], (4, 20));
    let both = joined(&mine, &Progress { reaped: Hlc::new(9), ..theirs.clone() }, 1);
    assert_eq!(both.reaped, Hlc::new(9), "what the giver has reaped is not here either");
    assert_eq!((both.frontier.get(THIRD), both.frontier.get(ME)), (Hlc::new(50), Hlc::new(90)));
    let mark = |progress: &Progress| progress.watermarks.origin(ME).expect("known").get(PartitionId::ZERO);
    assert_eq!(mark(&both), Watermark { next: Offset::new(8), hlc: Hlc::new(40) });
    // A log that went back, and was written to since: what the giver has there counts, HLC and all.
    let went_back = progress(&[], (3, 99));
    assert_eq!(mark(&joined(&went_back, &theirs, 1)), Watermark { next: Offset::new(4), hlc: Hlc::new(20) });
}
