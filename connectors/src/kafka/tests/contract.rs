//! The sink holds what every sink must hold.

use std::cell::Cell;

use async_trait::async_trait;
use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use tidewire_core::sink::{Held, Sink, SinkRig, conformance};

use super::super::{KafkaConfig, KafkaSink};
use super::reader::read;
use super::world::PARTITIONS;

/// A topic of its own.
struct Topic {
    brokers: String,
    name: String,
}

#[async_trait]
impl SinkRig for Topic {
    async fn sink(&self) -> Box<dyn Sink> {
        Box::new(KafkaSink::new(KafkaConfig::new(&self.brokers, &self.name)).unwrap())
    }

    async fn held(&self) -> Vec<Held> {
        let bytes = |text: String| Bytes::from(text.into_bytes());
        let messages = read(&self.brokers, &self.name, PARTITIONS, 0);
        let held = |message: super::reader::Read| Held {
            key: bytes(message.key.unwrap()),
            value: message.value.map(Bytes::from),
        };
        messages.into_iter().map(held).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sink_holds_the_contract_of_all_sinks() {
    let cluster = MockCluster::new(1).unwrap();
    let topics = Cell::new(0);
    conformance(async || {
        let name = format!("claims-{}", topics.replace(topics.get() + 1));
        cluster.create_topic(&name, PARTITIONS, 1).unwrap();
        Box::new(Topic { brokers: cluster.bootstrap_servers(), name }) as Box<dyn SinkRig>
    })
    .await;
}
