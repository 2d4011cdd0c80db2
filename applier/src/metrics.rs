//! [`ApplierMetrics`]: what the receiving side counts. One per cluster, shared by its trees.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tidewire_core::causal::VersionVector;
use tidewire_core::id::{ClusterId, Hlc, OriginTag, TreeName};
use tidewire_core::metrics::{Labels, Metrics};
use tidewire_core::tree::{Imported, TreeIdentity};

use crate::batch::Counts;
use crate::gate::Waiting;
use crate::status::ReceiveStatus;

/// The families of the receiving side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApplierMetrics {
    applied: Family<Labels, Counter>,
    left_out: Family<Labels, Counter>,
    own_origin: Family<Labels, Counter>,
    duplicates: Family<Labels, Counter>,
    gaps: Family<Labels, Counter>,
    two_copies: Family<Labels, Counter>,
    held: Family<Labels, Gauge>,
    dead_letters: Family<Labels, Gauge>,
    gave_up: Family<Labels, Counter>,
    frontier: Family<Labels, Gauge>,
    seeds: Family<Labels, Counter>,
    seed_rows: Family<Labels, Counter>,
    seed_bytes: Family<Labels, Counter>,
    end_to_end: Family<Labels, Histogram, fn() -> Histogram>,
    refused: Family<Labels, Counter>,
    paused: Family<Labels, Gauge>,
    lag_entries: Family<Labels, Gauge>,
    lag_bytes: Family<Labels, Gauge>,
    lag_seconds: Family<Labels, Gauge>,
}

/// The series of one peer in one tree.
#[derive(Clone, Debug)]
pub(crate) struct PeerMetrics {
    /// Links and pages refused.
    refused: Counter,
    /// 1 while the peer is asked to pause.
    paused: Gauge,
    lag_entries: Gauge,
    lag_bytes: Gauge,
    lag_seconds: Gauge,
}

impl PeerMetrics {
    /// A link or a page was refused.
    pub(crate) fn refuse(&self) {
        self.refused.inc();
    }

    /// Shows a status.
    pub(crate) fn show(&self, status: &ReceiveStatus) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.paused.set(i64::from(status.paused));
        self.lag_entries.set(gauge(status.lag.entries));
        self.lag_bytes.set(gauge(status.lag.bytes));
        self.lag_seconds.set(status.lag.seconds as i64);
    }
}

/// The series of one origin in one tree.
#[derive(Clone, Debug)]
pub(crate) struct OriginMetrics {
    /// Records written back, each dot once.
    pub(crate) applied: Counter,
    /// Records that peers left out because their keys are not held here.
    left_out: Counter,
    /// Pages of this cluster's own records that were refused.
    pub(crate) own_origin: Counter,
    /// Records that came again.
    pub(crate) duplicates: Counter,
    /// Pages and heartbeats refused because something before them is missing.
    pub(crate) gaps: Counter,
    /// Hellos refused because two processes speak as one cluster.
    pub(crate) two_copies: Counter,
    /// Bytes that wait for dependencies.
    pub(crate) held: Gauge,
    /// Records that can never be applied, parked.
    pub(crate) dead_letters: Gauge,
    /// Records applied without what they depend on.
    pub(crate) gave_up: Counter,
    end_to_end: Histogram,
}

/// What was written at those times is visible now, by the wall clock here. A clock that is behind an origin's shows 0.
pub(crate) fn took(
    origins: &BTreeMap<OriginTag, (ClusterId, OriginMetrics)>,
    wall: Option<u64>,
    written: impl IntoIterator<Item = (OriginTag, Hlc)>,
) {
    let Some(wall) = wall else { return };
    for (origin, written) in written {
        if let Some((_, metrics)) = origins.get(&origin) {
            metrics.end_to_end.observe(wall.saturating_sub(written.millis()) as f64 / 1_000.0);
        }
    }
}

/// Groups with so many records were applied.
pub(crate) fn applied(origins: &Origins, counts: &BTreeMap<OriginTag, Counts>) {
    for (origin, Counts { records, left_out }) in counts {
        if let Some((_, metrics)) = origins.get(origin) {
            metrics.applied.inc_by(*records);
            metrics.left_out.inc_by(*left_out);
        }
    }
}

impl ApplierMetrics {
    /// Registers the families. Once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            applied: metrics
                .counters("tidewire_applied_records", "Records of other clusters written back, each once"),
            left_out: metrics.counters(
                "tidewire_interest_covered_records",
                "Records of other clusters that came without their bytes because their keys are not held here",
            ),
            own_origin: metrics.counters(
                "tidewire_own_origin_refused",
                "Pages refused because they brought this cluster's own records",
            ),
            duplicates: metrics
                .counters("tidewire_duplicate_records", "Records that came again and were dropped"),
            gaps: metrics
                .counters("tidewire_gap_refused", "Pages refused because something before them is missing"),
            two_copies: metrics.counters(
                "tidewire_two_copies_refused",
                "Links refused because two processes speak as one cluster",
            ),
            held: metrics
                .gauges("tidewire_held_bytes", "Bytes that wait for writes of other clusters they depend on"),
            gave_up: metrics.counters(
                "tidewire_applied_without_dependencies",
                "Records that had waited too long for what they depend on, and were applied without it",
            ),
            dead_letters: metrics.gauges("tidewire_dead_letters", "Records that are never taken, parked"),
            frontier: metrics
                .gauges("tidewire_frontier_hlc_ms", "Up to which millisecond an origin is complete here"),
            seeds: metrics.counters("tidewire_reseeds", "Snapshots of peers that were taken over"),
            seed_rows: metrics.counters("tidewire_reseed_rows", "Rows of the snapshots that were taken over"),
            seed_bytes: metrics
                .counters("tidewire_reseed_bytes", "Bytes of the snapshots that were taken over"),
            end_to_end: metrics.seconds(
                "tidewire_end_to_end_seconds",
                "From a write at its origin, by the clock there, until it is visible here, by the clock here",
            ),
            refused: metrics.counters("tidewire_refused", "Links and pages of a peer that were refused"),
            paused: metrics.gauges(
                "tidewire_link_paused",
                "1 while the receiving end of a link asks for a pause; status says why",
            ),
            lag_entries: metrics.gauges(
                "tidewire_receive_lag_entries",
                "Records that a peer is known to have and that are not applied",
            ),
            lag_bytes: metrics.gauges(
                "tidewire_receive_lag_bytes",
                "Bytes that a peer is known to have and that are not applied",
            ),
            lag_seconds: metrics.gauges(
                "tidewire_receive_lag_seconds",
                "How long ago all that a peer is known to have was applied; 0 while it is",
            ),
        }
    }

    /// The series of the seeds of a tree, at zero if they are new.
    pub(crate) fn show_seeds(&self, tree: &TreeName) {
        self.seeded_by(tree, 0, 0, 0);
    }

    /// A seed was taken over.
    pub(crate) fn seeded(&self, tree: &TreeName, imported: &Imported) {
        self.seeded_by(tree, 1, imported.rows, imported.bytes);
    }

    fn seeded_by(&self, tree: &TreeName, seeds: u64, rows: u64, bytes: u64) {
        let labels: Labels = vec![("tree", tree.to_string())];
        self.seeds.get_or_create(&labels).inc_by(seeds);
        self.seed_rows.get_or_create(&labels).inc_by(rows);
        self.seed_bytes.get_or_create(&labels).inc_by(bytes);
    }

    /// The series of an origin in a tree, at zero if they are new.
    pub(crate) fn origin(&self, tree: &TreeName, origin: &ClusterId) -> OriginMetrics {
        let labels: Labels = vec![("tree", tree.to_string()), ("origin", origin.to_string())];
        drop(self.frontier.get_or_create(&labels));
        OriginMetrics {
            applied: self.applied.get_or_create(&labels).clone(),
            left_out: self.left_out.get_or_create(&labels).clone(),
            own_origin: self.own_origin.get_or_create(&labels).clone(),
            duplicates: self.duplicates.get_or_create(&labels).clone(),
            gaps: self.gaps.get_or_create(&labels).clone(),
            two_copies: self.two_copies.get_or_create(&labels).clone(),
            held: self.held.get_or_create(&labels).clone(),
            gave_up: self.gave_up.get_or_create(&labels).clone(),
            dead_letters: self.dead_letters.get_or_create(&labels).clone(),
            end_to_end: self.end_to_end.get_or_create(&labels).clone(),
        }
    }

    /// Shows nothing of a peer any more that is let in no more; what was counted stays.
    pub(crate) fn forget(&self, tree: &TreeName, peer: &ClusterId) {
        let labels: Labels = vec![("tree", tree.to_string()), ("peer", peer.to_string())];
        let mut directed = labels.clone();
        directed.push(("direction", "receive".to_owned()));
        self.paused.remove(&directed);
        for gauges in [&self.lag_entries, &self.lag_bytes, &self.lag_seconds] {
            gauges.remove(&labels);
        }
    }

    /// The series of a peer in a tree, at zero if they are new.
    pub(crate) fn peer(&self, tree: &TreeName, peer: &ClusterId) -> PeerMetrics {
        let labels: Labels = vec![("tree", tree.to_string()), ("peer", peer.to_string())];
        let mut directed = labels.clone();
        directed.push(("direction", "receive".to_owned()));
        PeerMetrics {
            refused: self.refused.get_or_create(&labels).clone(),
            paused: self.paused.get_or_create(&directed).clone(),
            lag_entries: self.lag_entries.get_or_create(&labels).clone(),
            lag_bytes: self.lag_bytes.get_or_create(&labels).clone(),
            lag_seconds: self.lag_seconds.get_or_create(&labels).clone(),
        }
    }

    /// The frontier of an origin in a tree, this cluster included.
    pub(crate) fn frontier(&self, tree: &TreeName, origin: &ClusterId) -> Gauge {
        let labels: Labels = vec![("tree", tree.to_string()), ("origin", origin.to_string())];
        self.frontier.get_or_create(&labels).clone()
    }
}

/// The series of the origins that are known, with their names.
pub(crate) type Origins = BTreeMap<OriginTag, (ClusterId, OriginMetrics)>;

impl ApplierMetrics {
    /// Shows what waits of each origin, and how far each is applied.
    pub(crate) fn show(
        &self,
        identity: &TreeIdentity,
        origins: &Origins,
        waiting: &[Waiting],
        frontier: &VersionVector,
    ) {
        let held = |origin| waiting.iter().find(|held| held.origin == origin).map_or(0, |held| held.bytes);
        for (origin, (name, series)) in origins {
            series.held.set(gauge(held(*origin)));
            self.frontier(&identity.tree, name).set(gauge(frontier.get(*origin).millis()));
        }
        let own = gauge(frontier.get(identity.origin()).millis());
        self.frontier(&identity.tree, &identity.cluster).set(own);
    }
}

/// Shows how many dead letters there are of each origin.
pub(crate) fn show_dead_letters(origins: &Origins, counts: &BTreeMap<OriginTag, u64>) {
    for (origin, (_, series)) in origins {
        series.dead_letters.set(gauge(counts.get(origin).copied().unwrap_or(0)));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
