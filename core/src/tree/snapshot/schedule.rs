//! When a snapshot is written without being asked for: when the log has grown enough since the last one.

use std::sync::Weak;
use std::time::Duration;

use crate::id::Lsn;
use crate::latest::Follower;
use crate::tree::Tree;
use crate::tree::core::Inner;
use crate::wal::WalStorage;

/// After failures the next attempt waits up to so many times the usual pause.
const MOST_PATIENCE: u32 = 64;

impl Tree {
    /// Whether the log since the last snapshot is larger than the bound, and than that snapshot: then a replay costs
    /// more than a snapshot does.
    fn snapshot_is_due(&self) -> bool {
        let last = self.last_snapshot();
        let since = last.map_or(Lsn::ZERO, |last| last.covered);
        let bound = self.0.limits.snapshot_log_bytes.max(last.map_or(0, |last| last.bytes));
        self.0.storage.bytes_after(since) > bound
    }
}

/// Writes snapshots as they become due; runs until dropped, or until the tree is gone. Looks only after something was
/// applied, so an idle tree costs nothing.
pub(in crate::tree) async fn keep_snapshots(
    tree: Weak<Inner>,
    mut moved: Follower<(Lsn, u64)>,
    pause: Duration,
) {
    let mut patience = 1;
    loop {
        moved.get();
        let Some(tree) = tree.upgrade().map(Tree) else { return };
        if tree.snapshot_is_due() {
            patience = match tree.snapshot().await {
                Ok(_) => 1,
                Err(error) => {
                    tracing::warn!(tree = %tree.0.identity.tree, %error, "snapshot not written, tried again later");
                    MOST_PATIENCE.min(patience * 2)
                }
            };
        }
        drop(tree);
        moved.changed().await;
        tokio::time::sleep(pause * patience).await;
    }
}
