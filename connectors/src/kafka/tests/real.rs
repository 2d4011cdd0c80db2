//! Claims that only a real Kafka can hold to: `scripts/test services` starts one.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use tidewire_core::error::SinkErrorKind;
use tidewire_core::feed::{FeedReader, FeedSource};
use tidewire_core::record::Mutation;
use tidewire_core::sink::Sink;
use tidewire_core::tree::LogView;
use tidewire_core::units::HumanDuration;

use super::super::partitioner::partition_of;
use super::super::{KafkaConfig, KafkaSink};
use super::reader::read;
use super::world::World;

fn brokers() -> String {
    std::env::var("TIDEWIRE_KAFKA").expect("TIDEWIRE_KAFKA is set: run this by `scripts/test services`")
}

fn topic(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn admin() -> (AdminClient<DefaultClientContext>, AdminOptions) {
    let admin = ClientConfig::new().set("bootstrap.servers", brokers()).create().unwrap();
    (admin, AdminOptions::new().operation_timeout(Some(Duration::from_secs(30))))
}

fn put(world: &World, from: u64, to: u64) {
    for at in from..to {
        world.log.push(&[Mutation::set(format!("key-{}", at % 50), at.to_string())]);
    }
}

/// Hands everything to the sink that is in the log now.
async fn hand_over(world: &World, sink: &mut KafkaSink, feed: &mut Box<dyn FeedReader>) {
    while feed.cursor() != world.log.end() {
        sink.write(feed.next().await.unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kafka: scripts/test services"]
async fn needs_kafka_f43_partitions_that_are_added_are_used_after_everything_before_has_arrived() {
    let (world, topic) = (World::new(), topic("added"));
    let mut config = KafkaConfig { partitions: Some(2), ..KafkaConfig::new(brokers(), &topic) };
    config.partition_check = HumanDuration::from(Duration::from_millis(100));
    put(&world, 0, 500);
    let mut sink = world.started(config).await;
    let mut feed = world.log.feed(world.beginning());
    hand_over(&world, &mut sink, &mut feed).await;
    assert_eq!(sink.sync().await.unwrap(), world.log.end());
    let (admin, options) = admin();
    for answer in admin.create_partitions([&NewPartitions::new(&topic, 5)], &options).await.unwrap() {
        answer.unwrap();
    }
    while sink.seen_partitions() != 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    put(&world, 500, 1_000);
    hand_over(&world, &mut sink, &mut feed).await;
    assert_eq!(sink.sync().await.unwrap(), world.log.end());
    sink.close().await.unwrap();
    let messages = read(&brokers(), &topic, 5);
    assert_eq!(messages.len(), 1_000);
    for message in messages {
        let at: u64 = String::from_utf8(message.value.clone().unwrap()).unwrap().parse().unwrap();
        let count = if at < 500 { 2 } else { 5 };
        assert_eq!(message.partition, partition_of(message.key.unwrap().as_bytes(), count), "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kafka: scripts/test services"]
async fn needs_kafka_a_missing_topic_is_created_only_where_that_is_allowed() {
    let (world, topic) = (World::new(), topic("missing"));
    put(&world, 0, 10);
    let batch = world.log.feed(world.beginning()).next().await.unwrap();
    let config = KafkaConfig::new(brokers(), &topic);
    let mut forbidden = world.started(KafkaConfig { create_topic: false, ..config.clone() }).await;
    let said = forbidden.write(batch.clone()).await.unwrap_err();
    assert_eq!(said.kind(), SinkErrorKind::Config, "{said}");
    forbidden.close().await.unwrap();
    let mut allowed = world.started(config).await;
    allowed.write(batch).await.unwrap();
    assert_eq!(allowed.sync().await.unwrap(), world.log.end());
    allowed.close().await.unwrap();
    // The broker of the script gives a new topic four partitions.
    assert_eq!(read(&brokers(), &topic, 4).len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kafka: scripts/test services"]
async fn needs_kafka_f35_a_message_over_the_limit_of_the_topic_is_the_fault_of_its_record_alone() {
    let (world, topic) = (World::new(), topic("limited"));
    let (admin, options) = admin();
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1)).set("max.message.bytes", "2000");
    for answer in admin.create_topics([&new], &options).await.unwrap() {
        answer.unwrap();
    }
    let mut config = KafkaConfig::new(brokers(), &topic);
    config.librdkafka.insert("linger.ms".into(), "0".into());
    world.log.put("small", 100);
    let mut feed = world.log.feed(world.beginning());
    let mut sink = world.started(config).await;
    sink.write(feed.next().await.unwrap()).await.unwrap();
    assert_eq!(sink.sync().await.unwrap(), world.log.end());
    world.log.put("large", 5_000);
    sink.write(feed.next().await.unwrap()).await.unwrap();
    let said = sink.sync().await.unwrap_err();
    assert_eq!(said.kind(), SinkErrorKind::Record, "{said}");
    sink.close().await.unwrap();
}
