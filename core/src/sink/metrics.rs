//! [`SinkMetrics`]: what sinks count. One per cluster, shared by its sinks.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::id::{SinkName, TreeName};
use crate::metrics::{Labels, Metrics};

/// The families of the sinks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SinkMetrics {
    delivered: Family<Labels, Counter>,
    gauges: [Family<Labels, Gauge>; 4],
}

/// The series of one sink.
#[derive(Clone, Debug)]
pub(super) struct SinkSeries {
    families: SinkMetrics,
    labels: Labels,
    pub(super) delivered: Counter,
    pub(super) lag_entries: Gauge,
    pub(super) lag_bytes: Gauge,
    pub(super) lag_seconds: Gauge,
    pub(super) dead_letters: Gauge,
}

impl SinkMetrics {
    /// Registers the families, or shares those that are.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            delivered: metrics.counters(
                "tidewire_sink_delivered_records",
                "Records of the log that a sink has made durable, each once, or passed over because they lost on arrival",
            ),
            gauges: [
                metrics.gauges("tidewire_lag_entries", "Local records that a peer has not acknowledged yet"),
                metrics.gauges("tidewire_lag_bytes", "Bytes of log that a peer has not acknowledged yet"),
                metrics.gauges("tidewire_lag_seconds", "Age of the oldest record that a peer has not acknowledged yet"),
                metrics.gauges("tidewire_dead_letters", "Records that are never taken, parked"),
            ],
        }
    }

    /// The series of a sink, at zero if they are new.
    pub(super) fn sink(&self, tree: &TreeName, sink: &SinkName) -> SinkSeries {
        let labels: Labels = vec![("tree", tree.to_string()), ("sink", sink.to_string())];
        let [lag_entries, lag_bytes, lag_seconds, dead_letters] =
            self.gauges.each_ref().map(|family| family.get_or_create(&labels).clone());
        SinkSeries {
            delivered: self.delivered.get_or_create(&labels).clone(),
            families: self.clone(),
            labels,
            lag_entries,
            lag_bytes,
            lag_seconds,
            dead_letters,
        }
    }
}

impl SinkSeries {
    /// Takes the series out: the sink is removed.
    pub(super) fn remove(&self) {
        self.families.delivered.remove(&self.labels);
        for family in &self.families.gauges {
            family.remove(&self.labels);
        }
    }
}
