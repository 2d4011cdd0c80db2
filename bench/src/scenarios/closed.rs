//! Writers in closed loops, 256 bytes and 1 KiB.

use crate::failure::Outcome;
use crate::plan::{Plan, rates};
use crate::report::{Section, Target};
use crate::rounds::Rounds;
use crate::turn::{Figures, Work};

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    for value_bytes in [256, 1_024] {
        for writers in [1, 8, 64, 256] {
            plan.clear("closed")?;
            let rounds = Rounds::run(plan.sides(true), plan.pairs, |side| {
                let seconds = plan.seconds_of(side.engine);
                plan.turn("closed", side, Work::Closed { writers, value_bytes, seconds })
            })?;
            let title = format!("{writers} writers, {value_bytes} B, closed loop");
            let mut section = Section::new("closed", title, plan.pairs);
            rates(&mut section, &rounds, "rec/s");
            let by_bare = Target::AtLeast(0.9);
            let by_peer = Target::AtLeast(if writers >= 64 { 3.0 } else { 0.9 });
            let against = |section: &mut Section, by: &str, target| {
                let ratio = |of| rounds.ratio(of, by, Figures::per_second);
                section.ratio(("tidewire log", by), "records/s", ratio("tidewire log"), Some(target));
                section.ratio(("tidewire tree", by), "records/s", ratio("tidewire tree"), None);
            };
            against(&mut section, "bare loop", by_bare);
            if let Some(best) = rounds.best_peer(Figures::per_second, true) {
                against(&mut section, &best, by_peer);
            }
            show(section);
        }
    }
    plan.clear("closed")
}
