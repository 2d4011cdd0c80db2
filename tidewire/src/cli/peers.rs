//! `peers`: the clusters that a server exchanges writes with, and orders about them.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Failure;
use super::client::{Client, Connection, segment};
use super::status::{fetch, peers_table};
use super::table::{Table, bytes_for_people};
use crate::status::{Member, PeerSource};

/// What can be done with peers.
#[derive(Debug, Subcommand)]
pub(crate) enum PeersCommand {
    /// List the links with their state and lag, and the peers
    List(Connection),
    /// Exchange writes with another cluster, also after a restart
    Add(AddPeerArgs),
    /// Stop the links with a peer until it is resumed, also over restarts; the log is held for it
    Pause(PeerArgs),
    /// End a pause, or let a cluster return that was sealed out
    Resume(PeerArgs),
    /// Drop the links with a peer and dial again; forgets what was noted against it
    Restart(PeerArgs),
    /// Take a snapshot of a tree, or of all, from a cluster: after files were put back from a copy
    Reseed(ReseedArgs),
    /// End the exchange with a cluster and free what it holds of the logs
    Remove(RemovePeerArgs),
    /// Count a cluster that is away out of everything: nothing is held for it, nothing waits for it
    Seal(PeerArgs),
}

/// A peer that is to be.
#[derive(Debug, Args)]
pub(crate) struct AddPeerArgs {
    /// The other cluster's id
    id: String,
    /// Its replication address, as http://HOST:PORT; without it, only receive from it
    peer_url: Option<String>,
    /// Only send to it: it never sends its own writes here, and nothing waits for them
    #[arg(long, requires = "peer_url")]
    send_only: bool,
    /// Exchange only these trees
    #[arg(long = "tree", value_name = "TREE")]
    trees: Vec<String>,
    /// Also ship what came from elsewhere: all of it, or what the peer asks for
    #[arg(long, value_name = "true|on_demand", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true")]
    forward: String,
    #[command(flatten)]
    connection: Connection,
}

/// From whom a snapshot is taken.
#[derive(Debug, Args)]
pub(crate) struct ReseedArgs {
    /// The other cluster's id
    id: String,
    /// Only this tree; else every tree that is exchanged with it
    #[arg(long, value_name = "TREE")]
    tree: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// A peer that is to go.
#[derive(Debug, Args)]
pub(crate) struct RemovePeerArgs {
    /// The other cluster's id
    id: String,
    /// Also one that the configuration file lists, though it comes back with the next start or reload
    #[arg(long)]
    until_restart: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A peer of a server.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// The other cluster's id
    id: String,
    #[command(flatten)]
    connection: Connection,
}

/// What a server answers to an order about a peer.
#[derive(Debug, Deserialize)]
struct Done {
    #[serde(default)]
    freed_bytes: u64,
}

pub(crate) fn run(command: &PeersCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        PeersCommand::List(connection) => list(connection, out),
        PeersCommand::Add(args) => add(args, out),
        PeersCommand::Pause(args) => {
            order(args, "pause", out, |_| format!("paused {}; the log is held for it", args.id))
        }
        PeersCommand::Resume(args) => order(args, "resume", out, |_| format!("resumed {}", args.id)),
        PeersCommand::Restart(args) => order(args, "restart", out, |_| format!("restarted {}", args.id)),
        PeersCommand::Seal(args) => order(args, "seal", out, |freed| {
            format!("sealed {} out; {freed} of the log are no longer held for it", args.id)
        }),
        PeersCommand::Reseed(args) => reseed(args, out),
        PeersCommand::Remove(args) => remove(args, out),
    }
}

fn list(connection: &Connection, out: &mut dyn Write) -> Result<(), Failure> {
    let (raw, status) = fetch(connection)?;
    if connection.json {
        let part = |name: &str| raw.get(name).cloned().unwrap_or(Value::Null);
        writeln!(out, "{}", json!({"peers": part("peers"), "members": part("members")}))?;
        return Ok(());
    }
    if status.members.is_empty() && status.peers.is_empty() {
        writeln!(out, "no peers: add [[peers]] to the configuration file, or `tidewire peers add`")?;
        return Ok(());
    }
    write!(out, "{}", peers_table(&status.peers))?;
    if !status.members.is_empty() {
        writeln!(out)?;
        write!(out, "{}", members_table(&status.members))?;
    }
    Ok(())
}

fn members_table(members: &[Member]) -> Table {
    let mut table = Table::new(["PEER", "FROM", "URL", "SEND", "FORWARD", "ORDERED"]);
    for member in members {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ordered = [(member.paused, "paused"), (member.sealed, "sealed out")];
        let ordered: Vec<&str> = ordered.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        let source = match member.source {
            PeerSource::Listed => "configuration",
            PeerSource::Kept => "peers add",
            PeerSource::None => "-",
        };
        let peer = member.peer.as_ref();
        table.row([
            member.id.clone(),
            source.to_owned(),
            text(peer.and_then(|peer| peer.url.clone())),
            text(peer.map(|peer| peer.send.to_string())),
            text(peer.map(|peer| peer.forward.to_string())),
            if ordered.is_empty() { "-".to_owned() } else { ordered.join(", ") },
        ]);
    }
    table
}

fn add(args: &AddPeerArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let forward = match args.forward.as_str() {
        "true" => json!(true),
        "false" => json!(false),
        other => json!(other),
    };
    let peer = json!({
        "id": args.id, "url": args.peer_url, "send": args.peer_url.is_some(), "trees": args.trees,
        "forward": forward, "receive": !args.send_only,
    });
    let answer = Client::new(&args.connection)?.order(
        "POST",
        "/v1/admin/peers",
        &[],
        Some(peer.to_string().into_bytes()),
    )?;
    say(&args.connection, &answer, out, |_| format!("added {}, also for after a restart", args.id))
}

fn remove(args: &RemovePeerArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let path = format!("/v1/admin/peers/{}", segment(&args.id));
    let query: &[(&str, &[u8])] = if args.until_restart { &[("until_restart", b"true")] } else { &[] };
    let answer = Client::new(&args.connection)?.order("DELETE", &path, query, None)?;
    say(&args.connection, &answer, out, |freed| {
        format!("removed {}; {freed} of the log are no longer held for it", args.id)
    })
}

fn reseed(args: &ReseedArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let path = format!("/v1/admin/peers/{}/reseed", segment(&args.id));
    let query: Vec<(&str, &[u8])> = args.tree.iter().map(|tree| ("tree", tree.as_bytes())).collect();
    let answer = Client::new(&args.connection)?.order("POST", &path, &query, None)?;
    say(&args.connection, &answer, out, |_| {
        format!("asked {} for a snapshot; status shows how far it is", args.id)
    })
}

fn order(
    args: &PeerArgs,
    action: &str,
    out: &mut dyn Write,
    done: impl FnOnce(&str) -> String,
) -> Result<(), Failure> {
    let path = format!("/v1/admin/peers/{}/{action}", segment(&args.id));
    let answer = Client::new(&args.connection)?.order("POST", &path, &[], None)?;
    say(&args.connection, &answer, out, done)
}

/// The answer as it is, or in words with the bytes that were freed.
fn say(
    connection: &Connection,
    answer: &Value,
    out: &mut dyn Write,
    words: impl FnOnce(&str) -> String,
) -> Result<(), Failure> {
    if connection.json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let freed = Done::deserialize(answer).map_or(0, |done| done.freed_bytes);
    writeln!(out, "{}", words(&bytes_for_people(freed)))?;
    Ok(())
}
