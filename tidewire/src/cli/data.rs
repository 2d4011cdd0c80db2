//! `put`, `get`, `delete`, `delete-range`, `scan`, `watch`: the data of a tree over HTTP.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::json;
use tidewire_core::units::HumanDuration;

use super::Failure;
use super::client::{Client, Connection, Written, tree_path};

/// Entries that one request of a scan asks for.
const SCAN_PAGE: &[u8] = b"1000";

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The tree
    tree: String,
    /// The key: any bytes
    key: OsString,
    /// The value: any bytes, or - to read it from standard input
    value: OsString,
    /// How long the value is shown, in whole seconds: 30s, 5m, 12h
    #[arg(long, value_name = "DURATION")]
    ttl: Option<HumanDuration>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    /// The tree
    tree: String,
    /// The first key to delete
    from: OsString,
    /// The key after the last one to delete
    to: OsString,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The tree
    tree: String,
    /// The key: any bytes
    key: OsString,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// The tree
    tree: String,
    /// Only keys that start with this
    #[arg(long, default_value = "")]
    prefix: OsString,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The tree
    tree: String,
    /// Where to start: now, beginning, or the cursor of a line seen before
    #[arg(long, default_value = "now", value_name = "now|beginning|CURSOR")]
    from: String,
    /// Also print a line when everything up to a time is complete
    #[arg(long)]
    resolved: bool,
    /// What a line looks like
    #[arg(long, value_enum, default_value = "json")]
    format: WatchFormat,
    #[command(flatten)]
    connection: Connection,
}

/// What a line of `watch` looks like.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WatchFormat {
    /// A JSON object for each change
    Json,
}

pub(crate) fn put(args: PutArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let mut value = args.value.into_vec();
    if value == b"-" {
        value.clear();
        std::io::stdin().lock().read_to_end(&mut value)?;
    }
    let ttl = args.ttl.map(whole_seconds).transpose()?;
    let written = client.put(&args.tree, &args.key.into_vec(), &value, ttl)?;
    print_written(&args.connection, &written, out)
}

pub(crate) fn delete(args: KeyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let written = Client::new(&args.connection)?.delete(&args.tree, &args.key.into_vec())?;
    print_written(&args.connection, &written, out)
}

pub(crate) fn delete_range(args: RangeArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let written = client.delete_range(&args.tree, &args.from.into_vec(), &args.to.into_vec())?;
    print_written(&args.connection, &written, out)
}

fn whole_seconds(ttl: HumanDuration) -> Result<u64, Failure> {
    let duration = ttl.get();
    if duration.as_secs() == 0 || duration.subsec_nanos() > 0 {
        return Err(Failure::usage(format!("--ttl {ttl}: a whole number of seconds, at least 1s")));
    }
    Ok(duration.as_secs())
}

fn print_written(connection: &Connection, written: &Written, out: &mut dyn Write) -> Result<(), Failure> {
    if connection.json {
        writeln!(out, "{}", json!({"version": written.version, "token": written.token}))?;
    } else {
        writeln!(out, "{}", written.version)?;
    }
    Ok(())
}

pub(crate) fn get(args: KeyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let key = args.key.into_vec();
    let (value, version) = Client::new(&args.connection)?.get(&args.tree, &key)?;
    if args.connection.json {
        let mut entry = serde_json::Map::new();
        insert_bytes(&mut entry, "key", &key);
        insert_bytes(&mut entry, "value", &value);
        entry.insert("version".to_owned(), version.into());
        writeln!(out, "{}", serde_json::Value::Object(entry))?;
        return Ok(());
    }
    // Bytes as they are, so that they can be piped; a terminal gets the end of its line.
    out.write_all(&value)?;
    if std::io::stdout().is_terminal() {
        writeln!(out)?;
    }
    Ok(())
}

fn insert_bytes(entry: &mut serde_json::Map<String, serde_json::Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => entry.insert(name.to_owned(), text.into()),
        Err(_) => entry.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// The parts of a scanned entry that a line of text shows.
#[derive(Deserialize)]
struct Entry {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

pub(crate) fn scan(args: ScanArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let path = tree_path(&args.tree, "keys");
    let prefix = args.prefix.into_vec();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut query: Vec<(&str, &[u8])> = vec![("prefix", &prefix), ("limit", SCAN_PAGE)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let mut page = client.json(&path, &query)?;
        let entries = page.get_mut("entries").and_then(serde_json::Value::as_array_mut).map(std::mem::take);
        let entries = entries.ok_or_else(|| client.not_understood(&"a scan without entries"))?;
        let mut last = None;
        for value in entries {
            let entry = Entry::deserialize(&value).map_err(|error| client.not_understood(&error))?;
            let key = bytes_of(&client, entry.key, entry.key_base64)?;
            if args.connection.json {
                writeln!(out, "{value}")?;
            } else {
                out.write_all(&key)?;
                out.write_all(b"\t")?;
                out.write_all(&bytes_of(&client, entry.value, entry.value_base64)?)?;
                out.write_all(b"\n")?;
            }
            last = Some(key);
        }
        let more =
            ["next", "next_base64"].iter().any(|name| page.get(name).is_some_and(|next| !next.is_null()));
        if !more || last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

fn bytes_of(client: &Client, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Failure> {
    match (text, base64) {
        (_, Some(base64)) => STANDARD.decode(base64).map_err(|error| client.not_understood(&error)),
        (Some(text), None) => Ok(text.into_bytes()),
        (None, None) => Err(client.not_understood(&"an entry without key or value")),
    }
}

pub(crate) fn watch(args: &WatchArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let format = args.format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let start = match args.from.as_str() {
        word @ ("now" | "beginning") => ("from", word.as_bytes()),
        cursor => ("cursor", cursor.as_bytes()),
    };
    let resolved = if args.resolved { "true" } else { "false" };
    let query = [start, ("format", format.as_bytes()), ("resolved", resolved.as_bytes())];
    let mut stream = client.stream(&tree_path(&args.tree, "changes"), &query)?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = stream.read_until(b'\n', &mut line).map_err(|error| client.lost(&error))?;
        if length == 0 || !line.ends_with(b"\n") {
            return Err(client.lost(&"the server ended the stream"));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        out.write_all(&line)?;
        out.flush()?;
    }
}
