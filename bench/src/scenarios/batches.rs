//! One writer that writes 1,000 records at a time.

use crate::failure::Outcome;
use crate::plan::{Plan, rates};
use crate::report::{Section, Target};
use crate::rounds::Rounds;
use crate::turn::{Figures, Work};

const RECORDS: usize = 1_000;

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    for value_bytes in [256, 1_024] {
        plan.clear("batches")?;
        let rounds = Rounds::run(plan.sides(true), plan.pairs, |side| {
            // A peer may not get far in less.
            let seconds = plan.seconds;
            plan.turn("batches", side, Work::Batches { records: RECORDS, value_bytes, seconds })
        })?;
        let title = format!("one writer, batches of {RECORDS}, {value_bytes} B");
        let mut section = Section::new("batches", title, plan.pairs);
        rates(&mut section, &rounds, "rec/s");
        let ratio = |of, by: &str| rounds.ratio(of, by, Figures::per_second);
        let pair = ("tidewire log", "bare loop");
        section.ratio(pair, "records/s", ratio(pair.0, pair.1), Some(Target::AtLeast(0.8)));
        section.ratio(("tidewire tree", "bare loop"), "records/s", ratio("tidewire tree", "bare loop"), None);
        if let Some(best) = rounds.best_peer(Figures::per_second, true) {
            let target = Some(Target::AtLeast(1.0));
            section.ratio((pair.0, &best), "records/s", ratio(pair.0, &best), target);
            section.ratio(("tidewire tree", &best), "records/s", ratio("tidewire tree", &best), None);
        }
        show(section);
    }
    plan.clear("batches")
}
