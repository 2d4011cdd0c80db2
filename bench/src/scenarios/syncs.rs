//! That everybody syncs before it answers: one writer in a closed loop under `strace -f -c`. At least one sync for each
//! answer is what durable means with one writer.

use std::process::Command;

use crate::failure::Outcome;
use crate::figures::Quartiles;
use crate::plan::Plan;
use crate::report::{Row, Section, Target};
use crate::turn::{Turn, Work};

/// System calls after which written bytes are durable.
const CALLS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];

pub fn run(plan: &Plan, show: &mut dyn FnMut(Section)) -> Outcome<()> {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("syncs are not counted: strace is missing");
        return Ok(());
    }
    plan.clear("syncs")?;
    let mut section = Section::new("syncs", "syncs for each answer, one writer, counted by strace", 1);
    for side in plan.sides(true) {
        let dir = plan.dir("syncs", &side);
        std::fs::create_dir_all(&dir)?;
        let counts = dir.with_extension("strace");
        let path = counts.to_str().ok_or("a directory with a name in UTF-8")?;
        let trace = format!("trace={}", CALLS.join(","));
        let program = ["strace", "-f", "-c", "-U", "calls,name", "-e", trace.as_str(), "-o", path];
        let work = Work::Closed { writers: 1, value_bytes: 256, seconds: 0.3 };
        let turn = Turn { engine: side.engine, dir, work };
        // The first one makes the files.
        turn.run()?;
        let figures = turn.run_under(Some(&program))?;
        let text = std::fs::read_to_string(&counts)?;
        let syncs: u64 = text.lines().filter_map(count).sum();
        let per_answer = Quartiles::of([syncs as f64 / figures.writes as f64]);
        section.rows.push(Row {
            who: format!("{}: {syncs} syncs, {} answers", side.name, figures.writes),
            unit: "syncs an answer",
            figure: per_answer,
            p50_us: None,
            p99_us: None,
            syncs_per_second: None,
        });
        section.ratio((&side.name, "answers"), "syncs", per_answer, Some(Target::AtLeast(1.0)));
    }
    show(section);
    plan.clear("syncs")
}

/// The calls of one line of the summary.
fn count(line: &str) -> Option<u64> {
    let (calls, name) = line.trim().split_once(' ')?;
    CALLS.contains(&name.trim()).then(|| calls.parse().ok())?
}
