//! `dead-letters`: what a tree cannot apply, or a sink's destination does not take.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::Failure;
use super::client::{Client, Connection, segment};
use super::table::Table;

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List the records that a tree cannot apply, or with --sink those that a destination does not take
    List(ListArgs),
    /// Show one record, with its bytes
    Show(LetterArgs),
    /// Apply records after all, once what was wrong with them is mended: the same checks are made again
    Replay(ReplayArgs),
    /// Give a record up: it is never applied on this cluster, or never delivered
    Drop(LetterArgs),
}

/// Whose dead letters.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The tree
    tree: String,
    /// Those of this sink of the tree
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// One dead letter.
#[derive(Debug, Args)]
pub(crate) struct LetterArgs {
    /// The tree
    tree: String,
    /// Its identity, as the list shows it: ORIGIN/PARTITION/OFFSET
    dot: String,
    /// One of this sink of the tree
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// One dead letter, or all.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The tree
    tree: String,
    /// Its identity, as the list shows it: ORIGIN/PARTITION/OFFSET
    #[arg(required_unless_present = "all")]
    dot: Option<String>,
    /// Every one of the tree, up to the first that still cannot be applied
    #[arg(long, conflicts_with = "dot")]
    all: bool,
    /// One of this sink of the tree: refused, with what to do instead
    #[arg(long, value_name = "SINK", requires = "dot")]
    sink: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn dead_letters(command: &DeadLettersCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        DeadLettersCommand::List(args) => list(args, out),
        DeadLettersCommand::Show(args) => {
            let shown = Client::new(&args.connection)?.json(
                &path(&args.tree, args.sink.as_deref(), &args.dot)?,
                &query(&args.tree, args.sink.as_deref()),
            )?;
            if args.connection.json {
                writeln!(out, "{shown}")?;
                return Ok(());
            }
            for (name, value) in shown.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
            {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                writeln!(out, "{name:<14} {value}")?;
            }
            Ok(())
        }
        DeadLettersCommand::Replay(args) => replay(args, out),
        DeadLettersCommand::Drop(args) => {
            let sink = args.sink.as_deref();
            let path = path(&args.tree, sink, &args.dot)?;
            Client::new(&args.connection)?.order("DELETE", &path, &query(&args.tree, sink), None)?;
            let told = serde_json::json!({"dropped": [args.dot]});
            let said = match sink {
                Some(sink) => format!("dropped {}: {sink} never gets it", args.dot),
                None => format!("dropped {}: it is never applied on this cluster", args.dot),
            };
            tell(args.connection.json, &told, &said, out)
        }
    }
}

fn replay(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (client, sink) = (Client::new(&args.connection)?, args.sink.as_deref());
    let dots = match &args.dot {
        Some(dot) => vec![dot.clone()],
        None => letters(&client, &args.tree, None)?.iter().filter_map(|letter| text(letter, "dot")).collect(),
    };
    for dot in &dots {
        let path = format!("{}/replay", path(&args.tree, sink, dot)?);
        client.order("POST", &path, &query(&args.tree, sink), None)?;
    }
    let said = match dots.as_slice() {
        [] => "no dead letters".to_owned(),
        dots => format!("replayed {}; sinks that have passed their place do not see them", dots.join(", ")),
    };
    tell(args.connection.json, &serde_json::json!({"replayed": dots}), &said, out)
}

fn tell(json: bool, told: &Value, said: &str, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        writeln!(out, "{told}")?;
    } else {
        writeln!(out, "{said}")?;
    }
    Ok(())
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let letters = letters(&Client::new(&args.connection)?, &args.tree, args.sink.as_deref())?;
    if args.connection.json {
        writeln!(out, "{}", Value::from(letters))?;
        return Ok(());
    }
    if letters.is_empty() {
        writeln!(out, "no dead letters")?;
        return Ok(());
    }
    let mut table = Table::new(["DOT", "OP", "KEY", "BYTES", "REASON"]);
    for letter in &letters {
        let key = text(letter, "key").or_else(|| Some(format!("base64:{}", text(letter, "key_base64")?)));
        let bytes = letter.get("bytes").or_else(|| letter.get("value_bytes")).map(Value::to_string);
        let reason = text(letter, "reason").or_else(|| text(letter, "error"));
        let row = [text(letter, "dot"), text(letter, "op"), key, bytes, reason];
        table.row(row.map(|value| value.unwrap_or_else(|| "-".to_owned())));
    }
    write!(out, "{table}")?;
    Ok(())
}

fn letters(client: &Client, tree: &str, sink: Option<&str>) -> Result<Vec<Value>, Failure> {
    let raw = match sink {
        Some(sink) => {
            client.json(&format!("/v1/admin/dead-letters/{}", segment(sink)), &[("tree", tree.as_bytes())])?
        }
        None => client.json(&format!("/v1/admin/trees/{}/dead-letters", segment(tree)), &[])?,
    };
    Ok(raw.get("dead_letters").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn text(letter: &Value, name: &str) -> Option<String> {
    letter.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// The parameters of an order about a letter.
fn query<'a>(tree: &'a str, sink: Option<&str>) -> Vec<(&'static str, &'a [u8])> {
    sink.map(|_| ("tree", tree.as_bytes())).into_iter().collect()
}

/// The resource of one letter, of a tree or of one of its sinks.
fn path(tree: &str, sink: Option<&str>, dot: &str) -> Result<String, Failure> {
    let parts: Vec<&str> = dot.split('/').collect();
    let [origin, partition, offset] = parts.as_slice() else {
        return Err(Failure::usage(format!("{dot:?} is no dead letter; give ORIGIN/PARTITION/OFFSET")));
    };
    let whose = match sink {
        Some(sink) => format!("dead-letters/{}", segment(sink)),
        None => format!("trees/{}/dead-letters", segment(tree)),
    };
    Ok(format!("/v1/admin/{whose}/{}/{}/{}", segment(origin), segment(partition), segment(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_named_by_three_parts() {
        let found = |sink| path("orders", sink, "eu-west/3/17").ok();
        assert_eq!(found(None).as_deref(), Some("/v1/admin/trees/orders/dead-letters/eu-west/3/17"));
        assert_eq!(found(Some("kafka")).as_deref(), Some("/v1/admin/dead-letters/kafka/eu-west/3/17"));
        for bad in ["", "3/17", "a/b/c/d"] {
            assert!(path("orders", None, bad).is_err(), "{bad}");
        }
    }
}
