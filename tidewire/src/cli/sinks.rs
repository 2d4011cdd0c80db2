//! `sinks`: orders to a server.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::Failure;
use super::client::{Client, Connection, segment};
use super::status::lag_for_people;
use super::table::Table;
use crate::status::SinkStatus;

/// What can be done with sinks.
#[derive(Debug, Subcommand)]
pub(crate) enum SinksCommand {
    /// List the sinks with their state and lag
    List(Connection),
    /// Stop a sink until it is resumed, also over restarts; it keeps its hold on the log
    Pause(SinkArgs),
    /// End a pause
    Resume(SinkArgs),
    /// Let a sink try again at once, also one that is halted
    Restart(SinkArgs),
    /// End a sink and free what it holds: its place in the log, its dead letters
    Remove(SinkArgs),
}

/// A sink of a server.
#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    /// The sink's name
    name: String,
    /// Its tree, where several have a sink of this name
    #[arg(long, value_name = "TREE")]
    tree: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn sinks(command: &SinksCommand, out: &mut dyn Write) -> Result<(), Failure> {
    let (args, method, action, done) = match command {
        SinksCommand::List(connection) => return list(connection, out),
        SinksCommand::Pause(args) => (args, "POST", "/pause", "paused"),
        SinksCommand::Resume(args) => (args, "POST", "/resume", "resumed"),
        SinksCommand::Restart(args) => (args, "POST", "/restart", "restarted"),
        SinksCommand::Remove(args) => (args, "DELETE", "", "removed"),
    };
    let path = format!("/v1/admin/sinks/{}{action}", segment(&args.name));
    Client::new(&args.connection)?.order(method, &path, &args.query(), None)?;
    writeln!(out, "{done} {}", args.name)?;
    Ok(())
}

fn list(connection: &Connection, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(connection)?;
    let raw = client.json("/v1/admin/sinks", &[])?;
    let sinks = raw.get("sinks").cloned().unwrap_or_default();
    if connection.json {
        writeln!(out, "{sinks}")?;
        return Ok(());
    }
    let sinks = Vec::<SinkStatus>::deserialize(&sinks).map_err(|error| client.not_understood(&error))?;
    if sinks.is_empty() {
        writeln!(out, "no sinks: add [[sinks]] to the configuration file")?;
    } else {
        write!(out, "{}", table(&sinks))?;
    }
    Ok(())
}

/// Sinks as a table.
pub(super) fn table(sinks: &[SinkStatus]) -> Table {
    let mut table =
        Table::new(["SINK", "TREE", "TYPE", "STATE", "BEHIND", "DELIVERED", "DEAD LETTERS", "REASON"]);
    for sink in sinks {
        table.row([
            sink.name.clone(),
            sink.tree.clone(),
            sink.kind.clone(),
            sink.state.replace('_', " "),
            lag_for_people(sink.lag),
            sink.delivered.to_string(),
            sink.dead_letters.to_string(),
            sink.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

impl SinkArgs {
    fn query(&self) -> Vec<(&str, &[u8])> {
        self.tree.iter().map(|tree| ("tree", tree.as_bytes())).collect()
    }
}
