//! Tidewire's log beside other logs and engines, and beside the bare loop. See README.md.

// The same files as in `tidewire bench`.
#[path = "../../tidewire/src/bench/wal/bare.rs"]
mod bare;
mod beside;
mod contender;
mod engines;
mod failure;
#[path = "../../tidewire/src/local/quartiles.rs"]
mod figures;
mod latencies;
mod load;
mod machine;
mod perform;
mod plan;
mod reading;
mod report;
mod rounds;
mod scenarios;
mod threads;
mod turn;
mod window;
mod workload;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, Subcommand};

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::plan::Plan;
use crate::report::{Report, Section};
use crate::scenarios::Scenario;

/// Tidewire beside other logs and engines, and beside the bare loop.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Option<Step>,
    /// What to measure; everything by default
    #[arg(long, value_enum, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// Whom to measure beside Tidewire and the bare loop; all peers by default, `bare` for none
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Engine>,
    /// How many rounds count
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Seconds of one turn of the bare loop and of Tidewire; peers have half of it
    #[arg(long, default_value_t = 0.6)]
    seconds: f64,
    /// GiB of log in the scenario with a long one
    #[arg(long, default_value_t = 2)]
    log_gib: u64,
    /// Where the files lie: its disk is measured. A directory in it is made and removed
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Writes everything as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the tables to this file too
    #[arg(long)]
    markdown: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// One turn of one engine; what the program starts for itself
    #[command(hide = true)]
    Turn { turn: String },
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    if let Some(Step::Turn { turn }) = &args.command {
        return turn::serve(turn);
    }
    let dir = tempfile::Builder::new().prefix("tidewire-bench-").tempdir_in(&args.dir)?;
    let peers = if args.peers.is_empty() { Engine::PEERS.to_vec() } else { args.peers.clone() };
    let plan = Plan {
        dir: dir.path().to_owned(),
        pairs: args.pairs,
        seconds: args.seconds,
        peers: peers.into_iter().filter(|engine| engine.is_peer()).collect(),
        log_gib: args.log_gib,
    };
    let scenarios = if args.scenarios.is_empty() { Scenario::ALL.to_vec() } else { args.scenarios.clone() };
    let mut report = Report { machine: machine::machine(), ..Report::default() };
    let began = Instant::now();
    let mut markdown = report.machine.join("; ") + "\n";
    print!("{markdown}");
    for scenario in scenarios {
        scenario.run(&plan, &mut |section: Section| {
            let text = section.markdown();
            print!("{text}");
            markdown += &text;
            report.sections.push(section);
        })?;
    }
    report.seconds = began.elapsed().as_secs_f64();
    println!("\n{:.0} s", report.seconds);
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(path) = &args.markdown {
        std::fs::write(path, markdown)?;
    }
    Ok(())
}
