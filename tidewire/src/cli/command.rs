//! Every command with its arguments, and [`main`].

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{Parser, Subcommand};

use super::client::Connection;
use super::collect::GcArgs;
use super::config::ConfigCommand;
use super::data::{KeyArgs, PutArgs, RangeArgs, ScanArgs, WatchArgs};
use super::letters::DeadLettersCommand;
use super::load::LoadArgs;
use super::peers::PeersCommand;
use super::sinks::SinksCommand;
use super::wal::WalCommand;
use super::{Failure, collect, config, data, letters, load, peers, sinks, status, wal};
use crate::bench::BenchArgs;
use crate::demo::DemoArgs;
use crate::serve::ServeArgs;

/// Causal replication change feed: a write on one cluster reaches the others.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, 3 server unreachable or failing."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run three clusters here, cut and heal a link, kill one, and compare them at the end
    Demo(DemoArgs),
    /// Run a cluster
    Serve(ServeArgs),
    /// Print an example configuration, check a file, show its effective settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a key
    Put(PutArgs),
    /// Print the value of a key
    Get(KeyArgs),
    /// Delete a key
    Delete(KeyArgs),
    /// Delete the keys from one up to, and without, another
    DeleteRange(RangeArgs),
    /// Print keys and values in key order
    Scan(ScanArgs),
    /// Write every line of a file of JSON lines
    Load(LoadArgs),
    /// Print changes as they happen, one line each
    Watch(WatchArgs),
    /// Show trees, peers, lag, log size and health
    Status(Connection),
    /// The clusters that the server exchanges writes with
    #[command(subcommand)]
    Peers(PeersCommand),
    /// The destinations that the server's trees feed
    #[command(subcommand)]
    Sinks(SinksCommand),
    /// Records that can never be applied here, or that a sink's destination does not take
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Look at the log of a stopped server, check it, cut it where it is damaged
    #[command(subcommand)]
    Wal(WalCommand),
    /// Let a tree's log forget what nobody needs any more, and report who holds the rest
    Gc(GcArgs),
    /// Measure this machine
    Bench(BenchArgs),
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let command = match CommandLine::try_parse() {
        Ok(line) => line.command,
        Err(error) if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand => {
            return Failure::usage("a command is missing; see `tidewire --help`").report();
        }
        Err(error) if error.use_stderr() => return Failure::usage(one_line(&error.to_string())).report(),
        Err(error) => {
            // Help or version, on stdout; whoever closes the pipe has seen enough.
            let _closed = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let mut out = std::io::stdout().lock();
    run(command, &mut out).unwrap_or_else(|failure| failure.report())
}

fn run(command: Command, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => return crate::demo::run(&args),
        Command::Serve(args) => return crate::serve::run(&args),
        Command::Bench(args) => return crate::bench::run(&args),
        Command::Config(command) => config::run(&command, out)?,
        Command::Wal(command) => return wal::run(&command, out),
        Command::Put(args) => data::put(args, out)?,
        Command::Get(args) => data::get(args, out)?,
        Command::Delete(args) => data::delete(args, out)?,
        Command::DeleteRange(args) => data::delete_range(args, out)?,
        Command::Scan(args) => data::scan(args, out)?,
        Command::Load(args) => load::load(&args, out)?,
        Command::Watch(args) => data::watch(&args, out)?,
        Command::Status(connection) => status::status(&connection, out)?,
        Command::Gc(args) => collect::gc(&args, out)?,
        Command::Peers(command) => peers::run(&command, out)?,
        Command::Sinks(command) => sinks::sinks(&command, out)?,
        Command::DeadLetters(command) => letters::dead_letters(&command, out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What clap has to say about a wrong command line, without the usage that follows it.
fn one_line(message: &str) -> String {
    let parts: Vec<&str> = message
        .lines()
        .map(|line| line.trim().trim_start_matches("error: "))
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    format!("{}; see `tidewire --help`", parts.join("; ").replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_is_answered_in_one_line_with_the_nearest_one() {
        let error = CommandLine::try_parse_from(["tidewire", "stat"]).expect_err("unknown").to_string();
        let line = one_line(&error);
        assert!(line.contains("stat") && line.contains("'status'") && !line.contains('\n'), "{line}");
        let missing = CommandLine::try_parse_from(["tidewire", "put", "t"]).expect_err("missing").to_string();
        assert!(one_line(&missing).contains("<KEY>"), "{}", one_line(&missing));
    }
}
