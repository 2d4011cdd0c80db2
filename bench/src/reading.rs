//! How fast a log is read back.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use tidewire_core::feed::{Cursor, FeedSource};
use tidewire_core::id::Lsn;
use tidewire_core::record::Group;
use tidewire_core::tree::Tree;
use tidewire_core::wal::WalStorage;

use crate::engines::TideLog;
use crate::failure::Outcome;
use crate::perform::segments;
use crate::turn::{Figures, Reading};

/// Bytes of one read: what the feed asks for.
const READ_BYTES: usize = 512 << 10;

/// Parses the header of every record; the checksums were compared when the group was read.
fn count(groups: &[impl AsRef<Group>], filtered: bool) -> Outcome<u64> {
    let mut records = 0;
    for framed in groups.iter().flat_map(|group| group.as_ref().blocks()) {
        for record in framed.block.records() {
            let record = record?;
            if !filtered || record.key.first() == Some(&b'f') {
                records += 1;
                std::hint::black_box(record.value);
            }
        }
    }
    Ok(records)
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
        while at < end {
            let groups = storage.read(at, READ_BYTES).await?;
            records += count(&groups, how == Reading::Filtered)?;
            at = groups.last().map_or(end, |last| last.next_lsn());
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
        let mut feed = tree.feed(Cursor { incarnation: tree.identity().incarnation, lsn: Lsn::ZERO });
        let (end, mut records) = (tree.bounds().next, 0);
        while feed.cursor().lsn < end {
            records += count(feed.next().await?.groups(), how == Reading::Filtered)?;
        }
        Outcome::Ok(figures(records, began))
    });
    task.await?
}

/// The bytes of the log's files, nothing looked at.
pub fn bytes(dir: &Path) -> Outcome<Figures> {
    let files = segments(dir)?;
    let mut buffer = vec![0; READ_BYTES];
    let began = Instant::now();
    let mut bytes = 0;
    for path in files {
        let mut file = File::open(path)?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            std::hint::black_box(&buffer[..read]);
            bytes += read as u64;
        }
    }
    Ok(figures(bytes, began))
}
