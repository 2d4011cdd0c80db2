//! `config`: the example, the check, the effective settings.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;

use super::Failure;
use crate::config;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a complete file: every key with its default, unit and meaning
    Example,
    /// Say ok, or what is wrong in a file, one line each
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Print the effective settings of a file and where each comes from
    Show {
        /// The configuration file
        file: PathBuf,
    },
}

pub(crate) fn run(command: &ConfigCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        ConfigCommand::Example => out.write_all(config::example().as_bytes())?,
        ConfigCommand::Check { file } => {
            config::load(file)?;
            writeln!(out, "ok")?;
        }
        ConfigCommand::Show { file } => out.write_all(config::show(file)?.as_bytes())?,
    }
    Ok(())
}
