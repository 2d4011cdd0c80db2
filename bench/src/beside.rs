//! An open loop on a tree beside other things: more partitions, a long log, followers, idle trees.

use tidewire_core::feed::{Cursor, FeedSource};
use tidewire_core::tree::Tree;
use tokio::task::AbortHandle;

use crate::contender::Contender;
use crate::engines::Site;
use crate::failure::Outcome;
use crate::load;
use crate::perform::{PARTITIONS, TREE};
use crate::turn::{Beside, Figures};
use crate::workload::{round_key, value};

const FILL_BATCH: u64 = 1_000;

/// Runs it. A log that is too short is made longer first.
pub async fn run(site: &Site, per_second: f64, beside: Beside, seconds: f64) -> Outcome<Figures> {
    let tree = site.tree(TREE, beside.partitions).await?;
    lengthen(&tree, beside.log_bytes).await?;
    let mut idle = Vec::new();
    for number in 0..beside.idle_trees {
        let tree = site.tree(&format!("idle-{number}"), PARTITIONS).await?;
        Contender::append(&tree, round_key(0, 0), &value(256)).await?;
        idle.push(tree);
    }
    let followers: Vec<_> = (0..beside.followers).map(|_| follow(&tree)).collect();
    let figures = load::open(&tree, per_second, 256, seconds).await;
    followers.iter().for_each(AbortHandle::abort);
    drop(idle);
    figures
}

async fn lengthen(tree: &Tree, bytes: u64) -> Outcome<()> {
    let (value, mut batch) = (value(1_024), 0);
    while tree.bounds().retained_bytes < bytes {
        let keys = (0..FILL_BATCH).map(|key| round_key(300 + batch % 8, key)).collect();
        tree.append_many(keys, &value).await?;
        batch += 1;
    }
    Ok(())
}

/// Reads what is committed, as a shipper or a sink does.
fn follow(tree: &Tree) -> AbortHandle {
    let tree = tree.clone();
    let task = tokio::spawn(async move {
        let start = Cursor { incarnation: tree.identity().incarnation, lsn: tree.bounds().next };
        let mut feed = tree.feed(start);
        while let Ok(batch) = feed.next().await {
            std::hint::black_box(batch.bytes());
        }
    });
    task.abort_handle()
}
