//! [`Collected`]: the report of a pass of the collector, as the API answers it and the command line reads it.

use serde::{Deserialize, Serialize};
use tidewire_core::gc::{Claim, GcReport, Holder};
use tidewire_core::tree::{Graves, ReapReport};
use tidewire_core::wal::Bounds;

use crate::status::DeadStatus;

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Held {
    /// The first position that is kept.
    pub(crate) first: String,
    /// The position of the next record.
    pub(crate) next: String,
    pub(crate) records: u64,
    pub(crate) retained_bytes: u64,
    pub(crate) physical_bytes: u64,
}

impl From<&Bounds> for Held {
    fn from(bounds: &Bounds) -> Self {
        Self {
            first: bounds.first.to_string(),
            next: bounds.next.to_string(),
            records: bounds.records,
            retained_bytes: bounds.retained_bytes,
            physical_bytes: bounds.physical_bytes,
        }
    }
}

/// A consumer of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct CollectedConsumer {
    pub(crate) name: String,
    /// `holds`, `silent` (it has reported nothing of this log, and holds everything) or `fell_off`.
    pub(crate) state: String,
    /// The position that it holds, where it holds one.
    pub(crate) position: Option<String>,
    /// Bytes from there to the end.
    pub(crate) bytes: u64,
}

/// Who decides from where on the log is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct HeldBy {
    /// A consumer's name, `checkpoint`: the tree's own recovery, or `age`: nobody, what is older went.
    pub(crate) consumer: String,
    /// From this position on.
    pub(crate) position: String,
    /// Bytes from there to the end.
    pub(crate) bytes: u64,
}

/// What was dead and left the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Reaped {
    pub(crate) tombstones: u64,
    pub(crate) expired: u64,
    pub(crate) ranges: u64,
    /// What is still there, and what keeps it.
    pub(crate) left: DeadStatus,
}

impl From<&ReapReport> for Reaped {
    fn from(report: &ReapReport) -> Self {
        let Graves { tombstones, expired, ranges } = report.gone;
        Self { tombstones, expired, ranges, left: DeadStatus::of(report) }
    }
}

/// What a pass did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Collected {
    pub(crate) tree: String,
    pub(crate) dry_run: bool,
    pub(crate) before: Held,
    pub(crate) after: Held,
    pub(crate) trimmed_records: u64,
    pub(crate) trimmed_bytes: u64,
    pub(crate) held_by: Option<HeldBy>,
    /// The position from which on opening the tree needs the log.
    pub(crate) checkpoint: String,
    /// Snapshots that the pass took first, so that more could go.
    pub(crate) snapshots: u32,
    pub(crate) consumers: Vec<CollectedConsumer>,
    pub(crate) reaped: Reaped,
}

impl From<&GcReport> for Collected {
    fn from(report: &GcReport) -> Self {
        let held_by = match &report.holder {
            Holder::Nobody => None,
            Holder::Checkpoint => Some("checkpoint".to_owned()),
            Holder::Age => Some("age".to_owned()),
            Holder::DeadLetters => Some("dead_letters".to_owned()),
            Holder::Consumer(name) => Some(name.clone()),
        };
        Self {
            tree: report.tree.to_string(),
            dry_run: report.dry_run,
            before: Held::from(&report.before),
            after: Held::from(&report.after),
            trimmed_records: report.trimmed_records,
            trimmed_bytes: report.trimmed_bytes,
            held_by: held_by.map(|consumer| HeldBy {
                consumer,
                position: report.keep.to_string(),
                bytes: report.held_bytes,
            }),
            checkpoint: report.checkpoint.to_string(),
            snapshots: report.snapshots,
            reaped: Reaped::from(&report.reaping),
            consumers: report
                .consumers
                .iter()
                .map(|consumer| {
                    let (state, position) = match consumer.claim {
                        Claim::From(lsn) => ("holds", Some(lsn.to_string())),
                        Claim::Everything => ("silent", None),
                        Claim::FellOff => ("fell_off", None),
                    };
                    let (name, state) = (consumer.name.clone(), state.to_owned());
                    CollectedConsumer { name, state, position, bytes: consumer.bytes }
                })
                .collect(),
        }
    }
}
