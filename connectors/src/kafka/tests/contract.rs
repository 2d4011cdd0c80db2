//! The sink holds what every sink must hold.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tidewire_core::sink::{Held, Sink, SinkRig, conformance};

use super::super::{KafkaConfig, KafkaSink};
use super::reader::read;
use super::world::{PARTITIONS, TOPIC};

/// A topic of a mock cluster of its own.
#[derive(Clone)]
struct Topic(Arc<MockCluster<'static, DefaultProducerContext>>);

#[async_trait]
impl SinkRig for Topic {
    async fn sink(&self) -> Box<dyn Sink> {
        Box::new(KafkaSink::new(KafkaConfig::new(self.0.bootstrap_servers(), TOPIC)).unwrap())
    }

    async fn held(&self) -> Vec<Held> {
        let bytes = |text: String| Bytes::from(text.into_bytes());
        let messages = read(&self.0.bootstrap_servers(), TOPIC, PARTITIONS, 0);
        let held = |message: super::reader::Read| Held {
            key: bytes(message.key.unwrap()),
            value: message.value.map(Bytes::from),
        };
        messages.into_iter().map(held).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sink_holds_the_contract_of_all_sinks() {
    conformance(async || {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
        Box::new(Topic(Arc::new(cluster))) as Box<dyn SinkRig>
    })
    .await;
}
