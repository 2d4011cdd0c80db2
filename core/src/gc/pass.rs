//! [`collect`]: one pass.

use std::time::Duration;

use super::report::GcReport;
use super::retention::{Holder, Retention};
use crate::cursors::{Consumer, Registry};
use crate::error::Error;
use crate::id::Lsn;
use crate::tree::{ChangeView, LogView, ReapTerms, Tree};

/// How a pass is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// Changes nothing.
    pub dry_run: bool,
    /// Takes snapshots where only the tree's own recovery holds the log.
    pub may_snapshot: bool,
    /// What is older than this may go though a consumer needs it.
    pub wal_retention: Option<Duration>,
}

/// Lets a tree's log forget what nobody needs any more, and its state what is dead for good, and reports. A dry run changes nothing.
///
/// One pass of a tree at a time.
///
/// # Errors
/// When positions cannot be stored or read: then nothing is trimmed. When the log cannot be trimmed.
pub async fn collect(tree: &Tree, registry: &Registry, options: PassOptions) -> Result<GcReport, Error> {
    let PassOptions { dry_run, may_snapshot, wal_retention } = options;
    if !dry_run {
        registry.flush().await?;
    }
    let consumers = registry.read_stored().await?;
    let (before, incarnation) = (tree.bounds(), tree.identity().incarnation);
    let aged = wal_retention.map_or(Lsn::ZERO, |age| tree.first_younger(age));
    let parked_from = tree.parked_from();
    let decide = |consumers: &[Consumer], checkpoint| {
        Retention::decide(consumers.to_vec(), checkpoint, incarnation, &before)
            .aged(aged, &before, checkpoint)
            .blocked(parked_from, &before)
    };
    let wanted = decide(&consumers, before.next);
    let mut snapshots = 0;
    // Two snapshots are kept, and opening must be possible by the older one.
    while may_snapshot && snapshots < 2 && snapshot_frees_something(tree, wanted.keep) {
        snapshots += 1;
        if dry_run {
            break;
        }
        tree.snapshot().await?;
    }
    // Snapshots take their time. From here on nobody registers who might need what goes: whoever did meanwhile counts.
    let _nobody_comes = registry.begin_pass().await;
    let consumers = registry.read_stored().await?;
    let least = registry.least_filled();
    let checkpoint = tree.checkpoint();
    // A dry run that would take snapshots reports what is left after them.
    let retention = if dry_run && snapshots > 0 { wanted } else { decide(&consumers, checkpoint) };
    let after =
        if dry_run { tree.bounds_after_trim(retention.keep) } else { tree.trim(retention.keep).await? };
    let asked = Retention::of_consumers(consumers, incarnation, &after);
    let terms = ReapTerms {
        dry_run,
        acknowledged: asked.keep,
        slowest: match asked.holder {
            Holder::Consumer(name) => Some(name),
            Holder::Nobody | Holder::Checkpoint | Holder::Age | Holder::DeadLetters => None,
        },
        unheard: registry.unheard(),
        filled: least.as_ref().map(|(_, seed)| *seed),
        unfilled: least.filter(|(_, seed)| *seed < tree.seeded()).map(|(sink, _)| sink),
    };
    let reaping = tree.reap(&terms).await?;
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
        reaping,
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
    let held_by = report.held_by();
    tracing::info!(
        tree = %report.tree,
        dry_run = report.dry_run,
        records = report.trimmed_records,
        bytes = report.trimmed_bytes,
        retained = report.after.retained_bytes,
        keep = %report.keep,
        held_by,
        reaped = report.reaping.gone.total(),
        dead = report.reaping.left.total(),
        "log collected"
    );
    for consumer in report.fell_off() {
        tracing::warn!(tree = %report.tree, consumer, "a consumer has fallen off the log: seed it anew");
    }
}
