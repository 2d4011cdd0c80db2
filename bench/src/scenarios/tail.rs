//! Reading 1,000,000 records of 256 bytes, written in batches of 1,000: everything, and one in a hundred.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::plan::{Plan, rates, times};
use crate::report::{Section, Target};
use crate::rounds::{Rounds, Side};
use crate::turn::{Figures, Reading, Work};

const RECORDS: u64 = 1_000_000;
const BYTES: &str = "bare sequential read";

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    plan.clear("tail")?;
    let sides: Vec<Side> = plan.sides(true).into_iter().filter(|side| side.engine != Engine::Bare).collect();
    for side in &sides {
        eprintln!("filling {}", side.name);
        plan.turn("tail", side, Work::Fill { records: RECORDS, value_bytes: 256 })?;
    }
    let rounds = Rounds::run(sides, plan.pairs, |side| {
        let figures = plan.turn("tail", side, Work::Read(Reading::All))?;
        if figures.records < RECORDS {
            return Err(format!("{} shows {} of {RECORDS} records", side.name, figures.records).into());
        }
        Ok(figures)
    })?;
    let mut section = Section::new("tail", "reading 1,000,000 records of 256 B, warm", plan.pairs);
    rates(&mut section, &rounds, "rec/s");
    if let Some(best) = rounds.best_peer(Figures::per_second, true) {
        let ratio = |of| rounds.ratio(of, &best, Figures::per_second);
        section.ratio(
            ("tidewire log", &best),
            "records/s",
            ratio("tidewire log"),
            Some(Target::AtLeast(3.0)),
        );
        section.ratio(("tidewire tree", &best), "records/s", ratio("tidewire tree"), None);
    }
    show(section);
    filtered(plan, show)?;
    plan.clear("tail")
}

fn filtered(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    let log = Side::of(Engine::Log);
    let bytes = Side { name: BYTES.to_owned(), engine: Engine::Bare };
    let rounds = Rounds::run(vec![bytes, log.clone(), Side::of(Engine::Tree)], plan.pairs, |side| {
        if side.engine != Engine::Bare {
            let figures = plan.turn("tail", side, Work::Read(Reading::Filtered))?;
            let expected = RECORDS / 100;
            if figures.records != expected {
                return Err(format!("{} shows {} of {expected} records", side.name, figures.records).into());
            }
            return Ok(figures);
        }
        // The files of the log.
        let files = Side { name: log.name.clone(), engine: Engine::Bare };
        plan.turn("tail", &files, Work::Read(Reading::Bytes))
    })?;
    let mut section = Section::new("tail", "a filter that matches one record in a hundred", plan.pairs);
    times(&mut section, &rounds);
    let ratio = |of| rounds.ratio(of, BYTES, |figures| figures.seconds);
    for of in [&log.name, "tidewire tree"] {
        section.ratio((of, BYTES), "time", ratio(of), Some(Target::AtMost(1.3)));
    }
    show(section);
    Ok(())
}
