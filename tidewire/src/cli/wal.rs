//! `wal`: the files of a stopped server: what is in them, whether they read, and a cut where they do not.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tidewire_core::disk::{DirLock, Disk, RealDisk};
use tidewire_core::error::Error;
use tidewire_core::id::{Offset, PartitionId};
use tidewire_core::wal::file::{Checkup, Damage, LogFiles, SegmentReport};

use super::Failure;
use super::table::{Table, bytes_for_people};

/// How far above a log its data directory may be.
const LEVELS: usize = 4;

#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
    /// Show segments, positions, origins and sizes
    Inspect(FilesArgs),
    /// Read every group and compare its checksums; exit 1 at the first damage
    Verify(FilesArgs),
    /// Say what a cut at the first damage would give up; cut only with --cut
    Repair {
        #[command(flatten)]
        files: FilesArgs,
        /// Cut there. What goes is kept beside the log, in files that end in .cut
        #[arg(long)]
        cut: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// A data directory, the directory of a tree, or that of its log
    dir: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The logs below a directory, while no server uses them.
struct Logs {
    logs: Vec<LogFiles>,
    _lock: Option<DirLock>,
}

pub(crate) fn run(command: &WalCommand, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    let (WalCommand::Inspect(files) | WalCommand::Verify(files) | WalCommand::Repair { files, .. }) = command;
    let found = Logs::below(&files.dir, !matches!(command, WalCommand::Repair { cut: true, .. }))?;
    let mut code = ExitCode::SUCCESS;
    for log in &found.logs {
        let checkup = check(log)?;
        let repaired = match (command, &checkup.damage) {
            (WalCommand::Repair { cut: true, .. }, Some(damage)) => {
                Some(log.cut(damage).map_err(Error::from)?)
            }
            _ => None,
        };
        if checkup.damage.is_some() && repaired.is_none() {
            code = ExitCode::FAILURE;
        }
        if files.json {
            writeln!(out, "{}", as_json(log, &checkup, repaired.as_deref()))?;
            continue;
        }
        if matches!(command, WalCommand::Inspect(_)) {
            inspect(log, &checkup, out)?;
        }
        summary(log, &checkup, out)?;
        if let Some(damage) = &checkup.damage {
            explain(damage, matches!(command, WalCommand::Repair { .. }), repaired.as_deref(), out)?;
        }
    }
    Ok(code)
}

impl Logs {
    fn below(dir: &Path, reading: bool) -> Result<Self, Failure> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let there = |path: &Path| disk.exists(path).unwrap_or(false);
        // One whose manifest is gone is a log all the same: opening it says so.
        let segments =
            |path: &Path| disk.list(path).is_ok_and(|names| names.iter().any(|name| name.ends_with(".seg")));
        let of_log = |path: &Path| (there(&path.join("MANIFEST")) || segments(path)).then(|| path.to_owned());
        let mut found: Vec<PathBuf> = of_log(dir).or_else(|| of_log(&dir.join("wal"))).into_iter().collect();
        if found.is_empty() {
            let trees = dir.join("trees");
            let names = disk.list(&trees).unwrap_or_default();
            found = names.iter().filter_map(|name| of_log(&trees.join(name).join("wal"))).collect();
        }
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "{}: there is no log; name a data directory, the directory of a tree, or its wal directory",
                dir.display()
            )));
        }
        let lock = lock(&disk, dir, reading)?;
        let logs = found.iter().map(|path| LogFiles::open(disk.clone(), path).map_err(Error::from));
        Ok(Self { logs: logs.collect::<Result<_, Error>>()?, _lock: lock })
    }
}

/// Keeps servers out. A log that was copied somewhere has no lock beside it; where nothing can be written no server runs, and
/// what is only read needs none.
fn lock(disk: &Arc<dyn Disk>, dir: &Path, reading: bool) -> Result<Option<DirLock>, Failure> {
    let absolute = std::path::absolute(dir)?;
    let above = absolute.ancestors().take(LEVELS).map(|dir| dir.join("LOCK"));
    let Some(path) = above.into_iter().find(|path| disk.exists(path).unwrap_or(false)) else {
        return Ok(None);
    };
    match disk.lock(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(Failure::usage(format!("{} is held by a running server; stop it first", path.display())))
        }
        Err(error) if reading && error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(None),
        Err(error) => Err(Failure::usage(format!("{}: cannot be locked: {error}", path.display()))),
    }
}

fn check(log: &LogFiles) -> Result<Checkup, Failure> {
    let bar = ProgressBar::new(0);
    let shape = "{msg} {bar:32} {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}";
    bar.set_style(ProgressStyle::with_template(shape).expect("the template is a constant"));
    bar.set_message(log.manifest().tree.to_string());
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let checked = log.check(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(checked.map_err(Error::from)?)
}

fn inspect(log: &LogFiles, checkup: &Checkup, out: &mut dyn Write) -> Result<(), Failure> {
    let manifest = log.manifest();
    writeln!(
        out,
        "tree {}  cluster {}  incarnation {:016x}  {} partitions  merge {}",
        manifest.tree,
        manifest.cluster,
        manifest.incarnation.get(),
        manifest.partitions,
        manifest.merge
    )?;
    let mut table = Table::new(["SEGMENT", "FIRST", "NEXT", "GROUPS", "RECORDS", "BYTES", "FILE", "ORIGINS"]);
    for segment in &checkup.segments {
        let name = segment.file.file_name().map(|name| name.to_string_lossy().into_owned());
        table.row([
            name.unwrap_or_default(),
            segment.first_lsn.to_string(),
            segment.next_lsn.to_string(),
            segment.groups.to_string(),
            segment.records.to_string(),
            bytes_for_people(segment.bytes),
            bytes_for_people(segment.file_bytes),
            origins(segment),
        ]);
    }
    write!(out, "{table}")?;
    write!(out, "{}", ranges(checkup))?;
    Ok(())
}

/// What the log holds of each origin's partitions, from the first offset to the end, over all segments.
fn ranges(checkup: &Checkup) -> Table {
    let mut held: BTreeMap<(&str, PartitionId), (Offset, Offset, u64)> = BTreeMap::new();
    for range in checkup.segments.iter().flat_map(|segment| &segment.ranges) {
        let place = held.entry((&range.origin, range.partition)).or_insert((range.first, range.end, 0));
        *place = (place.0.min(range.first), place.1.max(range.end), place.2 + 1);
    }
    let mut table = Table::new(["ORIGIN", "PARTITION", "OFFSETS", "SEGMENTS"]);
    for ((origin, partition), (first, end, segments)) in held {
        table.row([
            origin.to_owned(),
            partition.to_string(),
            format!("{first}..{end}"),
            segments.to_string(),
        ]);
    }
    table
}

/// Each origin with how many partitions of it occur.
fn origins(segment: &SegmentReport) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for range in &segment.ranges {
        match counts.iter_mut().find(|(name, _)| *name == range.origin) {
            Some((_, count)) => *count += 1,
            None => counts.push((&range.origin, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    counts.join(", ")
}

fn summary(log: &LogFiles, checkup: &Checkup, out: &mut dyn Write) -> Result<(), Failure> {
    let verdict = if checkup.damage.is_some() { "DAMAGED" } else { "ok" };
    let trimmed = log.trimmed_to().map_or_else(String::new, |lsn| format!(", trimmed to {lsn}"));
    let tail = match checkup.tail_bytes {
        0 => String::new(),
        bytes => format!(", {} behind the last group that the next start cuts", bytes_for_people(bytes)),
    };
    writeln!(
        out,
        "{}: {verdict}: {} segments, {} groups, {} records, {}{trimmed}{tail}",
        log.manifest().tree,
        checkup.segments.len(),
        checkup.groups(),
        checkup.records(),
        bytes_for_people(checkup.bytes()),
    )?;
    Ok(())
}

fn explain(
    damage: &Damage,
    repairing: bool,
    cut: Option<&[PathBuf]>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let lost = damage.lost;
    writeln!(out, "  {} does not read at byte {}: {}", damage.file.display(), damage.at, damage.what)?;
    writeln!(
        out,
        "  the log reads up to position {}; behind that lie {} groups with {} records that read, in {}",
        damage.end,
        lost.groups,
        lost.records,
        bytes_for_people(lost.bytes)
    )?;
    match cut {
        Some(aside) => {
            writeln!(out, "  cut there; what was behind it is kept in:")?;
            for path in aside {
                writeln!(out, "    {}", path.display())?;
            }
            writeln!(
                out,
                "  acknowledged writes are gone from this log: peers that have them will say that this cluster has gone back; \
                 if a snapshot of the tree is newer, the server says so at its start"
            )?;
        }
        None if repairing => writeln!(
            out,
            "  put the tree's directory back from a copy if there is one; else --cut gives up what lies behind"
        )?,
        None => writeln!(out, "  put the tree's directory back from a copy, or see `tidewire wal repair`")?,
    }
    Ok(())
}

fn as_json(log: &LogFiles, checkup: &Checkup, cut: Option<&[PathBuf]>) -> Value {
    let manifest = log.manifest();
    let segments = checkup.segments.iter().map(|segment| {
        let ranges = segment.ranges.iter().map(|range| {
            json!({
                "origin": range.origin,
                "partition": range.partition.get(),
                "first": range.first.to_string(),
                "end": range.end.to_string(),
            })
        });
        json!({
            "file": segment.file.display().to_string(),
            "first": segment.first_lsn.to_string(),
            "next": segment.next_lsn.to_string(),
            "groups": segment.groups,
            "records": segment.records,
            "bytes": segment.bytes,
            "file_bytes": segment.file_bytes,
            "complete": segment.complete,
            "recycled": segment.recycled,
            "last_hlc": segment.last_hlc.to_string(),
            "ranges": ranges.collect::<Vec<_>>(),
        })
    });
    let damage = checkup.damage.as_ref().map(|damage| {
        json!({
            "file": damage.file.display().to_string(),
            "at": damage.at,
            "what": damage.what,
            "end": damage.end.to_string(),
            "behind": {"groups": damage.lost.groups, "records": damage.lost.records, "bytes": damage.lost.bytes},
        })
    });
    json!({
        "tree": manifest.tree.as_str(),
        "cluster": manifest.cluster.as_str(),
        "incarnation": format!("{:016x}", manifest.incarnation.get()),
        "partitions": manifest.partitions,
        "trimmed_to": log.trimmed_to().map(|lsn| lsn.to_string()),
        "records": checkup.records(),
        "tail_bytes": checkup.tail_bytes,
        "segments": segments.collect::<Vec<_>>(),
        "damage": damage,
        "cut": cut.map(|paths| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()),
    })
}
