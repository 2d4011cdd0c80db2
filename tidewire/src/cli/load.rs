//! `load`: a file of JSON lines into a tree, in batches, each durable before the next begins.
//!
//! A line is written once or the command says which one was not; what failed is taken up again with `--from-line`.
//! Loading a line twice leaves the tree as loading it once.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Failure;
use super::client::{Client, Connection, tree_path};

/// Lines of one batch, at most.
const BATCH_LINES: usize = 1_000;
/// Bytes of one batch, about: below what a server takes in one request, whatever a line holds.
const BATCH_BYTES: usize = 1024 * 1024;
/// Waits before a batch is sent again that a busy or restarting server did not take; about half a minute together.
const WAITS: [u64; 7] = [100, 300, 1_000, 3_000, 6_000, 9_000, 12_000];
/// Where nobody watches a terminal, progress is a line so often.
const REPORT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The tree
    tree: String,
    /// Lines like {"key":"k","value":"v"}; key_base64 and value_base64 for other bytes; - reads standard input
    file: PathBuf,
    /// Start with this line, the first being 1: what an interrupted load names
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    #[command(flatten)]
    connection: Connection,
}

/// One line, and one operation of a batch.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

#[derive(Debug, Serialize)]
struct Operation {
    op: &'static str,
    #[serde(flatten)]
    line: Line,
}

/// Lines that go together. No key occurs twice, so that they can share a version.
#[derive(Debug, Default)]
struct Batch {
    ops: Vec<Operation>,
    /// The number of each operation's line.
    numbers: Vec<u64>,
    keys: HashSet<(bool, String)>,
    bytes: usize,
}

impl Batch {
    fn takes(&self, key: &(bool, String), bytes: usize) -> bool {
        self.ops.is_empty()
            || (self.ops.len() < BATCH_LINES && self.bytes + bytes <= BATCH_BYTES && !self.keys.contains(key))
    }
}

/// Where the load is, shown as it goes.
struct Progress {
    bar: ProgressBar,
    terminal: bool,
    reported: Duration,
}

impl Progress {
    fn new(bytes: Option<u64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = match bytes {
            Some(bytes) => ProgressBar::new(bytes),
            None => ProgressBar::no_length(),
        };
        let shape = if bytes.is_some() {
            "{bar:32} {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {msg}  {eta} left"
        } else {
            "{spinner} {binary_bytes}  {msg}  {elapsed}"
        };
        bar.set_style(ProgressStyle::with_template(shape).expect("the template is one of two above"));
        if !terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self { bar, terminal, reported: Duration::ZERO }
    }

    fn show(&mut self, bytes: u64, lines: u64, next: u64) -> Result<(), Failure> {
        self.bar.set_position(bytes);
        let seconds = self.bar.elapsed().as_secs_f64().max(0.001);
        self.bar.set_message(format!("{lines} lines, {:.0}/s", lines as f64 / seconds));
        if !self.terminal && self.bar.elapsed() >= self.reported + REPORT {
            self.reported = self.bar.elapsed();
            let share = self.bar.length().filter(|length| *length > 0).map(|length| bytes * 100 / length);
            let share = share.map_or_else(String::new, |share| format!("{share} %, "));
            writeln!(std::io::stderr(), "tidewire: {share}{lines} lines written, next is line {next}")?;
        }
        Ok(())
    }
}

pub(crate) fn load(args: &LoadArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(&args.connection)?;
    let (mut input, length) = open(&args.file)?;
    let mut progress = Progress::new(length);
    let (mut batch, mut text) = (Batch::default(), Vec::new());
    let (mut number, mut read, mut written) = (0_u64, 0_u64, 0_u64);
    let send = |batch: &mut Batch, written: &mut u64| -> Result<(), Failure> {
        write_batch(&client, &args.tree, batch)?;
        *written += batch.ops.len() as u64;
        *batch = Batch::default();
        Ok(())
    };
    loop {
        text.clear();
        let bytes = input.read_until(b'\n', &mut text).map_err(|error| unreadable(&args.file, &error))?;
        number += 1;
        read += bytes as u64;
        if bytes == 0 {
            break;
        }
        if number < args.from_line || text.trim_ascii().is_empty() {
            continue;
        }
        let line = match parse(&text) {
            Ok(line) => line,
            Err(what) => {
                // What stands before it is written, so that the line alone is left to mend.
                send(&mut batch, &mut written)?;
                return Err(stopped(number, &what));
            }
        };
        let key =
            (line.key.is_some(), line.key.clone().or_else(|| line.key_base64.clone()).unwrap_or_default());
        if !batch.takes(&key, text.len()) {
            send(&mut batch, &mut written)?;
            progress.show(read, written, number)?;
        }
        batch.bytes += text.len();
        batch.keys.insert(key);
        batch.numbers.push(number);
        batch.ops.push(Operation { op: "set", line });
    }
    send(&mut batch, &mut written)?;
    progress.bar.finish_and_clear();
    let seconds = progress.bar.elapsed().as_secs_f64();
    if args.connection.json {
        writeln!(out, "{}", json!({"lines": written, "seconds": seconds}))?;
    } else {
        writeln!(out, "{written} lines written to {} in {seconds:.1} s", args.tree)?;
    }
    Ok(())
}

fn open(file: &PathBuf) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin().lock()), None));
    }
    #[expect(clippy::disallowed_methods, reason = "the command line has no Disk")]
    let opened = File::open(file);
    let opened = opened.map_err(|error| unreadable(file, &error))?;
    let length = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|known| known.len());
    Ok((Box::new(BufReader::with_capacity(256 * 1024, opened)), length))
}

fn unreadable(file: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: cannot be read: {error}", file.display()))
}

fn parse(text: &[u8]) -> Result<Line, String> {
    let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if line.key.is_some() == line.key_base64.is_some() {
        return Err("it needs key or key_base64, one of the two".to_owned());
    }
    if line.value.is_some() == line.value_base64.is_some() {
        return Err("it needs value or value_base64, one of the two".to_owned());
    }
    Ok(line)
}

fn stopped(line: u64, what: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!(
        "line {line}: {what}; what stands before it is written: mend it, and go on with --from-line {line}"
    ))
}

/// Writes a batch, again while the server is busy, full, or not there for a moment.
fn write_batch(client: &Client, tree: &str, batch: &Batch) -> Result<(), Failure> {
    let Some(first) = batch.numbers.first() else { return Ok(()) };
    let body = json!({"atomic": true, "ops": batch.ops}).to_string();
    let path = tree_path(tree, "batch");
    let mut waits = WAITS.iter();
    loop {
        let failure = match client.post_json(&path, body.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        if failure.is_servers()
            && let Some(wait) = waits.next()
        {
            #[expect(clippy::disallowed_methods, reason = "the command line has no runtime, and waits")]
            std::thread::sleep(Duration::from_millis(*wait));
            continue;
        }
        let at = refused_operation(&failure.to_string()).and_then(|at| batch.numbers.get(at));
        return Err(match at {
            Some(line) => failure.with(&format!(
                "line {line} was refused, and with it its batch; mend it, and go on with --from-line {first}"
            )),
            None => failure.with(&format!("go on with --from-line {first}")),
        });
    }
}

/// The operation that a server's refusal names, as `ops[N]`.
fn refused_operation(message: &str) -> Option<usize> {
    let (_, rest) = message.split_once("ops[")?;
    rest.split_once(']')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_key_and_one_value() {
        for good in [r#"{"key":"k","value":""}"#, r#"{"key_base64":"/w==","value_base64":"/w=="} "#] {
            parse(good.as_bytes()).expect(good);
        }
        for bad in [
            "",
            "{}",
            r#"{"key":"k"}"#,
            r#"{"value":"v"}"#,
            r#"{"key":"k","key_base64":"aw==","value":"v"}"#,
            r#"{"key":"k","value":"v","vlaue":"v"}"#,
            r#"["k","v"]"#,
        ] {
            parse(bad.as_bytes()).expect_err(bad);
        }
    }

    #[test]
    fn a_key_that_comes_again_starts_a_batch() {
        let key = |text: &str| (true, text.to_owned());
        let mut batch = Batch::default();
        assert!(batch.takes(&key("a"), BATCH_BYTES + 1), "a large line has a batch of its own");
        batch.ops.push(Operation { op: "set", line: parse(br#"{"key":"a","value":""}"#).expect("fine") });
        batch.keys.insert(key("a"));
        assert!(batch.takes(&key("b"), 10));
        assert!(!batch.takes(&key("a"), 10));
        assert!(!batch.takes(&key("b"), BATCH_BYTES + 1));
    }

    #[test]
    fn the_refused_operation_is_found_in_the_answer() {
        assert_eq!(refused_operation("http://h: ops[17]: a key has at least one byte"), Some(17));
        assert_eq!(refused_operation("the disk is full"), None);
    }
}
