//! What this machine can do at most: syncs of its disk, and what one tree of Tidewire applies without any wire.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire_core::feed::{Cursor, FeedSource};
use tidewire_core::id::{ClusterId, Hlc, Lsn};
use tidewire_core::record::{Group, ReadyGroup};
use tidewire_core::tree::{ApplyTarget, Operation, Tree};

use crate::failure::Outcome;
use crate::tide_site::new_site;
use crate::workload::{Workload, key};

const PARTITIONS: u16 = 8;
const BATCH: u64 = 1_000;
/// Bytes of what is applied at once, about: what has arrived while the sync before it went on.
const AT_ONCE: usize = 2 * 1024 * 1024;

/// Limits of one size of values.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Limits {
    /// A write of 4 KiB into a file that has its size, and an fdatasync.
    pub synced_write_ms: f64,
    /// Writes of 1 MiB, an fdatasync each.
    pub synced_mib_per_second: f64,
    /// Entries that a tree takes over from memory, durable: log, sync and state, but no wire.
    pub applied_per_second: f64,
}

/// A synced write, median, in milliseconds.
pub fn synced_write(dir: &Path) -> Outcome<f64> {
    let mut took = synced(dir, 4096, Duration::from_millis(250))?;
    took.sort_unstable();
    Ok(took.get(took.len() / 2).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0))
}

/// The limits for values of a size.
pub async fn limits(dir: &Path, workload: &Workload, entries: u64) -> Outcome<Limits> {
    let large = synced(dir, 1024 * 1024, Duration::from_secs(1))?;
    let seconds: Duration = large.iter().sum();
    Ok(Limits {
        synced_write_ms: synced_write(dir)?,
        synced_mib_per_second: large.len() as f64 / seconds.as_secs_f64(),
        applied_per_second: applied(dir, workload, entries).await?,
    })
}

fn synced(dir: &Path, bytes: usize, lasting: Duration) -> Outcome<Vec<Duration>> {
    const ROOM: usize = 64 * 1024 * 1024;
    let path = dir.join("synced");
    let file = File::create(&path)?;
    let buffer = vec![7_u8; bytes];
    let places = ROOM / bytes;
    for at in 0..places {
        file.write_all_at(&buffer, (at * bytes) as u64)?;
    }
    file.sync_all()?;
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < lasting {
        let one = Instant::now();
        file.write_all_at(&buffer, (took.len() % places * bytes) as u64)?;
        file.sync_data()?;
        took.push(one.elapsed());
    }
    std::fs::remove_file(&path)?;
    Ok(took)
}

async fn applied(dir: &Path, workload: &Workload, entries: u64) -> Outcome<f64> {
    let dir = dir.join("applied");
    let from = new_site(&dir.join("from")).await?;
    let mut to = new_site(&dir.join("to")).await?;
    to.cluster = ClusterId::new("target")?;
    let (source, target) = (from.tree("entries", PARTITIONS).await?, to.tree("entries", PARTITIONS).await?);
    for first in (0..entries).step_by(BATCH as usize) {
        let until = entries.min(first + BATCH);
        let value = |entry| workload.value(entry).to_owned().into();
        let sets = (first..until).map(|entry| Operation::Set(key(entry).into(), value(entry))).collect();
        source.batch(sets).await?;
    }
    let pages = pages(&source).await?;
    target.enroll(&from.cluster, source.identity().incarnation).await?;
    let began = Instant::now();
    for page in pages {
        target.apply(page).await?;
    }
    let took = began.elapsed();
    let arrived = target.size().entries;
    if arrived != entries {
        return Err(format!("{arrived} of {entries} entries were applied").into());
    }
    for tree in [source, target] {
        tree.kill().await;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(entries as f64 / took.as_secs_f64())
}

/// Everything in a tree's log, as what a receiver applies.
async fn pages(tree: &Tree) -> Outcome<Vec<Vec<ReadyGroup>>> {
    let identity = tree.identity();
    let mut feed = tree.feed(Cursor { incarnation: identity.incarnation, lsn: Lsn::ZERO });
    let (mut pages, mut page, mut bytes, mut entries) = (Vec::new(), Vec::new(), 0, 0);
    while entries < tree.size().entries {
        for group in feed.next().await?.groups() {
            entries += group.blocks().iter().map(|framed| u64::from(framed.block.count())).sum::<u64>();
            bytes += group.blocks().iter().map(|framed| framed.block.bytes().len()).sum::<usize>();
            page.push(ready(tree, group));
            if bytes >= AT_ONCE {
                pages.push(std::mem::take(&mut page));
                bytes = 0;
            }
        }
    }
    pages.push(page);
    Ok(pages)
}

fn ready(tree: &Tree, group: &Group) -> ReadyGroup {
    let identity = tree.identity();
    ReadyGroup {
        origin: identity.origin(),
        incarnation: identity.incarnation,
        closed: group.blocks().last().map_or(Hlc::ZERO, |last| last.frame.closed),
        blocks: group.blocks().iter().map(|framed| (framed.block.clone(), 0)).collect(),
    }
}
