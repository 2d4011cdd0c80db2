//! The metrics registry of one cluster, and core's own metrics.
//!
//! There is no global: three clusters share a process in the demo and in tests. Counters are taken out of their
//! family once and counted per group or page, never per record.

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

/// The registry that a cluster hands down. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Registers a family of counters; the name is given without its `_total`.
    pub fn counters(&self, name: &str, help: &str) -> Family<Labels, Counter> {
        let family = Family::<Labels, Counter>::default();
        self.0.lock().register(name, help, family.clone());
        family
    }

    /// Registers a family of gauges.
    pub fn gauges(&self, name: &str, help: &str) -> Family<Labels, Gauge> {
        let family = Family::<Labels, Gauge>::default();
        self.0.lock().register(name, help, family.clone());
        family
    }

    /// Registers a family of histograms in seconds, from 50 us to about 26 s.
    pub fn seconds(&self, name: &str, help: &str) -> Family<Labels, Histogram, fn() -> Histogram> {
        let family: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 20)));
        self.0.lock().register(name, help, family.clone());
        family
    }

    /// Everything in the text format that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.lock()).expect("writing to a string does not fail");
        text
    }
}
