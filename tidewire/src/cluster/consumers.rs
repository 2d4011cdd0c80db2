//! What goes on with the consumers of a log: their positions are stored, and the log is collected.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::cursors::Registry;
use tidewire_core::gc::Keeper;
use tidewire_core::id::TreeName;
use tidewire_core::tasks::Tasks;

/// How often positions of consumers are stored.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Stores positions once a second, until the tasks stop.
pub(super) fn keep_cursors(tasks: &Tasks, tree: &TreeName, cursors: Arc<Registry>) {
    let (stop, tree) = (tasks.stop_token(), tree.clone());
    tasks.spawn(format!("cursors of {tree}"), async move {
        loop {
            // Nothing ticks while no position moves.
            let due = async {
                cursors.unstored().await;
                tokio::time::sleep(FLUSH_EVERY).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = due => flush(&tree, &cursors).await,
            }
        }
    });
}

/// Stores positions now; a failure is told of, and the next time stores them.
pub(super) async fn flush(tree: &TreeName, cursors: &Registry) {
    if let Err(error) = cursors.flush().await {
        tracing::warn!(%tree, %error, "positions of consumers are not stored; tried again in a second");
    }
}

/// Collects a log on its schedule, until the tasks stop.
pub(super) fn keep_collected(tasks: &Tasks, keeper: Keeper) {
    let stop = tasks.stop_token();
    tasks.spawn(format!("collector of {}", keeper.tree.identity().tree), async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = keeper.run() => {}
        }
    });
}

/// What holds a log for a consumer from where it is needed.
pub(super) fn hold(cursors: &Arc<Registry>, consumer: &str) -> tidewire_shipper::Hold {
    let (cursors, consumer) = (cursors.clone(), consumer.to_owned());
    Arc::new(move |cursor| _ = cursors.hold(&consumer, cursor))
}
