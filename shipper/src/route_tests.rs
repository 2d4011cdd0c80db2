//! Claims about what a link carries.

use tidewire_core::id::{Hlc, Lsn, Offset, PartitionId, TreeName};
use tidewire_core::tree::{Consistency, MergeMode};

use super::*;

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

fn me() -> TreeIdentity {
    TreeIdentity {
        cluster: id("a"),
        tree: TreeName::new("orders").unwrap(),
        incarnation: Incarnation::new(5),
        partitions: 2,
        merge: MergeMode::LastWriterWins,
        consistency: Consistency::Causal,
    }
}

fn at(lsn: u64) -> Cursor {
    Cursor { incarnation: me().incarnation, lsn: Lsn::new(lsn) }
}

fn marks(incarnation: u64) -> OriginMarks {
    let mut marks = OriginMarks::new(Incarnation::new(incarnation), 2);
    marks.advance(PartitionId::new(0), Offset::new(4), Hlc::new(9));
    marks
}

fn route() -> Route {
    let mut route = Route::new(&me(), None, at(50));
    route.forward(&id("b"));
    route
}

#[test]
fn a_link_starts_where_the_first_of_its_origins_goes_on() {
    let mut route = route();
    route.take_up(&id("c"), marks(7), Located::At(at(80)));
    assert_eq!(route.from, at(50));
    route.take_up(&id("d"), marks(8), Located::At(at(20)));
    assert_eq!((route.from, route.carried.len()), (at(20), 3));
    assert!(route.reasons.is_empty());
}

#[test]
fn f55_an_origin_with_two_histories_is_left_out_by_name_and_the_link_goes_on() {
    let mut route = route();
    let mark = |hlc| tidewire_core::causal::Watermark { next: Offset::new(4), hlc: Hlc::new(hlc) };
    let (held, here) = (mark(9), mark(8));
    route.take_up(&id("c"), marks(7), Located::WentBack { partition: PartitionId::new(0), held, here });
    route.take_up(&id("d"), marks(8), Located::FellOff { lowest: Lsn::new(10) });
    assert_eq!((route.carried.len(), route.from), (1, at(50)));
    assert!(route.omitted.contains(&id("c").tag()) && route.omitted.contains(&id("d").tag()));
    assert!(route.reasons[0].contains("writes of c") && route.reasons[0].contains("older copy"));
    assert!(route.reasons[1].contains("writes of d") && route.reasons[1].contains("begins at 10"));
}

#[test]
fn f04_what_the_peer_does_not_take_or_means_otherwise_is_not_carried() {
    let mut welcomed = Welcomed::default();
    let held = |welcomed: &Welcomed| held_of(welcomed, &id("c"), Incarnation::new(7), 2);
    assert!(held(&welcomed).unwrap_err().contains("upgrade"), "an older peer says nothing of it");
    welcomed.taken.insert(id("c").tag());
    assert_eq!(held(&welcomed).unwrap().covered(), 0);
    welcomed.watermarks.insert(id("c").tag(), marks(7));
    assert_eq!(held(&welcomed).unwrap(), marks(7));
    welcomed.watermarks.insert(id("c").tag(), marks(6));
    let why = held(&welcomed).unwrap_err();
    assert!(why.contains("incarnation") && why.contains("new name"), "{why}");
    welcomed.not_taken.insert(id("c").tag(), "in their words".into());
    assert_eq!(held(&welcomed).unwrap_err(), "in their words");
}
