//! [`sift`]: which blocks of a group are not covered yet. Pure.

use std::collections::BTreeMap;

use tidewire_core::causal::OriginMarks;
use tidewire_core::id::{Hlc, Offset, PartitionId};
use tidewire_core::record::{Block, Coverage, Kind, PartitionRun, RecordView};

use crate::late::TOO_MUCH;
use crate::refusal::{Refusal, RefusalKind};

/// The blocks of a group that are not covered yet, with how many leading records are. Counts those that are.
pub(crate) fn sift(
    blocks: Vec<Block>,
    admitted: &OriginMarks,
    closed: Hlc,
    reaped: Hlc,
    duplicates: &mut u64,
) -> Result<Vec<(Block, u16)>, Refusal> {
    let mut fresh: Vec<(Block, u16)> = Vec::with_capacity(blocks.len());
    for block in blocks {
        let goes_on = block.runs().any(|run| run.end() > admitted.get(run.partition).next);
        if block.is_filtered() && !goes_on {
            *duplicates += u64::from(block.count());
            continue;
        }
        let covered = covered_records(&block, admitted);
        *duplicates += covered;
        if covered == u64::from(block.count()) {
            // What a block covers beyond its records is kept too, or the peer would send it for ever.
            if goes_on {
                fresh.push((Coverage::of(&block).cover(block.origin(), admitted.incarnation()), 0));
            }
            continue;
        }
        if block.is_cover() {
            // It brings nothing, so it cannot come too late.
            fresh.push((block, 0));
            continue;
        }
        let first =
            if covered == 0 { Some(block.first_hlc()) } else { first_uncovered(&block, covered, admitted) };
        let Some((first, skip)) = first.zip(u16::try_from(covered).ok()) else {
            let detail = "a block is covered in part, but not from its start: the origin's log is not the one known here";
            return Err(Refusal::new(RefusalKind::Malformed, detail));
        };
        if fresh.is_empty() && first <= closed {
            let detail = format!(
                "a new record at {first}, though its origin was complete up to {closed}: its clock or its log went back"
            );
            return Err(Refusal::new(RefusalKind::Malformed, detail));
        }
        if first <= reaped {
            return Err(too_late(first, reaped));
        }
        fresh.push((block, skip));
    }
    Ok(fresh)
}

/// A record of an origin that nothing waited for: not a member when the dead were reaped. Such records are parked one by
/// one before they come here; what comes here could not be told apart.
fn too_late(first: Hlc, reaped: Hlc) -> Refusal {
    Refusal::new(
        RefusalKind::Reaped,
        format!(
            "a record at {first} comes too late: what was deleted up to {reaped} is forgotten here, and it might bring it back, for nothing waited for its origin then. It cannot be parked, because it cannot be told apart. {TOO_MUCH}"
        ),
    )
}

fn covered_records(block: &Block, admitted: &OriginMarks) -> u64 {
    if block.is_filtered() {
        let covered = |record: &RecordView<'_>| {
            record.kind != Kind::Mark
                && record.offset.is_some_and(|offset| offset < admitted.get(record.partition).next)
        };
        let any = block.runs().any(|run| run.first < admitted.get(run.partition).next);
        return if any { block.records().flatten().filter(covered).count() as u64 } else { 0 };
    }
    let covered =
        |run: PartitionRun| admitted.get(run.partition).next.since(run.first).min(u64::from(run.count));
    block.runs().map(covered).sum()
}

/// The HLC of the record after the `covered` leading ones, if exactly those are covered.
fn first_uncovered(block: &Block, covered: u64, admitted: &OriginMarks) -> Option<Hlc> {
    let mut next: BTreeMap<PartitionId, Offset> =
        block.runs().map(|run| (run.partition, run.first)).collect();
    for (leading, record) in (0_u64..).zip(block.records()) {
        let record = record.ok()?;
        let offset = next.get_mut(&record.partition)?;
        *offset = record.offset.unwrap_or(*offset);
        if *offset >= admitted.get(record.partition).next {
            return (leading == covered).then_some(record.hlc);
        }
        *offset = offset.next();
    }
    None
}
