//! [`Probes`]: writes of unique keys whose way to the other clusters is timed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidewire_core::error::Error;
use tidewire_core::tasks::Tasks;
use tidewire_core::tree::{Event, Start, Tree};
use tokio::time::Instant;

use super::latencies::Latencies;

/// What all probe keys begin with.
pub(crate) const PREFIX: &str = "probe-";

#[derive(Debug, Default)]
struct Probe {
    committed: Option<Instant>,
    visible: Vec<Instant>,
}

/// Probes of all clusters of this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes(Arc<Mutex<HashMap<Bytes, Probe>>>);

impl Probes {
    /// Writes a probe and notes when it was answered.
    pub(crate) async fn write(&self, tree: &Tree, key: &str, value: Bytes) -> Result<(), Error> {
        tree.put(key.to_owned(), value).await?;
        let now = Instant::now();
        self.0.lock().entry(Bytes::copy_from_slice(key.as_bytes())).or_default().committed = Some(now);
        Ok(())
    }

    /// Notes every foreign probe that becomes visible in a tree from now on, until the tasks stop.
    pub(crate) fn watch(&self, tasks: &Tasks, tree: &Tree) {
        let (probes, stop, tree) = (self.clone(), tasks.stop_token(), tree.clone());
        let mut changes = tree.changes(Start::Now);
        tasks.spawn("watch probes", async move {
            let own = tree.identity().origin();
            loop {
                let event = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    event = changes.next() => event,
                };
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::error!(%error, "probes are not seen any more");
                        return;
                    }
                };
                let Event::Change(change) = event else { continue };
                if change.version.origin != own && change.key.starts_with(PREFIX.as_bytes()) {
                    let now = Instant::now();
                    let mut probes = probes.0.lock();
                    probes.entry(Bytes::copy_from_slice(&change.key)).or_default().visible.push(now);
                }
            }
        });
    }

    /// From the answer at the origin to the sight elsewhere, for every probe and every cluster that saw it.
    pub(crate) fn commit_to_visible(&self) -> Latencies {
        let mut latencies = Latencies::default();
        for probe in self.0.lock().values() {
            let Some(committed) = probe.committed else { continue };
            for visible in &probe.visible {
                latencies.record(visible.checked_duration_since(committed).unwrap_or(Duration::ZERO));
            }
        }
        latencies
    }
}
