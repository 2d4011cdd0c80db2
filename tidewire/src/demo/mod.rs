//! `demo`: three clusters in this process.

use std::process::ExitCode;

use clap::Args;

use crate::cli::Failure;

/// The arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

/// Runs it.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    Err(Failure::server(format!("{args:?}: not built yet")))
}
