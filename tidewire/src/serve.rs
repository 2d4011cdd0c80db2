//! `serve`: one cluster in this process.

use std::process::ExitCode;

use clap::Args;

use crate::cli::Failure;

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: std::path::PathBuf,
}

/// Runs it.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    Err(Failure::server(format!("{args:?}: not built yet")))
}
