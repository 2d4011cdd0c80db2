//! `status`: a server's own account of itself, as tables for people or as the raw JSON.

use std::io::Write;

use serde::Deserialize;

use super::client::{Client, Connection};
use super::table::{Table, bytes_for_people, seconds_for_people};
use super::{Failure, sinks};
use crate::status::{Direction, Lag, PeerState, PeerStatus, Status, TreeStatus};

pub(crate) fn status(connection: &Connection, out: &mut dyn Write) -> Result<(), Failure> {
    let (raw, status) = fetch(connection)?;
    if connection.json {
        writeln!(out, "{raw}")?;
        return Ok(());
    }
    let uptime = seconds_for_people(status.uptime_seconds);
    let health = serde_json::to_value(status.health.state).unwrap_or_default();
    writeln!(
        out,
        "cluster {}  health {}  version {}  up {uptime}  boot {}",
        status.cluster,
        health.as_str().unwrap_or_default(),
        status.version,
        status.boot
    )?;
    let address = |bound: &Option<String>| bound.clone().unwrap_or_else(|| "off".to_owned());
    writeln!(
        out,
        "http {}  replication {}",
        address(&status.listen.http),
        address(&status.listen.replication)
    )?;
    for reason in &status.health.reasons {
        writeln!(out, "! {reason}")?;
    }
    writeln!(out)?;
    write!(out, "{}", trees_table(&status.trees))?;
    if !status.peers.is_empty() {
        writeln!(out)?;
        write!(out, "{}", peers_table(&status.peers))?;
    }
    if status.trees.iter().any(|tree| !tree.waiting.is_empty()) {
        writeln!(out)?;
        write!(out, "{}", waiting_table(&status.trees))?;
    }
    if !status.sinks.is_empty() {
        writeln!(out)?;
        write!(out, "{}", sinks::table(&status.sinks))?;
    }
    Ok(())
}

pub(super) fn fetch(connection: &Connection) -> Result<(serde_json::Value, Status), Failure> {
    let client = Client::new(connection)?;
    let raw = client.json("/v1/status", &[])?;
    let status = Status::deserialize(&raw).map_err(|error| client.not_understood(&error))?;
    Ok((raw, status))
}

fn trees_table(trees: &[TreeStatus]) -> Table {
    let mut table = Table::new([
        "TREE",
        "PARTITIONS",
        "ENTRIES",
        "DEAD",
        "LOG",
        "RETAINED",
        "ON DISK",
        "PINNED BY",
        "SNAPSHOT",
    ]);
    for tree in trees {
        let log = &tree.log;
        table.row([
            tree.name.clone(),
            tree.partitions.to_string(),
            tree.entries.to_string(),
            (tree.dead.tombstones + tree.dead.expired).to_string(),
            format!("{}..{}", log.first, log.next),
            bytes_for_people(log.retained_bytes),
            bytes_for_people(log.physical_bytes),
            log.pinned_by.as_ref().map_or_else(
                || "-".to_owned(),
                |pin| format!("{} ({})", pin.consumer, bytes_for_people(pin.bytes)),
            ),
            tree.snapshot.as_ref().map_or_else(
                || "-".to_owned(),
                |last| {
                    let (bytes, age) = (bytes_for_people(last.bytes), seconds_for_people(last.age_seconds));
                    format!("..{} ({bytes}, {age} old)", last.covered)
                },
            ),
        ]);
    }
    table
}

/// What waits for writes that have not come, tree by tree.
fn waiting_table(trees: &[TreeStatus]) -> Table {
    let mut table = Table::new([
        "WAITING",
        "TREE",
        "BYTES",
        "SINCE (MS)",
        "FOR WRITES OF",
        "UP TO",
        "FROM",
        "ASKED",
        "HELD BY LOGS OF",
    ]);
    for tree in trees {
        for held in &tree.waiting {
            let from = held.waits_for.from.iter();
            let from: Vec<String> =
                from.map(|from| format!("{} ({})", from.peer, state_for_people(from.state))).collect();
            let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
            table.row([
                held.origin.clone(),
                tree.name.clone(),
                bytes_for_people(held.bytes),
                held.since_ms.to_string(),
                held.waits_for.origin.clone(),
                held.waits_for.hlc.clone(),
                list(&from),
                if held.waits_for.asked { "relays" } else { "-" }.to_owned(),
                list(&held.pins.logs_of),
            ]);
        }
    }
    table
}

pub(super) fn peers_table(peers: &[PeerStatus]) -> Table {
    let mut table = Table::new(["PEER", "TREE", "DIRECTION", "STATE", "BEHIND", "REASON"]);
    for peer in peers {
        table.row([
            peer.id.clone(),
            peer.tree.clone(),
            direction_for_people(peer.direction).to_owned(),
            state_for_people(peer.state),
            lag_for_people(peer.lag),
            peer.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

fn direction_for_people(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "send",
        Direction::Receive => "receive",
    }
}

fn state_for_people(state: PeerState) -> String {
    state.name().replace('_', " ")
}

pub(super) fn lag_for_people(lag: Lag) -> String {
    format!("{} entries, {}, {:.3} s", lag.entries, bytes_for_people(lag.bytes), lag.seconds)
}
