//! What a cluster says about itself: [`Status`], and whether it is ready.

use tidewire_core::tree::{ApplyTarget, Graves, ReapReport, Tree};
use tidewire_core::wal::LogState;

use super::handle::Cluster;
use crate::status::{
    DeadStatus, Health, HealthState, ListenStatus, LogStatus, PeerState, SnapshotStatus, Status, TreeStatus,
    WaitsFor,
};

/// How long a write waits for others before that is a matter of health.
const STALLED_SECONDS: u64 = 60;

impl Cluster {
    /// Everything at one moment.
    pub fn status(&self) -> Status {
        let peers = self.0.links.status();
        Status {
            cluster: self.id().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: format!("{:016x}", self.boot().get()),
            uptime_seconds: self.0.started.elapsed().as_secs(),
            listen: ListenStatus { http: None, replication: self.replication_address() },
            health: self.health(),
            trees: self.trees().iter().map(|tree| self.tree_status(tree)).collect(),
            peers,
            members: self.peers(),
            sinks: self.0.sinks.status(),
        }
    }

    /// Whether it takes writes and everything works; if not, one reason for each thing that is wrong.
    ///
    /// # Errors
    /// The reasons.
    pub fn readiness(&self) -> Result<(), Vec<String>> {
        let mut reasons = self.failures();
        reasons.extend(self.seeding());
        reasons.extend(self.0.sinks.troubles());
        if self.stop_token().is_cancelled() || self.0.links.is_stopping() {
            reasons.insert(0, "shutting down".to_owned());
        }
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    fn failures(&self) -> Vec<String> {
        let logs = self.trees().into_iter().filter_map(|tree| {
            let said = match tree.log_state() {
                LogState::Working => return None,
                LogState::Repairing { cause } => format!("{cause}; the log is being repaired"),
                LogState::Failed { cause, repairs, next_try } => {
                    let seconds = next_try.as_secs_f64().ceil();
                    format!("{cause}; {repairs} repairs failed, the next one comes within {seconds} s")
                }
                LogState::Broken { cause } => cause.to_string(),
            };
            Some(format!("tree {}: {said}", tree.identity().tree))
        });
        let panics =
            self.0.tasks.panics().into_iter().map(|panic| format!("a part panicked: {panic}; restart"));
        logs.chain(panics).collect()
    }

    fn health(&self) -> Health {
        let failures = self.failures();
        let state = if !failures.is_empty() { HealthState::Failing } else { HealthState::Ok };
        let refused = self.0.links.status().into_iter().filter(|peer| peer.state == PeerState::Refused);
        let refusals = refused.map(|peer| {
            format!(
                "peer {} ({}): {}",
                peer.id,
                peer.tree,
                peer.reason.unwrap_or_else(|| "refused".to_owned())
            )
        });
        let reasons: Vec<String> = failures
            .into_iter()
            .chain(self.seeding())
            .chain(self.dropping())
            .chain(self.alarms())
            .chain(refusals)
            .chain(self.0.links.doubtful())
            .chain(self.stalls())
            .chain(self.0.sinks.troubles())
            .collect();
        let state =
            if state == HealthState::Ok && !reasons.is_empty() { HealthState::Degraded } else { state };
        Health { state, reasons }
    }

    fn tree_status(&self, tree: &Tree) -> TreeStatus {
        let size = tree.size();
        let frontier = tree.frontier();
        TreeStatus {
            name: tree.identity().tree.to_string(),
            partitions: tree.identity().partitions,
            interest: tree.interest().prefixes().iter().map(|prefix| lossy(prefix)).collect(),
            entries: size.entries,
            frontier: frontier
                .iter()
                .map(|(origin, hlc)| (tree.origin_name(origin), hlc.to_string()))
                .collect(),
            log: LogStatus {
                first: size.log.first.to_string(),
                next: size.log.next.to_string(),
                retained_bytes: size.log.retained_bytes,
                physical_bytes: size.log.physical_bytes,
                pinned_by: self.pinned_by(tree),
            },
            dead: dead_status(tree, size.graves),
            snapshot: tree.last_snapshot().map(|last| SnapshotStatus {
                covered: last.covered.to_string(),
                entries: last.entries,
                bytes: last.bytes,
                age_seconds: self.0.clock.wall_millis().saturating_sub(last.written_ms) / 1_000,
            }),
            waiting: self.0.links.waiting(&tree.identity().tree),
        }
    }

    /// One reason for each origin whose writes have waited long.
    fn stalls(&self) -> Vec<String> {
        let now = self.0.clock.wall_millis();
        let mut stalls = Vec::new();
        for tree in self.trees() {
            let name = &tree.identity().tree;
            for held in self.0.links.waiting(name) {
                let seconds = now.saturating_sub(held.since_ms) / 1_000;
                if seconds < STALLED_SECONDS {
                    continue;
                }
                let WaitsFor { origin, hlc, from, .. } = held.waits_for;
                let from: Vec<String> =
                    from.iter().map(|from| format!("{} is {}", from.peer, from.state.name())).collect();
                let from = if from.is_empty() { "no peer brings them".to_owned() } else { from.join(", ") };
                stalls.push(format!(
                    "tree {name}: {} bytes of {} have waited {seconds} s for writes of {origin} up to {hlc}: {from}",
                    held.bytes, held.origin
                ));
            }
        }
        stalls
    }
}

/// Prefixes come from the configuration, which is text.
fn lossy(prefix: &[u8]) -> String {
    String::from_utf8_lossy(prefix).into_owned()
}

/// What is dead at this moment, and what kept it when the collector looked last.
fn dead_status(tree: &Tree, now: Graves) -> DeadStatus {
    let last = tree.last_reaping().map(|report| DeadStatus::of(&ReapReport { left: now, ..report }));
    let Graves { tombstones, expired, ranges } = now;
    last.unwrap_or_else(|| DeadStatus {
        tombstones,
        expired,
        ranges,
        reaped: tree.progress().reaped.to_string(),
        ..DeadStatus::default()
    })
}
