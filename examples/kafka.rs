//! A tree that feeds a Kafka topic. Without brokers it uses the mock cluster of the client library.
//!
//! `cargo run -p tidewire-examples --example kafka [BROKERS]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use tidewire::connectors::kafka::rdkafka::consumer::{BaseConsumer, Consumer};
use tidewire::connectors::kafka::rdkafka::mocking::MockCluster;
use tidewire::connectors::kafka::rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tidewire::connectors::kafka::{KafkaConfig, KafkaSink};
use tidewire::{Cluster, ClusterConfig};

const TOPIC: &str = "tidewire-example-orders";
const PARTITIONS: i32 = 3;
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Failure> {
    let mock = MockCluster::new(1)?;
    mock.create_topic(TOPIC, PARTITIONS, 1)?;
    let given = std::env::args().nth(1).filter(|given| given.contains(':') && !given.contains("::"));
    let brokers = given.unwrap_or_else(|| mock.bootstrap_servers());

    let dir = tempfile::tempdir()?;
    let mut config = ClusterConfig::new("eu-west", dir.path());
    config.listen.replication = "127.0.0.1:0".parse()?;
    let cluster = Cluster::open(config).await?;
    let orders = cluster.tree("orders").await?;

    let sink = KafkaSink::new(KafkaConfig { partitions: Some(3), ..KafkaConfig::new(&brokers, TOPIC) })?;
    cluster.add_sink("orders", "to-kafka", sink).await?;
    for number in 0..100 {
        orders.put(format!("order-{number}"), "placed").await?;
    }
    orders.put("order-17", "paid").await?;
    orders.delete("order-18").await?;

    let end = orders.scan(b"", None, usize::MAX);
    let read = tokio::task::block_in_place(|| read(&brokers, 102))?;
    println!(
        "{} keys in the tree, {} in the topic, order-17 is {:?}",
        end.len(),
        read.len(),
        read.get("order-17")
    );
    assert_eq!((read.len(), read.get("order-17").map(String::as_str)), (99, Some("paid")));
    cluster.shutdown().await?;
    Ok(())
}

/// Reads at least so many messages, as a consumer that starts at the beginning: the last value of each key.
fn read(brokers: &str, messages: usize) -> Result<BTreeMap<String, String>, Failure> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", "example").create()?;
    let mut everything = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        everything.add_partition_offset(TOPIC, partition, Offset::Beginning)?;
    }
    consumer.assign(&everything)?;
    drop(everything); // a consumer that is dropped before its lists hangs
    let (mut last, mut seen, mut quiet) = (BTreeMap::new(), 0, 0);
    while (seen < messages || quiet < 5) && quiet < 200 {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            quiet += 1;
            continue;
        };
        let message = message?;
        let key = String::from_utf8(message.key().unwrap_or_default().to_vec())?;
        match message.payload() {
            Some(value) => last.insert(key, String::from_utf8(value.to_vec())?),
            None => last.remove(&key),
        };
        (seen, quiet) = (seen + 1, 0);
    }
    Ok(last)
}
