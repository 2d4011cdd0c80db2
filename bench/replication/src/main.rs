//! Tidewire's replication beside that of others, on this machine. See ../../README.md.

#[path = "../../src/failure.rs"]
mod failure;
#[path = "../../../tidewire/src/local/quartiles.rs"]
mod figures;
mod http;
mod jars;
mod kind;
mod limits;
mod live;
#[path = "../../src/machine.rs"]
mod machine;
mod measure;
mod ports;
mod report;
mod rounds;
mod service;
mod sights;
mod system;
mod systems;
#[path = "../../src/engines/tide_site.rs"]
mod tide_site;
mod wan;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Outcome;
use crate::kind::{Kind, Kit};
use crate::report::{Report, Section};
use crate::rounds::Plan;
use crate::wan::WanArgs;

/// Tidewire's replication beside NATS JetStream, PostgreSQL and MirrorMaker 2.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Option<Step>,
    /// Whom to measure; everybody by default. What is missing on this machine is named and left out
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<Kind>,
    /// Bytes of a value
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1024])]
    values: Vec<usize>,
    /// How many rounds count
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// The most entries of a backlog
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    entries: u64,
    /// Entries of one write while a backlog is loaded: a batch of Tidewire, a transaction of PostgreSQL
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    batch: u64,
    /// How long a backlog should take at most: those who are slow get fewer entries
    #[arg(long, default_value_t = 2.0)]
    backlog_seconds: f64,
    /// How long live writes last in each turn; 0 for none
    #[arg(long, default_value_t = 2.0)]
    live_seconds: f64,
    /// How long a rate must be held to be a peak
    #[arg(long, default_value_t = 2.0)]
    peak_seconds: f64,
    /// The program that is measured
    #[arg(long, default_value = "../target/release/tidewire")]
    tidewire: PathBuf,
    /// The NATS server, if it is not on the PATH
    #[arg(long)]
    nats_server: Option<PathBuf>,
    /// Where the jars of MirrorMaker 2 lie, if not where `scripts/kafka mirror-jars` puts them
    #[arg(long)]
    kafka_jars: Option<PathBuf>,
    /// Where the files lie: its disk is measured. A directory in it is made and removed
    #[arg(long, default_value = "/var/tmp")]
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
    /// Measures clusters that run already, far from each other: what `scripts/netns` starts
    #[command(hide = true)]
    Wan(WanArgs),
}

impl Args {
    fn plan(&self) -> Plan {
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        Plan {
            pairs: self.pairs,
            entries: self.entries,
            batch: self.batch,
            backlog: seconds(self.backlog_seconds),
            live: seconds(self.live_seconds),
            peak: seconds(self.peak_seconds),
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let args = Args::parse();
    let mut terminated = signal(SignalKind::terminate())?;
    // Whatever ends first: services and files go with what owns them.
    tokio::select! {
        biased;
        _ = terminated.recv() => Err("terminated".into()),
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        done = async {
            match &args.command {
                Some(Step::Wan(wan)) => wan::run(wan).await,
                None => run(&args).await,
            }
        } => done,
    }
}

async fn run(args: &Args) -> Outcome<()> {
    let dir = tempfile::Builder::new().prefix("tidewire-bench-").tempdir_in(&args.dir)?;
    // A server that runs as somebody else has its directory in here.
    std::process::Command::new("chmod").arg("755").arg(dir.path()).status()?;
    let version = std::env::var("KAFKA_VERSION").unwrap_or_else(|_| "4.1.0".to_owned());
    let kit = Kit {
        tidewire: std::path::absolute(&args.tidewire)?,
        nats_server: args.nats_server.clone(),
        kafka_jars: args.kafka_jars.clone().unwrap_or_else(|| jars::kafka_jars(&version)),
        dir: dir.path().to_owned(),
    };
    let mut report = Report { machine: machine::machine(), ..Report::default() };
    let mut kinds = Vec::new();
    for kind in if args.systems.is_empty() { Kind::value_variants() } else { &args.systems } {
        match kind.missing(&kit) {
            None => kinds.push(*kind),
            Some(missing) => report.left_out.push(format!("{} is left out: {missing}", kind.name())),
        }
    }
    let began = tokio::time::Instant::now();
    let mut markdown = report.machine.join("; ") + "\n";
    for line in &report.left_out {
        markdown += &format!("\n{line}\n");
    }
    print!("{markdown}");
    for bytes in &args.values {
        let section: Section = args.plan().run(&kit, &kinds, *bytes).await?;
        let text = section.markdown();
        print!("{text}");
        markdown += &text;
        report.sections.push(section);
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
