//! The same 64 writers on one tree and on sixteen.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::plan::{Plan, rates};
use crate::report::Section;
use crate::rounds::{Rounds, Side};
use crate::turn::{Figures, Work};

const WRITERS: usize = 64;

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    plan.clear("busy")?;
    let side = |trees: usize| Side { name: format!("{trees} trees"), engine: Engine::Tree };
    let (one, many) = (side(1), side(16));
    let rounds = Rounds::run(vec![one.clone(), many.clone()], plan.pairs, |side| {
        let trees = if side.name == one.name { 1 } else { 16 };
        plan.turn("busy", side, Work::Busy { trees, writers: WRITERS, seconds: plan.seconds })
    })?;
    let mut section = Section::new("busy", format!("{WRITERS} writers over busy trees, 256 B"), plan.pairs);
    rates(&mut section, &rounds, "rec/s");
    let ratio = rounds.ratio(&many.name, &one.name, Figures::per_second);
    section.ratio((&many.name, &one.name), "records/s", ratio, None);
    show(section);
    plan.clear("busy")
}
