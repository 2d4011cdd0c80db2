//! [`Site`]: one cluster's tree over a disk, for tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::clock::{CeilingStore, HybridClock, WallClock};
use crate::disk::Disk;
use crate::error::MetaError;
use crate::id::{ClusterId, Hlc, TreeName};
use crate::letters::TreeLetters;
use crate::limits::Limits;
use crate::meta::MemMeta;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::record::{Interest, MergeMode};
use crate::tasks::{Tasks, Threads};
use crate::tree::{Consistency, Tree, TreeConfig, TreeMetrics};
use crate::wal::file::FileStorage;
use crate::wal::{CommitRunner, WalMetrics, WalStorage};

#[derive(Clone, Default)]
struct Ceiling(Arc<Mutex<Hlc>>);

#[async_trait]
impl CeilingStore for Ceiling {
    async fn load(&self) -> Result<Hlc, MetaError> {
        Ok(*self.0.lock())
    }

    async fn store(&self, ceiling: Hlc) -> Result<(), MetaError> {
        *self.0.lock() = ceiling;
        Ok(())
    }
}

struct Virtual(tokio::time::Instant);

impl WallClock for Virtual {
    fn now_millis(&self) -> u64 {
        1_000_000 + u64::try_from(self.0.elapsed().as_millis()).expect("short tests")
    }
}

/// One cluster's tree that can be crashed and opened again.
pub(in crate::tree) struct Site {
    pub(in crate::tree) name: &'static str,
    ceiling: Ceiling,
    pub(in crate::tree) letters: MemMeta,
    random: Random,
    pub(in crate::tree) limits: Limits,
    pub(in crate::tree) interest: Interest,
    pub(in crate::tree) tasks: Tasks,
    pub(in crate::tree) threads: Threads,
}

impl Site {
    pub(in crate::tree) fn new(name: &'static str, seed: u64) -> Self {
        Self {
            name,
            ceiling: Ceiling::default(),
            letters: MemMeta::new(),
            random: Random::from_seed(seed),
            limits: Limits::tiny(),
            interest: Interest::all(),
            tasks: Tasks::new(Threads::Inline),
            threads: Threads::Inline,
        }
    }

    pub(in crate::tree) async fn open(&mut self, disk: Arc<dyn Disk>) -> Result<Tree, crate::error::Error> {
        self.open_through(disk, |files| files).await
    }

    pub(in crate::tree) async fn open_through(
        &mut self,
        disk: Arc<dyn Disk>,
        provider: impl FnOnce(Arc<FileStorage>) -> Arc<dyn WalStorage>,
    ) -> Result<Tree, crate::error::Error> {
        self.tasks.abort_and_join().await;
        self.tasks = Tasks::new(self.threads);
        let wall = Arc::new(Virtual(tokio::time::Instant::now()));
        let clock = HybridClock::open(wall, Arc::new(self.ceiling.clone()), Duration::from_secs(30)).await?;
        let metrics = Metrics::default();
        let name = TreeName::new("t").expect("name");
        let letters = TreeLetters::open(Arc::new(self.letters.clone()), &name, 1 << 20).await?;
        let config = TreeConfig {
            cluster: ClusterId::new(self.name).expect("name"),
            name,
            dir: PathBuf::from("/data/trees/t"),
            partitions: 4,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
            interest: self.interest.clone(),
            limits: self.limits.clone(),
            disk,
            clock: Arc::new(clock),
            letters: Some(Arc::new(letters)),
            tasks: self.tasks.clone(),
            runner: CommitRunner::simulated(self.tasks.clone(), Duration::from_millis(2), self.random.fork()),
            random: self.random.fork(),
            wal_metrics: WalMetrics::new(&metrics),
            tree_metrics: TreeMetrics::new(&metrics),
        };
        Tree::open_through(config, provider).await
    }
}
