//! `demo`: three clusters in this process, writes on all three, a link cut and healed, a cluster stopped hard and started
//! again; at the end all three hold the same state, or the first difference is named.

mod board;
mod script;
#[cfg(feature = "kafka")]
mod topic;
#[cfg(not(feature = "kafka"))]
#[path = "no_topic.rs"]
mod topic;
mod verdict;
mod workload;

use std::process::ExitCode;

use clap::Args;

use crate::cli::Failure;
use crate::local::runtime;

/// The arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Also feed a topic of these brokers from the cluster that is stopped hard, and compare it at the end
    #[arg(long, value_name = "BROKERS")]
    kafka: Option<String>,
}

/// Runs it.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let seed = match std::env::var("TIDEWIRE_DEMO_SEED") {
        Ok(text) => text.parse().map_err(|_| {
            Failure::usage(format!("TIDEWIRE_DEMO_SEED is {text:?}; it must be a whole number"))
        })?,
        Err(_) => tidewire_core::random::Random::from_os().below(1_000_000),
    };
    let equal = runtime()?.block_on(script::play(seed, args.kafka.as_deref()))?;
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
