//! [`ShipperMetrics`]: what the sending side counts. One per cluster, shared by its shippers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::metrics::{Labels, Metrics};

/// The families of the sending side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ShipperMetrics {
    records: Family<Labels, Counter>,
    bytes: Family<Labels, Counter>,
    lag_entries: Family<Labels, Gauge>,
    lag_bytes: Family<Labels, Gauge>,
    lag_seconds: Family<Labels, Gauge>,
    left_out: Family<Labels, Gauge>,
    uninteresting: Family<Labels, Counter>,
    sent: Family<Labels, Counter>,
    paused: Family<Labels, Gauge>,
    limited: Family<Labels, Gauge>,
}

/// The series of one tree and peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerMetrics {
    pub(crate) records: Counter,
    pub(crate) bytes: Counter,
    pub(crate) lag_entries: Gauge,
    pub(crate) lag_bytes: Gauge,
    pub(crate) lag_seconds: Gauge,
    /// Origins that are to be forwarded and cannot be.
    pub(crate) left_out: Gauge,
    /// Records of keys that the peer does not hold.
    pub(crate) uninteresting: Counter,
    /// Bytes of pages as they left.
    pub(crate) sent: Counter,
    /// 1 while the peer asks for a pause.
    pub(crate) paused: Gauge,
    /// 1 while pages wait for their turn under the limit.
    pub(crate) limited: Gauge,
}

impl ShipperMetrics {
    /// Registers the families. Once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            records: metrics
                .counters("tidewire_shipped_records", "Records sent to a peer, each time they are sent"),
            bytes: metrics.counters(
                "tidewire_shipped_bytes",
                "Bytes of blocks sent to a peer, each time they are sent",
            ),
            lag_entries: metrics
                .gauges("tidewire_lag_entries", "Records for a peer that it has not acknowledged yet"),
            lag_bytes: metrics
                .gauges("tidewire_lag_bytes", "Bytes of log that a peer has not acknowledged yet"),
            lag_seconds: metrics.gauges(
                "tidewire_lag_seconds",
                "Age of the oldest record that a peer has not acknowledged yet",
            ),
            left_out: metrics.gauges(
                "tidewire_origins_left_out",
                "Origins that are to be forwarded to a peer and cannot be; status says why",
            ),
            uninteresting: metrics.counters(
                "tidewire_interest_left_out_records",
                "Records that were not sent to a peer because it does not hold their keys; it covers them all the same",
            ),
            sent: metrics.counters(
                "tidewire_wire_bytes",
                "Bytes of blocks sent to a peer as they left, packed or not",
            ),
            paused: metrics.gauges(
                "tidewire_link_paused",
                "1 while the receiving end of a link asks for a pause; status says why",
            ),
            limited: metrics.gauges(
                "tidewire_rate_limited",
                "1 while pages for a peer wait for the limit that is set for it",
            ),
        }
    }

    /// Shows nothing of a peer any more that it is not sent to; what was counted stays.
    pub fn forget(&self, tree: &TreeName, peer: &ClusterId) {
        let labels: Labels = vec![("tree", tree.to_string()), ("peer", peer.to_string())];
        let mut directed = labels.clone();
        directed.push(("direction", "send".to_owned()));
        self.paused.remove(&directed);
        for gauges in [&self.limited, &self.lag_entries, &self.lag_bytes, &self.lag_seconds, &self.left_out] {
            gauges.remove(&labels);
        }
    }

    /// The series of a tree and a peer, at zero if they are new.
    pub(crate) fn peer(&self, tree: &TreeName, peer: &ClusterId) -> PeerMetrics {
        let labels: Labels = vec![("tree", tree.to_string()), ("peer", peer.to_string())];
        let mut directed = labels.clone();
        directed.push(("direction", "send".to_owned()));
        PeerMetrics {
            sent: self.sent.get_or_create(&labels).clone(),
            paused: self.paused.get_or_create(&directed).clone(),
            limited: self.limited.get_or_create(&labels).clone(),
            records: self.records.get_or_create(&labels).clone(),
            bytes: self.bytes.get_or_create(&labels).clone(),
            lag_entries: self.lag_entries.get_or_create(&labels).clone(),
            lag_bytes: self.lag_bytes.get_or_create(&labels).clone(),
            lag_seconds: self.lag_seconds.get_or_create(&labels).clone(),
            left_out: self.left_out.get_or_create(&labels).clone(),
            uninteresting: self.uninteresting.get_or_create(&labels).clone(),
        }
    }
}
