//! The metrics registry of one cluster, and core's own metrics.
//!
//! There is no global: three clusters share a process in the demo and in tests. Counters are taken out of their
//! family once and counted per group or page, never per record.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Labels of one series.
pub type Labels = Vec<(&'static str, String)>;

#[derive(Debug, Default)]
struct Inner {
    registry: Registry,
    counters: BTreeMap<String, Family<Labels, Counter>>,
    gauges: BTreeMap<String, Family<Labels, Gauge>>,
}

/// The registry that a cluster hands down. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<Inner>>);

impl Metrics {
    /// A family of counters, registered by the first who asks for it; the name is given without its `_total`.
    pub fn counters(&self, name: &str, help: &str) -> Family<Labels, Counter> {
        let Inner { registry, counters, .. } = &mut *self.0.lock();
        let family = counters.entry(name.to_owned()).or_insert_with(|| {
            let family = Family::default();
            registry.register(name, help, Family::clone(&family));
            family
        });
        family.clone()
    }

    /// A family of gauges, registered by the first who asks for it: parts of different kinds share one.
    pub fn gauges(&self, name: &str, help: &str) -> Family<Labels, Gauge> {
        let Inner { registry, gauges, .. } = &mut *self.0.lock();
        let family = gauges.entry(name.to_owned()).or_insert_with(|| {
            let family = Family::default();
            registry.register(name, help, Family::clone(&family));
            family
        });
        family.clone()
    }

    /// Registers a family of histograms in seconds, from 50 us to about 26 s.
    pub fn seconds(&self, name: &str, help: &str) -> Family<Labels, Histogram, fn() -> Histogram> {
        let family: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 20)));
        self.0.lock().registry.register(name, help, family.clone());
        family
    }

    /// Everything in the text format that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.lock().registry).expect("writing to a string does not fail");
        text
    }
}

/// What waits in the buffers of a cluster, beside what may wait there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BufferMetrics {
    bytes: Family<Labels, Gauge>,
    budget: Family<Labels, Gauge>,
}

impl BufferMetrics {
    /// Registers both families.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            bytes: metrics.gauges("tidewire_buffer_bytes", "Bytes that wait in a buffer"),
            budget: metrics.gauges("tidewire_buffer_budget_bytes", "Bytes that may wait in a buffer"),
        }
    }

    /// Shows one buffer of a tree as it is now.
    pub fn show(&self, tree: &str, buffer: &str, bytes: u64, budget: u64) {
        let labels = vec![("tree", tree.to_owned()), ("buffer", buffer.to_owned())];
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.bytes.get_or_create(&labels).set(gauge(bytes));
        self.budget.get_or_create(&labels).set(gauge(budget));
    }
}
