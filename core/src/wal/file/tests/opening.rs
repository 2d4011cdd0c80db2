//! Opening from a position.

use std::sync::Arc;

use super::rig::Rig;
use crate::disk::MemDisk;
use crate::id::Lsn;

#[test]
fn opening_from_a_position_shows_exactly_the_groups_that_reach_beyond_it() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    let places: Vec<(Lsn, Lsn)> = (0..40).map(|at| rig.append(1 + at % 3, 100).expect("appends")).collect();
    for from in 0..=rig.next_lsn.get() {
        let opened = Rig::open_from(Arc::new(disk.copy()), Lsn::new(from)).expect("opens");
        let beyond: Vec<_> = places.iter().copied().filter(|(_, next)| *next > Lsn::new(from)).collect();
        assert_eq!(opened.shown, beyond, "from {from}");
        assert_eq!((opened.next_lsn, opened.next_group), (rig.next_lsn, rig.next_group));
    }
}
