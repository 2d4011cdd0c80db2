//! The sink holds what every sink must hold.

use std::cell::Cell;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::mocking::MockCluster;
use tidewire_core::sink::{Held, Sink, SinkRig, conformance};

use super::super::{KafkaConfig, KafkaSink};
use super::reader::{Read, Reader};
use super::world::PARTITIONS;

/// A topic of its own.
struct Topic {
    brokers: String,
    name: String,
    reader: Mutex<Reader>,
}

#[async_trait]
impl SinkRig for Topic {
    async fn sink(&self) -> Box<dyn Sink> {
        Box::new(KafkaSink::new(KafkaConfig::new(&self.brokers, &self.name)).unwrap())
    }

    async fn held(&self) -> Vec<Held> {
        let bytes = |text: String| Bytes::from(text.into_bytes());
        let mut reader = self.reader.lock();
        let held = |message: &Read| Held {
            key: bytes(message.key.clone().unwrap()),
            value: message.value.clone().map(Bytes::from),
        };
        reader.catch_up().iter().map(held).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sink_holds_the_contract_of_all_sinks() {
    let cluster = MockCluster::new(1).unwrap();
    let topics = Cell::new(0);
    conformance(async || {
        let name = format!("claims-{}", topics.replace(topics.get() + 1));
        cluster.create_topic(&name, PARTITIONS, 1).unwrap();
        let brokers = cluster.bootstrap_servers();
        let reader = Mutex::new(Reader::open(&brokers, &name, PARTITIONS));
        Box::new(Topic { brokers, name, reader }) as Box<dyn SinkRig>
    })
    .await;
}
