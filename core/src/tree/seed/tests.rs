//! Claims about what becomes of a key when a seed is joined with what is here.

use std::collections::BTreeSet;

use super::rules::{Choice, Rules, Stand, joined};
use crate::causal::{OriginMarks, Watermark, Watermarks};
use crate::id::{Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::tree::ranges::{Cut, RangeTombstones};
use crate::tree::target::Progress;

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
