//! The near side: a log, a shipper under its pump, a network in memory, a clock by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidewire_core::clock::WallClock;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{BootId, ClusterId, Incarnation, TreeName};
use tidewire_core::metrics::Metrics;
use tidewire_core::random::Random;
use tidewire_core::sink::{MemFeed, News};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::{DialTarget, MemNetwork};
use tidewire_core::tree::{Consistency, MergeMode, TreeIdentity};
use tidewire_shipper::{Forward, Settings, ShipperConfig, ShipperHandle, ShipperMetrics, spawn};

pub(crate) const PARTITIONS: u16 = 4;

pub(crate) fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

pub(crate) fn me() -> TreeIdentity {
    TreeIdentity {
        cluster: id("a"),
        tree: TreeName::new("orders").unwrap(),
        incarnation: Incarnation::new(5),
        partitions: PARTITIONS,
        merge: MergeMode::LastWriterWins,
        consistency: Consistency::Causal,
    }
}

#[derive(Default)]
pub(crate) struct Hand(pub(crate) AtomicU64);

impl WallClock for Hand {
    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct Rig {
    pub(crate) log: MemFeed,
    pub(crate) network: MemNetwork,
    pub(crate) wall: Arc<Hand>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
    pub(crate) durable: Arc<Mutex<Vec<Cursor>>>,
    pub(crate) families: ShipperMetrics,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let metrics = Metrics::default();
        Self {
            log: MemFeed::new(me()),
            network: MemNetwork::new(&Random::from_seed(11)),
            wall: Arc::default(),
            families: ShipperMetrics::new(&metrics),
            metrics,
            tasks: Tasks::new(Threads::Inline),
            durable: Arc::default(),
        }
    }

    pub(crate) fn ship(&self) -> ShipperHandle {
        self.ship_with(Settings::default())
    }

    pub(crate) fn ship_with(&self, settings: Settings) -> ShipperHandle {
        let config = ShipperConfig {
            peer: DialTarget { peer: id("b"), url: "mem://b".into() },
            forward: Forward::Never,
            hold: Arc::new(|_| {}),
            boot: BootId::new(3),
            known_clusters: Arc::new(|| vec![id("c"), id("b")]),
            transport: Arc::new(self.network.endpoint(&id("a"))),
            settings,
            wall: self.wall.clone(),
            metrics: self.families.clone(),
            news: News::default(),
        };
        let durable = self.durable.clone();
        let on_durable = Arc::new(move |cursor| durable.lock().push(cursor));
        spawn(&self.tasks, config, Arc::new(self.log.clone()), Random::from_seed(5), None, on_durable)
    }

    /// Commits groups of one record each.
    pub(crate) fn put(&self, records: u64) {
        for record in 0..records {
            self.log.put(&format!("k{record}"), 100);
        }
    }

    pub(crate) fn last_durable(&self) -> Option<Cursor> {
        self.durable.lock().last().copied()
    }
}
