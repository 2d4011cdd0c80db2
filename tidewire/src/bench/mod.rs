//! `bench`: figures of this machine.

use std::process::ExitCode;

use clap::Args;

use crate::cli::Failure;

/// The arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) what: Measurement,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `bench` measures.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Measurement {
    /// Durable puts per second with 1, 8, 64 and 256 writers
    Wal,
    /// Entries per second from one cluster to another
    Replicate,
}

/// Runs it.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    Err(Failure::server(format!("{args:?}: not built yet")))
}
