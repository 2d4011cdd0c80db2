//! `bench`: figures of this machine, as a table or as JSON. Files lie in the current directory, so that its disk is what is
//! measured.

mod live;
mod mesh;
mod recover;
mod replicate;
mod shipping;
#[cfg(feature = "kafka")]
mod sink;
mod wal;

use std::fmt::Display;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tidewire_core::error::{Error, ErrorKind};

use crate::cli::Failure;
use crate::local::runtime;

/// The arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) what: Measurement,
    /// For `sink`: the brokers of a Kafka to measure with
    #[arg(long, conflicts_with = "mock")]
    pub(crate) brokers: Option<String>,
    /// For `sink`: measure with the mock cluster of the client library instead of a Kafka
    #[arg(long)]
    pub(crate) mock: bool,
    /// For `sink`: how many entries a run delivers
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) entries: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `bench` measures.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Measurement {
    /// Durable puts per second with 1, 8, 64 and 256 writers
    Wal,
    /// Entries per second from one cluster to another; between two and three that all write, causal and eventual; and what
    /// shipping costs in processor time
    Replicate,
    /// Opening a tree of 1,000,000 entries by replay and by snapshot, and what a snapshot costs the writes beside it
    Recover,
    /// Entries per second into Kafka, beside a bare producer loop
    #[cfg(feature = "kafka")]
    Sink,
}

/// Runs it.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let dir = tempfile::tempdir_in(".").map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the current directory cannot be written to").with_source(error)
    })?;
    let runtime = runtime()?;
    match args.what {
        Measurement::Wal => {
            let rows = runtime.block_on(wal::measure(dir.path()))?;
            print(args.json, "wal", json!({"rows": rows}), wal::table(&rows))
        }
        Measurement::Replicate => {
            let rows = runtime.block_on(replicate::measure(dir.path()))?;
            let mesh = runtime.block_on(mesh::measure(dir.path()))?;
            let shipping = runtime.block_on(shipping::measure(dir.path()))?;
            let tables = format!(
                "{}\n{}\n{}",
                replicate::table(&rows),
                mesh::table(&mesh),
                shipping::table(&shipping)
            );
            print(args.json, "replicate", json!({"rows": rows, "mesh": mesh, "shipping": shipping}), tables)
        }
        Measurement::Recover => {
            let rows = runtime.block_on(recover::measure(dir.path()))?;
            print(args.json, "recover", json!({"rows": rows}), recover::table(&rows))
        }
        #[cfg(feature = "kafka")]
        Measurement::Sink => {
            if args.brokers.is_none() && !args.mock {
                let said =
                    "bench sink needs --brokers HOST:PORT (scripts/kafka starts one), or --mock".to_owned();
                return Err(Failure::usage(said));
            }
            let plan = sink::Plan { brokers: args.brokers.clone(), entries: args.entries };
            let figures = runtime.block_on(sink::measure(dir.path(), &plan))?;
            print(args.json, "sink", json!({"rows": figures}), sink::table(&figures))
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what the command prints")]
fn print(json: bool, what: &str, mut figures: Value, tables: impl Display) -> Result<ExitCode, Failure> {
    if json {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        figures["bench"] = json!(what);
        figures["version"] = json!(env!("CARGO_PKG_VERSION"));
        figures["cores"] = json!(cores);
        println!("{figures}");
    } else {
        print!("{tables}");
    }
    Ok(ExitCode::SUCCESS)
}
