//! [`Turn`]: one measurement of one engine, in a process of its own: what one engine does in the background, keeps in
//! memory, or sets for its whole process is nobody else's.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::perform::perform;

/// What is done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Each writer writes, waits for the answer, and writes again.
    Closed { writers: usize, value_bytes: usize, seconds: f64 },
    /// One writer, so many records in one write.
    Batches { records: usize, value_bytes: usize, seconds: f64 },
    /// So many writes a second, whether or not the former ones have been answered.
    Open { per_second: f64, value_bytes: usize, seconds: f64 },
    /// So many records in batches of 1,000.
    Fill { records: u64, value_bytes: usize },
    /// Everything is read once.
    Read(Reading),
    /// Opens the log, writes one record, and waits to be killed.
    Reopen(Reopening),
    /// Open loop beside other things.
    Beside { per_second: f64, beside: Beside, seconds: f64 },
    /// A closed loop over several trees.
    Busy { trees: usize, writers: usize, seconds: f64 },
}

/// How a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// Every record, checksums compared, headers parsed.
    All,
    /// The records whose key begins with `f`: one in a hundred.
    Filtered,
    /// The files, from the first byte to the last, nothing looked at.
    Bytes,
}

/// How a log or tree is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reopening {
    /// The log alone.
    Log,
    /// The tree, by whatever it finds: a snapshot, or the log.
    Tree,
}

/// What goes on beside an open loop.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub partitions: u16,
    pub log_bytes: u64,
    pub followers: usize,
    pub idle_trees: usize,
}

/// One turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    pub engine: Engine,
    pub dir: PathBuf,
    pub work: Work,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Records.
    pub records: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// All writes that were answered, those of the warm-up too.
    pub writes: u64,
    /// Syncs, where the engine counts them itself.
    pub syncs: Option<u64>,
}

impl Figures {
    pub fn per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }
}

const MARK: &str = "FIGURES ";

impl Turn {
    /// Runs it in a child process and waits for its figures. A process that was to be killed is killed.
    pub fn run(&self) -> Outcome<Figures> {
        self.run_under(None)
    }

    /// The same under another program, for instance one that counts system calls.
    pub fn run_under(&self, program: Option<&[&str]>) -> Outcome<Figures> {
        let exe = std::env::current_exe()?;
        let mut command = match program {
            Some([first, rest @ ..]) => {
                let mut command = Command::new(first);
                command.args(rest).arg(exe);
                command
            }
            _ => Command::new(exe),
        };
        command.arg("turn").arg(serde_json::to_string(self)?);
        command.env("WALRUS_DATA_DIR", &self.dir).env("WALRUS_QUIET", "1");
        std::fs::create_dir_all(&self.dir)?;
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let figures = first_figures(&mut child);
        if matches!(self.work, Work::Reopen(_)) {
            child.kill()?;
        }
        let status = child.wait()?;
        figures?.ok_or_else(|| {
            format!("{} gave no figures for {:?}: {status}", self.engine.name(), self.work).into()
        })
    }
}

fn first_figures(child: &mut Child) -> Outcome<Option<Figures>> {
    let stdout = child.stdout.take().ok_or("stdout is a pipe")?;
    let (mut lines, mut found) = (BufReader::new(stdout).lines(), None);
    while let Some(line) = lines.next().transpose()? {
        if let Some(text) = line.strip_prefix(MARK) {
            found = Some(serde_json::from_str(text)?);
            break;
        }
    }
    // Whatever else it prints must not fill the pipe; it is closed here.
    Ok(found)
}

/// Does one turn, and prints what came out for the process that waits. Ends the process, or waits to be killed.
pub fn serve(text: &str) -> Outcome<()> {
    let turn: Turn = serde_json::from_str(text)?;
    let figures = perform(&turn)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{MARK}{}", serde_json::to_string(&figures)?)?;
    stdout.flush()?;
    while matches!(turn.work, Work::Reopen(_)) {
        std::thread::park();
    }
    // Threads of engines that are still at work end with the process.
    std::process::exit(0);
}
