//! [`World`]: a log in memory, a mock cluster, and a pump that drives the sink between them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{ClusterId, Incarnation, TreeName};
use tidewire_core::random::Random;
use tidewire_core::sink::{
    BackoffSettings, MemFeed, News, Pump, PumpHandle, PumpSettings, Sink, SinkContext,
};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Consistency, MergeMode, TreeIdentity};

use super::super::{KafkaConfig, KafkaSink};
use super::reader::{Read, read};

pub(super) const TOPIC: &str = "site.orders";
pub(super) const PARTITIONS: i32 = 4;

pub(super) struct World {
    pub(super) log: MemFeed,
    pub(super) cluster: MockCluster<'static, DefaultProducerContext>,
    pub(super) tasks: Tasks,
    /// What was answered as durable, in order.
    pub(super) durable: Arc<Mutex<Vec<Cursor>>>,
}

impl World {
    pub(super) fn new() -> Self {
        let log = MemFeed::new(TreeIdentity {
            cluster: ClusterId::new("eu-west").unwrap(),
            tree: TreeName::new("orders").unwrap(),
            incarnation: Incarnation::new(7),
            partitions: 4,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
        });
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
        Self { log, cluster, tasks: Tasks::new(Threads::Spawn), durable: Arc::default() }
    }

    pub(super) fn config(&self) -> KafkaConfig {
        let mut config = KafkaConfig::new(self.cluster.bootstrap_servers(), "site.{tree}");
        // Broken connections come back quickly in tests.
        config.librdkafka.insert("reconnect.backoff.max.ms".into(), "200".into());
        config.librdkafka.insert("retry.backoff.ms".into(), "50".into());
        config
    }

    pub(super) fn context(&self, checkpoint: Cursor) -> SinkContext {
        let log = Arc::new(self.log.clone());
        let (tasks, random) = (self.tasks.clone(), Random::from_seed(1));
        SinkContext { log: log.clone(), changes: log, checkpoint, tasks, random }
    }

    pub(super) fn beginning(&self) -> Cursor {
        use tidewire_core::tree::LogView as _;
        Cursor { lsn: tidewire_core::id::Lsn::ZERO, ..self.log.end() }
    }

    /// A sink that a test drives by itself.
    pub(super) async fn started(&self, config: KafkaConfig) -> KafkaSink {
        let mut sink = KafkaSink::new(config).unwrap();
        assert_eq!(sink.resume(&self.context(self.beginning())).await.unwrap(), None);
        sink
    }

    /// A pump from a checkpoint on.
    pub(super) fn pump(&self, config: KafkaConfig, checkpoint: Option<Cursor>) -> PumpHandle {
        let durable = self.durable.clone();
        let backoff = BackoffSettings { first: Duration::from_millis(20), ..BackoffSettings::default() };
        let pump = Pump {
            name: "to-kafka".into(),
            log: Arc::new(self.log.clone()),
            settings: PumpSettings { backoff, ..PumpSettings::default() },
            random: Random::from_seed(2),
            checkpoint,
            on_durable: Arc::new(move |cursor| durable.lock().push(cursor)),
            letters: None,
            news: News::default(),
            fill: None,
        };
        pump.spawn(&self.tasks, Box::new(KafkaSink::new(config).unwrap()))
    }

    pub(super) fn read(&self) -> Vec<Read> {
        read(&self.cluster.bootstrap_servers(), TOPIC, PARTITIONS)
    }
}
