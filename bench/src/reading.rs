//! How fast a log is read back.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use tidewire_core::feed::{Cursor, FeedOptions, FeedSource};
use tidewire_core::id::Lsn;
use tidewire_core::record::Group;
use tidewire_core::tree::Tree;
use tidewire_core::wal::file::LogReader;
use tidewire_core::wal::{Filter, LogSelector, WalStorage};

use crate::engines::TideLog;
use crate::failure::Outcome;
use crate::perform::segments;
use crate::turn::{Figures, Reading};

/// Bytes of one bare read: what the feed asks for.
const READ_BYTES: usize = 512 << 10;

/// Parses the header of every record; the checksums were compared when the group was read.
fn count(groups: &[impl AsRef<Group>]) -> Outcome<u64> {
    let mut records = 0;
    for framed in groups.iter().flat_map(|group| group.as_ref().blocks()) {
        for record in framed.block.records() {
            std::hint::black_box(record?.value);
            records += 1;
        }
    }
    Ok(records)
}

/// One key in a hundred begins so.
fn one_in_a_hundred() -> Filter {
    Filter::all().prefix("f")
}

fn figures(records: u64, began: Instant) -> Figures {
    Figures { records, seconds: began.elapsed().as_secs_f64(), ..Figures::default() }
}

/// The log alone.
pub async fn log(log: &TideLog, how: Reading) -> Outcome<Figures> {
    let storage = log.storage().clone();
    // On a worker, as followers run.
    let task = tokio::spawn(async move {
        let began = Instant::now();
        let (end, mut at, mut records) = (storage.bounds().next, Lsn::ZERO, 0);
        if how == Reading::Filtered {
            let mut reader = LogSelector::new(storage, one_in_a_hundred());
            while at < end {
                let selection = reader.next(at, end).await?;
                records += selection.iter().map(|one| std::hint::black_box(one.record.value)).count() as u64;
                at = selection.next();
            }
        } else {
            let mut reader = LogReader::new(storage);
            while at < end {
                let groups = reader.next(at, end).await?;
                records += count(&groups)?;
                at = groups.last().map_or(end, |last| last.next_lsn());
            }
        }
        Outcome::Ok(figures(records, began))
    });
    task.await?
}

/// The feed of a tree.
pub async fn tree(tree: &Tree, how: Reading) -> Outcome<Figures> {
    let tree = tree.clone();
    let task = tokio::spawn(async move {
        let began = Instant::now();
        let start = Cursor { incarnation: tree.identity().incarnation, lsn: Lsn::ZERO };
        let (end, mut records) = (tree.bounds().next, 0);
        if how == Reading::Filtered {
            let mut feed = tree.feed_with(start, FeedOptions { filter: one_in_a_hundred() });
            while feed.cursor().lsn < end {
                let batch = feed.next().await?;
                let wanted = batch.selection().iter();
                records += wanted.map(|one| std::hint::black_box(one.record.value)).count() as u64;
            }
        } else {
            let mut feed = tree.feed(start);
            while feed.cursor().lsn < end {
                records += count(feed.next().await?.groups())?;
            }
        }
        Outcome::Ok(figures(records, began))
    });
    task.await?
}

/// The bytes of the log's files, nothing looked at.
pub fn bytes(dir: &Path) -> Outcome<Figures> {
    let files: Vec<_> = segments(dir)?.iter().map(|path| used(path)).collect::<Outcome<_>>()?;
    let mut buffer = vec![0; READ_BYTES];
    let began = Instant::now();
    let mut bytes = 0;
    for (mut file, used) in files {
        let mut left = used;
        while left > 0 {
            let read = file.read(&mut buffer[..READ_BYTES.min(usize::try_from(left)?)])?;
            std::hint::black_box(&buffer[..read]);
            left -= read as u64;
            bytes += read as u64;
        }
    }
    Ok(figures(bytes, began))
}

/// A file, and where the zeros begin that were written ahead of use.
fn used(path: &Path) -> Outcome<(File, u64)> {
    let file = File::open(path)?;
    let (mut end, mut buffer) = (file.metadata()?.len(), vec![0; 4 << 10]);
    while end > 0 {
        let from = end.saturating_sub(buffer.len() as u64);
        let part = &mut buffer[..usize::try_from(end - from)?];
        file.read_exact_at(part, from)?;
        if part.iter().any(|byte| *byte != 0) {
            break;
        }
        end = from;
    }
    Ok((file, end))
}
