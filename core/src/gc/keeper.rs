//! [`Keeper`]: makes the passes of one log by itself, on its schedule.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::pass::{PassOptions, collect};
use super::pressure::Pressure;
use super::report::GcReport;
use super::retention::Holder;
use super::schedule::{PassOutcome, Schedule};
use crate::cursors::Registry;
use crate::limits::Limits;
use crate::random::Random;
use crate::tree::Tree;

/// Whoever collects one log.
pub struct Keeper {
    /// The log.
    pub tree: Tree,
    /// Its consumers.
    pub registry: Arc<Registry>,
    /// One pass at a time.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// The alarm of the log.
    pub pressure: Arc<Pressure>,
    /// Pace and bounds.
    pub limits: Limits,
    /// For the first wait.
    pub random: Random,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Makes passes until dropped.
    pub async fn run(self) {
        let mut schedule = Schedule::new(&self.limits);
        let mut wait = schedule.first(&self.random);
        loop {
            sleep(wait).await;
            wait = schedule.after(self.pass().await);
        }
    }

    async fn pass(&self) -> PassOutcome {
        let _one = self.turn.lock().await;
        let bound = self.limits.wal_max_bytes;
        let urgent = self.pressure.look(self.tree.bounds().retained_bytes, bound);
        let options = PassOptions {
            dry_run: false,
            may_snapshot: urgent,
            wal_retention: Some(self.limits.wal_retention).filter(|age| *age > Duration::ZERO),
        };
        let report = match collect(&self.tree, &self.registry, options).await {
            Ok(report) => report,
            Err(error) => {
                let tree = &self.tree.identity().tree;
                tracing::warn!(%tree, %error, "the log is not collected, tried again later");
                return PassOutcome { trimmed: false, blocked: true };
            }
        };
        let urgent = self.pressure.look(report.after.retained_bytes, bound);
        if urgent {
            alarm(&report, bound);
        }
        let waits = matches!(report.holder, Holder::Consumer(_)) && report.held_bytes > 0;
        let (gone, left) = (report.reaping.gone.total(), report.reaping.left.total());
        PassOutcome { trimmed: report.trimmed_records > 0 || gone > 0, blocked: urgent || waits || left > 0 }
    }
}

fn alarm(report: &GcReport, wal_max_bytes: u64) {
    let retained = report.after.retained_bytes;
    tracing::warn!(
        tree = %report.tree,
        retained,
        wal_max_bytes,
        held_by = report.held_by(),
        held = report.held_bytes,
        "the log is over its bound of bytes: mend or remove whoever holds it"
    );
}
