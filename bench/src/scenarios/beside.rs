//! The median at half the peak rate of a tree, beside more partitions, a long log, followers, idle trees.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::plan::{Plan, rates};
use crate::report::{Section, Target};
use crate::rounds::{Rounds, Side};
use crate::scenarios::open_loop::half_peak;
use crate::turn::{Beside, Figures, Work};

const PLAIN: &str = "8 partitions, 10 MB of log";
const BASE: Beside = Beside { partitions: 8, log_bytes: 10 << 20, followers: 0, idle_trees: 0 };

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    plan.clear("beside")?;
    let per_second = half_peak(plan, "beside", vec![Side::of(Engine::Tree)])?;
    let variants: Vec<(String, Beside)> = vec![
        (PLAIN.to_owned(), BASE),
        ("1 partition".to_owned(), Beside { partitions: 1, ..BASE }),
        ("64 partitions".to_owned(), Beside { partitions: 64, ..BASE }),
        (format!("{} GiB of log", plan.log_gib), Beside { log_bytes: plan.log_gib << 30, ..BASE }),
        ("8 followers".to_owned(), Beside { followers: 8, ..BASE }),
        ("15 idle trees".to_owned(), Beside { idle_trees: 15, ..BASE }),
    ];
    let sides = variants.iter().map(|(name, _)| Side { name: name.clone(), engine: Engine::Tree }).collect();
    let rounds = Rounds::run(sides, plan.pairs, |side| {
        let beside = variants.iter().find(|(name, _)| *name == side.name).map_or(BASE, |(_, beside)| *beside);
        plan.turn("beside", side, Work::Beside { per_second, beside, seconds: plan.seconds })
    })?;
    let title = format!("a tree at half its peak, {per_second:.0} records/s of 256 B, beside other things");
    let mut section = Section::new("beside", title, plan.pairs);
    rates(&mut section, &rounds, "rec/s");
    for (name, _) in &variants[1..] {
        let ratio = rounds.ratio(name, PLAIN, |figures: &Figures| figures.p50_us);
        section.ratio((name, PLAIN), "p50", ratio, Some(Target::AtMost(1.2)));
    }
    show(section);
    plan.clear("beside")
}
