//! [`Workload`]: writers on every site, few keys, many conflicts, and a record of what was acknowledged.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::{Operation, Tree};
use tidewire_core::id::Version;
use tidewire_core::random::Random;
use tokio::task::JoinSet;

use crate::site::Site;

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// What the caller was answered.
    pub version: Version,
    /// The key.
    pub key: String,
    /// What was set; None for a delete.
    pub value: Option<String>,
}

/// Every write that was acknowledged, in order.
pub type Acknowledged = Vec<Acknowledgement>;

/// Writers that run until they are stopped.
pub struct Workload {
    writers: JoinSet<()>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    writes: Arc<Mutex<u64>>,
}

impl Workload {
    /// Starts `writers` on each site over `keys` keys.
    pub fn start(sites: &[Site], writers: u32, keys: u64, random: &Random) -> Self {
        let mut workload =
            Self { writers: JoinSet::new(), acknowledged: Arc::default(), writes: Arc::default() };
        for site in sites {
            for _ in 0..writers {
                let writer = Writer {
                    tree: site.slot(),
                    name: site.id().to_string(),
                    keys,
                    random: random.fork(),
                    acknowledged: workload.acknowledged.clone(),
                    writes: workload.writes.clone(),
                };
                workload.writers.spawn(writer.run());
            }
        }
        workload
    }

    /// Stops the writers where they stand. Returns what was acknowledged, and how many writes that were.
    pub async fn stop(mut self) -> (Acknowledged, u64) {
        self.writers.shutdown().await;
        let acknowledged = std::mem::take(&mut *self.acknowledged.lock());
        let writes = *self.writes.lock();
        (acknowledged, writes)
    }
}

struct Writer {
    tree: Arc<Mutex<Option<Tree>>>,
    name: String,
    keys: u64,
    random: Random,
    acknowledged: Arc<Mutex<Acknowledged>>,
    writes: Arc<Mutex<u64>>,
}

impl Writer {
    async fn run(self) {
        for step in 0_u64.. {
            tokio::time::sleep(Duration::from_micros(self.random.below(20_000))).await;
            let Some(tree) = self.tree.lock().clone() else { continue };
            let key = || format!("k{}", self.random.below(self.keys));
            let value = format!("{}-{step}", self.name);
            let (keys, value, version) = match self.random.below(10) {
                0 => {
                    let pair = self.random.below(self.keys);
                    let keys = vec![format!("pair-{pair}-a"), format!("pair-{pair}-b")];
                    let sets =
                        keys.iter().map(|key| Operation::Set(key.clone().into(), value.clone().into()));
                    let version = tree.batch(sets.collect()).await;
                    (keys, Some(value), version)
                }
                1 => {
                    let key = key();
                    let version = tree.delete(key.clone()).await;
                    (vec![key], None, version)
                }
                2 => {
                    // A caller that goes away: the write may or may not happen, and nobody is told.
                    let patience = Duration::from_micros(self.random.below(3_000));
                    let _ = tokio::time::timeout(patience, tree.put(key(), value)).await;
                    continue;
                }
                _ => {
                    let key = key();
                    let version = tree.put(key.clone(), value.clone()).await;
                    (vec![key], Some(value), version)
                }
            };
            if let Ok(version) = version {
                *self.writes.lock() += 1;
                let mut acknowledged = self.acknowledged.lock();
                let of = |key| Acknowledgement { version, key, value: value.clone() };
                acknowledged.extend(keys.into_iter().map(of));
            }
        }
    }
}
