//! The simulation harness: clusters in one thread, on virtual time, from one seed.
//!
//! A [`World`] holds sites with a disk in memory, metadata that survives, and a wall clock of their own, and a network
//! between them. It cuts and heals links, kills and restarts sites, runs writers, and at the end, with every fault off,
//! demands that all sites hold the same state and everything that was acknowledged.

mod clock;
mod counters;
mod demands;
mod history;
mod interests;
mod promises;
mod sequences;
mod site;
mod topology;
mod watch;
mod workload;
mod world;

use std::ops::Range;

pub use clock::SimClock;
pub use history::{Entry, History};
pub use promises::demand_promises_kept;
pub use sequences::{Sequences, check_sequences};
pub use site::Site;
pub use topology::{Edge, Topology};
pub use watch::Watch;
pub use workload::{Acknowledged, Acknowledgement, Mix, Unanswered, Workload};
pub use world::{Plan, World};

/// The seeds of a random test: `TIDEWIRE_SEED` names the first, `TIDEWIRE_SEEDS` how many; else one, or `count` from 0.
/// Each is printed before it is used: the last one that a failing test shows is the one to see again.
#[expect(clippy::print_stdout, reason = "a test that fails shows its seed")]
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    asked(count).inspect(|seed| println!("TIDEWIRE_SEED={seed}"))
}

/// Whether `seeds(count)` are at least that many: fewer need not meet everything that the whole number does.
pub fn enough_seeds(count: u64) -> bool {
    let asked = asked(count);
    asked.end - asked.start >= count
}

fn asked(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("TIDEWIRE_SEED") {
        Some(seed) => seed..seed + number("TIDEWIRE_SEEDS").unwrap_or(1),
        None => 0..number("TIDEWIRE_SEEDS").unwrap_or(count),
    }
}

/// Runs on one thread, on virtual time.
pub fn virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
