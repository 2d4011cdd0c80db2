//! Positions that others know of already: local writes go on above them.

use std::time::Duration;

use super::rig::{PARTITIONS, Rig};
use crate::causal::VersionVector;
use crate::id::{Hlc, Offset, OriginTag, PartitionId};
use crate::limits::Limits;

#[tokio::test(start_paused = true)]
async fn writes_above_positions_that_others_hold_have_a_block_of_their_own_and_leave_those_before_theirs() {
    let rig = Rig::single(Limits::default()).await;
    rig.faults.latency(Duration::from_millis(50), Duration::from_millis(50));
    let partition = PartitionId::of(b"k", PARTITIONS);
    let (other, seen) = (OriginTag::new(5), Hlc::new(900));
    let rises = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // The second write waits for the first one, in the group in the making.
        assert!(rig.writer.pending_bytes() > 0);
        let mut observed = VersionVector::default();
        observed.raise(other, seen);
        rig.writer.step_above(&[(partition, Offset::new(40))], &observed);
        rig.put("k").await
    };
    let second = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        rig.put("k").await
    };
    let (first, second, third) = tokio::join!(rig.put("k"), second, rises);
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let groups = rig.memory.groups();
    let blocks: Vec<_> = groups.iter().flat_map(|group| group.blocks()).map(|framed| &framed.block).collect();
    let offsets: Vec<Vec<(u64, u64)>> = blocks
        .iter()
        .map(|block| block.runs().map(|run| (run.first.get(), run.end().get())).collect())
        .collect();
    assert_eq!(groups.len(), 2, "the last two share a group");
    assert_eq!(
        offsets,
        [vec![(0, 1)], vec![(1, 2)], vec![(40, 41)]],
        "each record has the offset it was given"
    );
    assert_eq!(blocks[0].deps().get(other), Hlc::ZERO);
    assert_eq!(blocks[2].deps().get(other), seen, "it depends on what it stands above");
    rig.tasks.abort();
}
