//! `gc`: one pass of the collector, with its report.

use std::io::Write;

use clap::Args;
use serde::Deserialize;

use super::Failure;
use super::client::{Client, Connection, encode};
use super::table::{Table, bytes_for_people};
use crate::collected::{Collected, Reaped};

/// What `gc` takes.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// The tree
    tree: String,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn gc(args: &GcArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let path = format!("/v1/admin/trees/{}/gc?dry_run={}", encode(args.tree.as_bytes()), args.dry_run);
    let raw = client.post_json(&path, b"")?;
    if args.connection.json {
        writeln!(out, "{raw}")?;
        return Ok(());
    }
    let report = Collected::deserialize(&raw).map_err(|error| client.not_understood(&error))?;
    write!(out, "{}", text(&report))?;
    Ok(())
}

fn text(report: &Collected) -> String {
    let (went, snapshots) = match (report.dry_run, report.snapshots) {
        (false, 0) => ("trimmed", String::new()),
        (false, taken) => ("trimmed", format!(" after {taken} snapshots")),
        (true, 0) => ("would trim", String::new()),
        (true, _) => ("would trim", " after a snapshot".to_owned()),
    };
    let mut lines = vec![format!(
        "{} {went} {} records, {}{snapshots}",
        report.tree,
        report.trimmed_records,
        bytes_for_people(report.trimmed_bytes)
    )];
    for (label, held) in [("before", &report.before), ("after ", &report.after)] {
        lines.push(format!(
            "{label}  {}..{}  {} records  {} retained  {} on disk",
            held.first,
            held.next,
            held.records,
            bytes_for_people(held.retained_bytes),
            bytes_for_people(held.physical_bytes)
        ));
    }
    lines.push(match &report.held_by {
        None => "held by nobody: everything is acknowledged and in snapshots".to_owned(),
        Some(holder) => format!(
            "held by {} from {} on, {}",
            match holder.consumer.as_str() {
                "checkpoint" => "the tree's own checkpoint",
                "age" => "nobody: what is older than wal_retention goes",
                consumer => consumer,
            },
            holder.position,
            bytes_for_people(holder.bytes)
        ),
    });
    lines.push(dead(&report.reaped));
    let mut text = lines.join("\n") + "\n";
    if !report.consumers.is_empty() {
        let mut table = Table::new(["CONSUMER", "STATE", "FROM", "HOLDS"]);
        for consumer in &report.consumers {
            let state = match consumer.state.as_str() {
                "silent" => "has reported nothing",
                "fell_off" => "fell off: seed it anew",
                state => state,
            };
            table.row([
                consumer.name.clone(),
                state.to_owned(),
                consumer.position.clone().unwrap_or_else(|| "-".to_owned()),
                bytes_for_people(consumer.bytes),
            ]);
        }
        text += &table.to_string();
    }
    text
}

/// What left the state, and what keeps the rest.
fn dead(reaped: &Reaped) -> String {
    let count = |tombstones, expired, ranges| {
        format!("{tombstones} tombstones, {expired} expired keys, {ranges} deleted ranges")
    };
    let left = &reaped.left;
    let kept = left.held_by.as_ref().map_or_else(String::new, |held_by| format!(", kept by {held_by}"));
    format!(
        "forgot {}; left {}{kept}",
        count(reaped.tombstones, reaped.expired, reaped.ranges),
        count(left.tombstones, left.expired, left.ranges)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collected::{CollectedConsumer, Held, HeldBy};
    use crate::status::DeadStatus;

    #[test]
    fn the_report_names_who_holds_the_log_and_who_fell_off() {
        let held = |first: &str, bytes| Held {
            first: first.into(),
            next: "900".into(),
            records: 10,
            retained_bytes: bytes,
            physical_bytes: 2 * bytes,
        };
        let consumer = |name: &str, state: &str, position: Option<&str>, bytes| CollectedConsumer {
            name: name.into(),
            state: state.into(),
            position: position.map(str::to_owned),
            bytes,
        };
        let left = DeadStatus {
            tombstones: 3,
            held_by: Some("writes of d that may still come".into()),
            ..DeadStatus::default()
        };
        let report = Collected {
            tree: "orders".into(),
            dry_run: false,
            before: held("0", 3 << 20),
            after: held("500", 1 << 20),
            trimmed_records: 500,
            trimmed_bytes: 2 << 20,
            held_by: Some(HeldBy { consumer: "peer b".into(), position: "510".into(), bytes: 1 << 20 }),
            checkpoint: "890".into(),
            snapshots: 0,
            consumers: vec![
                consumer("peer b", "holds", Some("510"), 1 << 20),
                consumer("peer c", "fell_off", None, 0),
            ],
            reaped: Reaped { tombstones: 7, expired: 1, left, ..Reaped::default() },
        };
        let said = text(&report);
        for part in [
            "orders trimmed 500 records, 2.0 MiB",
            "after   500..900",
            "held by peer b from 510 on, 1.0 MiB",
            "peer c    fell off: seed it anew",
            "forgot 7 tombstones, 1 expired keys",
            "left 3 tombstones, 0 expired keys, 0 deleted ranges, kept by writes of d",
        ] {
            assert!(said.contains(part), "{part} in\n{said}");
        }
    }
}
