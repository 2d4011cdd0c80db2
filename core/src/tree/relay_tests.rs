//! Claims about a log that a relay ships from: whoever starts where it says gets every dot that it lacks, or is told that it
//! cannot.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tests::{Site, ready_groups};
use super::*;
use crate::causal::OriginMarks;
use crate::disk::MemDisk;
use crate::feed::{Cursor, FeedSource};
use crate::id::{Hlc, Offset, PartitionId};
use crate::random::Random;
use crate::record::Block;
use crate::wal::WalStorage;

type Dots = BTreeSet<(PartitionId, Offset)>;

fn dots<'a>(blocks: impl Iterator<Item = &'a Block>) -> Dots {
    let runs = blocks.flat_map(Block::runs);
    runs.flat_map(|run| (0..u64::from(run.count)).map(move |at| (run.partition, run.first.advanced(at))))
        .collect()
}

/// The dots of an origin that a reading from a cursor brings.
async fn brought(tree: &Tree, from: Cursor, origin: crate::id::OriginTag) -> Dots {
    let mut reader = tree.feed(from);
    let mut all = Dots::new();
    while reader.cursor().lsn < LogView::end(tree).lsn {
        let batch = reader.next().await.expect("readable");
        let blocks = batch.groups().iter().flat_map(|group| group.blocks()).map(|framed| &framed.block);
        all.extend(dots(blocks.filter(|block| block.origin() == origin)));
    }
    all
}

/// What covers the first groups of a history.
fn marks_after(history: &[ReadyGroup], count: usize, partitions: u16) -> OriginMarks {
    let mut marks = OriginMarks::new(history[0].incarnation, partitions);
    for block in history[..count].iter().flat_map(|group| &group.blocks).map(|(block, _)| block) {
        for record in block.records() {
            let record = record.expect("readable");
            let next = marks.get(record.partition).next.next();
            marks.advance(record.partition, next, record.hlc);
        }
    }
    marks
}

#[tokio::test(start_paused = true)]
async fn f05_a_relay_never_starts_above_a_dot_that_its_log_let_go_of() {
    let (mut fell_off, mut located) = (0, 0);
    for seed in 0..12 {
        let random = Random::from_seed(seed);
        let (mut there, mut here) = (Site::new("there", seed + 100), Site::new("relay", seed + 200));
        let origin = there.open(Arc::new(MemDisk::new())).await.expect("opens");
        let relay = here.open(Arc::new(MemDisk::new())).await.expect("opens");
        for number in 0..120 {
            origin.put(format!("k{number}"), vec![7; 60]).await.expect("put");
        }
        let of = origin.identity().clone();
        relay.enroll(&of.cluster, of.incarnation).await.expect("enrolled");
        let history = ready_groups(&origin).await;
        for group in &history {
            relay.apply(vec![group.clone()]).await.expect("applied");
            if random.chance(0.3) {
                relay.put("own", vec![1; 40]).await.expect("put");
            }
        }
        let end = LogView::end(&relay);
        relay.0.storage.trim(crate::id::Lsn::new(random.below(end.lsn.get()))).await.expect("trims");
        let lowest = Cursor { lsn: relay.0.storage.bounds().first, ..end };
        let retained = brought(&relay, lowest, of.origin()).await;
        for count in 0..=history.len() {
            let held = marks_after(&history, count, of.partitions);
            let lacking =
                dots(history[count..].iter().flat_map(|group| &group.blocks).map(|(block, _)| block));
            let held = (count > 0).then_some(&held);
            match relay.locate(of.origin(), held).await.expect("located") {
                Located::At(from) => {
                    located += 1;
                    let comes = brought(&relay, from, of.origin()).await;
                    assert!(lacking.is_subset(&comes), "seed {seed}: {count} held, from {from:?}");
                }
                Located::FellOff { .. } => {
                    fell_off += 1;
                    assert!(!lacking.is_subset(&retained), "seed {seed}: {count} held: all of it is here");
                }
                Located::WentBack { .. } => panic!("seed {seed}: {count} held: it is the same history"),
            }
        }
        let mut other = marks_after(&history, history.len(), of.partitions);
        let (partition, mark) = other.iter().find(|(_, mark)| mark.next > Offset::ZERO).expect("something");
        other.advance(partition, mark.next, Hlc::new(mark.hlc.get() + 1));
        let gone = relay.locate(of.origin(), Some(&other)).await.expect("located");
        assert!(matches!(gone, Located::WentBack { .. }), "f55: seed {seed}: another history: {gone:?}");
        other.advance(partition, mark.next.next(), Hlc::new(mark.hlc.get() + 2));
        let more = relay.locate(of.origin(), Some(&other)).await.expect("located");
        assert!(matches!(more, Located::At(_)), "seed {seed}: a receiver may hold more of it: {more:?}");
    }
    assert!(fell_off > 50 && located > 50, "{fell_off} fell off, {located} did not");
}
