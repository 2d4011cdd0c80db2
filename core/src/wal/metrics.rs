//! What a log counts, per group and never per record.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::id::TreeName;
use crate::metrics::{Labels, Metrics};

/// The families of all logs of a cluster.
#[derive(Clone, Debug)]
pub struct WalMetrics {
    committed: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    failed_records: Family<Labels, Counter>,
    late: Family<Labels, Counter>,
    repairs: Family<Labels, Counter>,
    failed_repairs: Family<Labels, Counter>,
    latched: Family<Labels, Gauge>,
    groups: Family<Labels, Counter>,
    commit: Family<Labels, Histogram, fn() -> Histogram>,
    flush: Family<Labels, Histogram, fn() -> Histogram>,
}

/// The series of one log.
#[derive(Clone, Debug)]
pub(super) struct LogMetrics {
    pub(super) committed: Counter,
    pub(super) failed: Counter,
    pub(super) failed_records: Counter,
    pub(super) late: Counter,
    pub(super) repairs: Counter,
    pub(super) failed_repairs: Counter,
    /// 1 while writes fail.
    pub(super) latched: Gauge,
    pub(super) groups: Counter,
    pub(super) commit: Histogram,
    pub(super) flush: Histogram,
}

impl WalMetrics {
    /// Registers the families.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            committed: metrics.counters("tidewire_committed_records", "Local records made durable"),
            failed: metrics.counters("tidewire_failed_groups", "Groups that could not be made durable"),
            failed_records: metrics.counters(
                "tidewire_failed_records",
                "Records of groups that could not be made durable: their positions are not given out again",
            ),
            late: metrics
                .counters("tidewire_late_groups", "Answers of the log provider that came after the deadline"),
            repairs: metrics.counters(
                "tidewire_wal_repairs",
                "How often the end of a log was to be made consistent after a failure",
            ),
            failed_repairs: metrics.counters("tidewire_wal_failed_repairs", "How often that failed"),
            latched: metrics.gauges("tidewire_wal_failing", "1 while the writes of a tree fail"),
            groups: metrics.counters("tidewire_committed_groups", "Groups made durable, each with one sync"),
            commit: metrics
                .seconds("tidewire_commit_seconds", "From a write's place in the log to its answer"),
            flush: metrics.seconds("tidewire_flush_seconds", "Write and sync of one group"),
        }
    }

    pub(super) fn of(&self, tree: &TreeName) -> LogMetrics {
        let labels = vec![("tree", tree.to_string())];
        LogMetrics {
            committed: self.committed.get_or_create(&labels).clone(),
            failed: self.failed.get_or_create(&labels).clone(),
            failed_records: self.failed_records.get_or_create(&labels).clone(),
            repairs: self.repairs.get_or_create(&labels).clone(),
            failed_repairs: self.failed_repairs.get_or_create(&labels).clone(),
            latched: self.latched.get_or_create(&labels).clone(),
            late: self.late.get_or_create(&labels).clone(),
            groups: self.groups.get_or_create(&labels).clone(),
            commit: self.commit.get_or_create(&labels).clone(),
            flush: self.flush.get_or_create(&labels).clone(),
        }
    }
}
