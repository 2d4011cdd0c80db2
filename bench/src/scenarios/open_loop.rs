//! The 99th percentile at half the peak rate, which is the rate of 64 writers in closed loops that the slower of the bare
//! loop and the log reaches, found in the same minute.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::figures::Quartiles;
use crate::plan::{Plan, rates};
use crate::report::{Section, Target};
use crate::rounds::{Rounds, Side};
use crate::turn::{Figures, Work};

const PAIRS: usize = 9;
const PEAK_ROUNDS: usize = 3;
const PEAK_WRITERS: usize = 64;

/// Half the peak of the slowest of some sides.
pub fn half_peak(plan: &Plan, scenario: &str, sides: Vec<Side>) -> Outcome<f64> {
    let names: Vec<_> = sides.iter().map(|side| side.name.clone()).collect();
    let rounds = Rounds::run(sides, PEAK_ROUNDS, |side| {
        let work = Work::Closed { writers: PEAK_WRITERS, value_bytes: 256, seconds: plan.seconds };
        plan.turn(scenario, side, work)
    })?;
    let peaks = names.iter().map(|name| Quartiles::of(rounds.each(name, Figures::per_second)).median);
    Ok(peaks.fold(f64::INFINITY, f64::min) / 2.0)
}

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    plan.clear("latency")?;
    let per_second = half_peak(plan, "latency", vec![Side::of(Engine::Bare), Side::of(Engine::Log)])?;
    let pairs = plan.pairs.max(PAIRS);
    let rounds = Rounds::run(plan.sides(false), pairs, |side| {
        let work = Work::Open { per_second, value_bytes: 256, seconds: plan.seconds * 2.0 };
        plan.turn("latency", side, work)
    })?;
    let title = format!("open loop at half the peak, {per_second:.0} records/s of 256 B");
    let mut section = Section::new("latency", title, pairs);
    rates(&mut section, &rounds, "rec/s");
    let bare = "bare loop";
    let ratio = |of, figure: fn(&Figures) -> f64| rounds.ratio(of, bare, figure);
    let p99 = |figures: &Figures| figures.p99_us;
    let p50 = |figures: &Figures| figures.p50_us;
    section.ratio(("tidewire log", bare), "p99", ratio("tidewire log", p99), Some(Target::AtMost(1.25)));
    section.ratio(("tidewire tree", bare), "p99", ratio("tidewire tree", p99), None);
    section.ratio(("tidewire log", bare), "p50", ratio("tidewire log", p50), None);
    section.ratio(("tidewire tree", bare), "p50", ratio("tidewire tree", p50), None);
    show(section);
    plan.clear("latency")
}
