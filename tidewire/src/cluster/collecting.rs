//! Collecting the logs of a cluster, and who holds them.

use std::time::Duration;

use tidewire_core::cursors::{Consumer, Registry, Window};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::gc::{self, Claim, GcReport, Holder, PassOptions, Retention};
use tidewire_core::tree::{LogView, Tree};

use super::handle::Cluster;
use crate::status::PinnedBy;

impl Cluster {
    /// One pass over the log of a tree: lets go of what no consumer and no recovery needs, and says what it did and who
    /// holds the rest. A dry run changes nothing and says what a pass would do.
    ///
    /// # Errors
    /// `NotFound` for a tree that is not open. `Unavailable` or `Corrupt` when the positions of consumers cannot be
    /// stored or read, or the log cannot be trimmed: then nothing is removed.
    pub async fn gc(&self, tree: &str, dry_run: bool) -> Result<GcReport, Error> {
        let consumers = self.0.links.consumers_of(tree).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no tree {tree:?} is open on {}", self.id()))
        })?;
        let _turn = consumers.collecting.lock().await;
        let wal_retention = Some(self.0.limits.wal_retention).filter(|age| *age > Duration::ZERO);
        let options = PassOptions { dry_run, may_snapshot: true, wal_retention };
        gc::collect(&consumers.tree, &consumers.registry, options).await
    }

    /// One reason for each log that is over its bound of bytes.
    pub(super) fn alarms(&self) -> Vec<String> {
        let over = self.trees().into_iter().filter_map(|tree| {
            let name = tree.identity().tree.to_string();
            self.0.links.consumers_of(&name).filter(|consumers| consumers.pressure.is_high())?;
            let (retained, bound) = (tree.bounds().retained_bytes, self.0.limits.wal_max_bytes);
            let held = self.pinned_by(&tree).map_or_else(String::new, |pin| {
                format!("; {} holds {} of them: mend or remove it", pin.consumer, pin.bytes)
            });
            Some(format!(
                "tree {name}: its log retains {retained} bytes, more than wal_max_bytes = {bound}{held}"
            ))
        });
        over.collect()
    }

    /// The consumer that keeps most of a tree's log from going.
    pub(super) fn pinned_by(&self, tree: &Tree) -> Option<PinnedBy> {
        let consumers = self.0.links.consumers_of(tree.identity().tree.as_str())?;
        let retention = of_consumers(tree, consumers.registry.consumers());
        let Holder::Consumer(consumer) = retention.holder else { return None };
        let bytes = tree.bytes_after(retention.keep);
        (bytes > 0).then(|| PinnedBy { consumer, bytes, since: retention.keep.to_string() })
    }
}

/// Where positions of a tree's log can be.
pub(super) fn window(tree: &Tree) -> Window {
    let bounds = tree.bounds();
    // Acknowledged is what was read, and read is what is applied.
    Window { incarnation: tree.identity().incarnation, floor: bounds.first, head: tree.end().lsn }
}

/// Forgets a consumer, and answers how many bytes of the log only it held.
pub(super) async fn release(tree: &Tree, registry: &Registry, consumer: &str) -> Result<u64, Error> {
    let known = registry.consumers();
    let others = known.iter().filter(|other| other.name != consumer).cloned().collect();
    let (all, others) = (of_consumers(tree, known), of_consumers(tree, others));
    let held = all
        .standings
        .iter()
        .any(|standing| standing.consumer == consumer && standing.claim != Claim::FellOff);
    registry.remove(consumer).await?;
    let freed = tree.bytes_after(all.keep).saturating_sub(tree.bytes_after(others.keep));
    Ok(if held { freed } else { 0 })
}

fn of_consumers(tree: &Tree, consumers: Vec<Consumer>) -> Retention {
    Retention::of_consumers(consumers, tree.identity().incarnation, &tree.bounds())
}
