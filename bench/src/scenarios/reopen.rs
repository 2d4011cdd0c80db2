//! From opening a log of 1,000,000 records of 256 bytes after kill -9 to the first answer. Each turn opens, appends one
//! record, and is killed: the next one opens what that left.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::plan::{Plan, times};
use crate::report::{Section, Target};
use crate::rounds::{Rounds, Side};
use crate::turn::{Reopening, Work};

const RECORDS: u64 = 1_000_000;
const REPLAY: &str = "tidewire tree, replay";
const SNAPSHOT: &str = "tidewire tree, snapshot";

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    plan.clear("reopen")?;
    let tree = |name: &str| Side { name: name.to_owned(), engine: Engine::Tree };
    let raft = Side::of(Engine::RaftEngine);
    let sides = vec![raft.clone(), Side::of(Engine::Log), tree(REPLAY), tree(SNAPSHOT)];
    for side in &sides {
        eprintln!("filling {}", side.name);
        plan.turn("reopen", side, Work::Fill { records: RECORDS, value_bytes: 256 })?;
        if side.name == REPLAY {
            std::fs::remove_dir_all(plan.dir("reopen", side).join(crate::perform::TREE).join("snapshots"))?;
        }
    }
    let rounds = Rounds::run(sides, plan.pairs, |side| {
        let how = if side.engine == Engine::Tree { Reopening::Tree } else { Reopening::Log };
        plan.turn("reopen", side, Work::Reopen(how))
    })?;
    let title = "kill -9 with 1,000,000 records of 256 B: from opening to the first answer";
    let mut section = Section::new("reopen", title, plan.pairs);
    times(&mut section, &rounds);
    for of in ["tidewire log", REPLAY, SNAPSHOT] {
        let target = (of == "tidewire log").then_some(Target::AtMost(0.5));
        let ratio = rounds.ratio(of, &raft.name, |figures| figures.seconds);
        section.ratio((of, &raft.name), "time", ratio, target);
    }
    show(section);
    plan.clear("reopen")
}
