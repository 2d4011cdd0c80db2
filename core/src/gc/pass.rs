//! [`collect`]: one pass.

use super::report::GcReport;
use super::retention::{Holder, Retention};
use crate::cursors::Registry;
use crate::error::Error;
use crate::id::Lsn;
use crate::tree::{LogView, Tree};

/// Lets a tree's log forget what nobody needs any more, and reports. A dry run changes nothing.
///
/// One pass of a tree at a time.
///
/// # Errors
/// When positions cannot be stored or read: then nothing is trimmed. When the log cannot be trimmed.
pub async fn collect(tree: &Tree, registry: &Registry, dry_run: bool) -> Result<GcReport, Error> {
    if !dry_run {
        registry.flush().await?;
    }
    let consumers = registry.read_stored().await?;
    let (before, incarnation) = (tree.bounds(), tree.identity().incarnation);
    let decide = |checkpoint| Retention::decide(consumers.clone(), checkpoint, incarnation, &before);
    let wanted = Retention::of_consumers(consumers.clone(), incarnation, &before);
    let mut snapshots = 0;
    // Two snapshots are kept, and opening must be possible by the older one.
    while snapshots < 2 && snapshot_frees_something(tree, wanted.keep) {
        snapshots += 1;
        if dry_run {
            break;
        }
        tree.snapshot().await?;
    }
    let checkpoint = tree.checkpoint();
    // A dry run that would take snapshots reports what is left after them.
    let retention = if dry_run && snapshots > 0 { wanted } else { decide(checkpoint) };
    let after =
        if dry_run { tree.bounds_after_trim(retention.keep) } else { tree.trim(retention.keep).await? };
    let bytes_after = |lsn: Lsn| LogView::bytes_after(tree, lsn);
    let (trimmed_records, trimmed_bytes) = if dry_run {
        // Writes may have come in between.
        let gone = |before: u64, after: u64| before.saturating_sub(after);
        (gone(before.records, after.records), gone(before.retained_bytes, after.retained_bytes))
    } else {
        (after.trimmed_records - before.trimmed_records, after.trimmed_bytes - before.trimmed_bytes)
    };
    let report = GcReport {
        tree: tree.identity().tree.clone(),
        dry_run,
        trimmed_records,
        trimmed_bytes,
        keep: retention.keep,
        held_bytes: bytes_after(retention.keep),
        checkpoint,
        snapshots,
        consumers: GcReport::consumers_of(&retention, &after, bytes_after),
        holder: retention.holder,
        before,
        after,
    };
    tell(&report);
    Ok(report)
}

/// Whether the next snapshot would let whole segments go that consumers do not need.
fn snapshot_frees_something(tree: &Tree, wanted: Lsn) -> bool {
    let checkpoint = tree.checkpoint();
    checkpoint < wanted && tree.bounds_after_trim(wanted).first > tree.bounds_after_trim(checkpoint).first
}

fn tell(report: &GcReport) {
    let held_by = match &report.holder {
        Holder::Nobody => "nobody",
        Holder::Checkpoint => "the tree's own checkpoint",
        Holder::Consumer(name) => name,
    };
    tracing::info!(
        tree = %report.tree,
        dry_run = report.dry_run,
        records = report.trimmed_records,
        bytes = report.trimmed_bytes,
        retained = report.after.retained_bytes,
        keep = %report.keep,
        held_by,
        "log collected"
    );
    for consumer in report.fell_off() {
        tracing::warn!(tree = %report.tree, consumer, "a consumer has fallen off the log: seed it anew");
    }
}
