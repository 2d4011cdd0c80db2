//! The scenarios: each measures, and says which targets it is about.

mod batches;
mod beside;
mod busy;
mod closed;
mod open_loop;
mod reopen;
mod syncs;
mod tail;

use serde::Serialize;

use crate::failure::Outcome;
use crate::plan::Plan;
use crate::report::Section;

/// A scenario by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// That everybody syncs before it answers, counted by the system
    Syncs,
    /// 1, 8, 64 and 256 writers, one record after the other
    Closed,
    /// One writer, batches of 1,000 records
    Batches,
    /// 99th percentile at half the peak rate
    Latency,
    /// Reading 1,000,000 records, all and one in a hundred
    Tail,
    /// From opening 1,000,000 records after a kill to the first answer
    Reopen,
    /// Median at half the peak rate beside other things
    Beside,
    /// 16 trees at once
    Busy,
}

impl Scenario {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 8] = [
        Self::Syncs,
        Self::Closed,
        Self::Batches,
        Self::Latency,
        Self::Tail,
        Self::Reopen,
        Self::Beside,
        Self::Busy,
    ];

    /// Runs it; each table is shown when it is there.
    pub fn run(self, plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
        match self {
            Self::Syncs => syncs::run(plan, show),
            Self::Closed => closed::run(plan, show),
            Self::Batches => batches::run(plan, show),
            Self::Latency => open_loop::run(plan, show),
            Self::Tail => tail::run(plan, show),
            Self::Reopen => reopen::run(plan, show),
            Self::Beside => beside::run(plan, show),
            Self::Busy => busy::run(plan, show),
        }
    }
}
