//! Claims about brokers that are away, refuse, or change the topic.

use std::time::Duration;

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tidewire_core::error::SinkErrorKind;
use tidewire_core::feed::FeedSource;
use tidewire_core::record::Mutation;
use tidewire_core::sink::{PumpState, Sink};
use tidewire_core::tree::LogView;
use tidewire_core::units::HumanDuration;
use tokio::time::Instant;

use super::super::KafkaConfig;
use super::reader::without_repeats;
use super::world::World;

const PATIENCE: Duration = Duration::from_secs(30);

fn put(world: &World, from: u64, to: u64) {
    for at in from..to {
        world.log.push(&[Mutation::set(format!("key-{}", at % 7), at.to_string())]);
    }
}

fn in_order(world: &World, wanted: usize) {
    let fresh = without_repeats(&world.read());
    assert_eq!(fresh.len(), wanted, "every dot is there");
    for key in 0..7 {
        let key = format!("key-{key}");
        let of_key: Vec<u64> =
            fresh.iter().filter(|read| read.key.as_ref() == Some(&key)).map(|read| read.hlc()).collect();
        assert!(of_key.is_sorted_by(|a, b| a < b), "{key}: {of_key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f34_a_broker_that_is_away_delays_and_nothing_is_parked_or_lost() {
    let world = World::new();
    let handle = world.pump(world.config(), None);
    put(&world, 0, 200);
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.cluster.broker_down(-1).unwrap();
    put(&world, 200, 400);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.durable.lock().last().is_none_or(|said| said.lsn < world.log.end().lsn));
    world.cluster.broker_up(-1).unwrap();
    assert!(handle.drain(PATIENCE).await, "{:?}", handle.status());
    in_order(&world, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_pass_are_retried_below_the_sink() {
    let world = World::new();
    use RDKafkaRespErr::*;
    let passing = [
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RD_KAFKA_RESP_ERR__TRANSPORT,
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR__TRANSPORT,
    ];
    world.cluster.request_errors(RDKafkaApiKey::Produce, &passing);
    let handle = world.pump(world.config(), None);
    put(&world, 0, 300);
    assert!(handle.drain(PATIENCE).await, "{:?}", handle.status());
    in_order(&world, 300);
}

/// What a sink says when the next produce request is answered with an error.
async fn answered(error: RDKafkaRespErr) -> SinkErrorKind {
    let world = World::new();
    put(&world, 0, 1);
    world.cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let mut sink = world.started(world.config()).await;
    let batch = world.log.feed(world.beginning()).next().await.unwrap();
    sink.write(batch).await.unwrap();
    let said = tokio::time::timeout(PATIENCE, sink.sync()).await.unwrap().unwrap_err();
    assert!(said.to_string().contains("site.orders"), "{said}");
    let again = tokio::time::timeout(PATIENCE, sink.durable()).await.unwrap().unwrap_err();
    assert_eq!(again.kind(), said.kind(), "the run is over");
    sink.close().await.unwrap();
    said.kind()
}

#[tokio::test(flavor = "multi_thread")]
async fn f34_errors_that_do_not_pass_say_whose_fault_they_are() {
    use RDKafkaRespErr::*;
    assert_eq!(answered(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE).await, SinkErrorKind::Record);
    assert_eq!(answered(RD_KAFKA_RESP_ERR_INVALID_RECORD).await, SinkErrorKind::Record);
    assert_eq!(answered(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).await, SinkErrorKind::Config);
    assert_eq!(answered(RD_KAFKA_RESP_ERR_POLICY_VIOLATION).await, SinkErrorKind::Destination);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_is_not_overtaken_by_what_stands_behind_it() {
    // Batches of one message: the first one is refused for good. One in flight, because the mock cluster does not look at
    // sequence numbers, by which a broker refuses what is on its way behind a refused batch.
    let world = World::new();
    put(&world, 0, 100);
    world
        .cluster
        .request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION]);
    let mut config = world.config();
    config.librdkafka.insert("batch.num.messages".into(), "1".into());
    config.librdkafka.insert("max.in.flight".into(), "1".into());
    let handle = world.pump(config, None);
    assert!(handle.drain(PATIENCE).await, "{:?}", handle.status());
    in_order(&world, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn f42_a_stall_has_a_name_and_says_what_the_brokers_are_like() {
    let world = World::new();
    put(&world, 0, 1);
    let mut config = world.config();
    // Longer than the first message may take on a machine that does much else.
    config.stall_after = HumanDuration::from(Duration::from_secs(5));
    let mut sink = world.started(config).await;
    let mut feed = world.log.feed(world.beginning());
    sink.write(feed.next().await.unwrap()).await.unwrap();
    sink.sync().await.unwrap();
    world.cluster.broker_down(-1).unwrap();
    put(&world, 1, 5);
    sink.write(feed.next().await.unwrap()).await.unwrap();
    let before = Instant::now();
    let said = loop {
        if let Err(said) = tokio::time::timeout(PATIENCE, sink.durable()).await.unwrap() {
            break said;
        }
    };
    assert_eq!(said.kind(), SinkErrorKind::Transient);
    let text = said.to_string();
    assert!(text.contains("none arrived for 5s") && text.contains("messages wait"), "{text}");
    assert!((Duration::from_millis(4_900)..Duration::from_secs(15)).contains(&before.elapsed()));
    sink.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_that_may_not_be_created_is_a_matter_of_the_settings() {
    let world = World::new();
    put(&world, 0, 1);
    let mut config = KafkaConfig { topic: "nowhere".into(), create_topic: false, ..world.config() };
    world.cluster.topic_error("nowhere", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    config.connect_timeout = HumanDuration::from(Duration::from_secs(5));
    let handle = world.pump(config, None);
    let begun = Instant::now();
    while handle.status().state != PumpState::Halted {
        assert!(begun.elapsed() < PATIENCE, "{:?}", handle.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = handle.status().error.unwrap();
    assert!(said.contains("nowhere") && said.contains("create_topic"), "{said}");
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_cannot_be_reached_are_named_after_the_timeout() {
    let world = World::new();
    put(&world, 0, 1);
    let mut config = KafkaConfig::new("127.0.0.1:1", "orders");
    config.connect_timeout = HumanDuration::from(Duration::from_secs(1));
    let mut sink = world.started(config).await;
    let batch = world.log.feed(world.beginning()).next().await.unwrap();
    let said = tokio::time::timeout(PATIENCE, sink.write(batch)).await.unwrap().unwrap_err();
    assert_eq!(said.kind(), SinkErrorKind::Destination);
    assert!(said.to_string().contains("127.0.0.1:1"), "{said}");
    let begun = Instant::now();
    sink.close().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "a close does not wait for brokers");
}

#[tokio::test(flavor = "multi_thread")]
async fn f43_a_change_of_the_partitions_waits_until_everything_before_it_has_arrived() {
    let world = World::new();
    put(&world, 0, 50);
    let mut config = world.config();
    config.partition_check = HumanDuration::from(Duration::from_millis(100));
    let mut sink = world.started(config).await;
    let mut feed = world.log.feed(world.beginning());
    sink.write(feed.next().await.unwrap()).await.unwrap();
    sink.sync().await.unwrap();
    // The mock cluster cannot add partitions, so the sink is made to believe that there were two until now.
    sink.believe_partitions(2);
    world.cluster.broker_round_trip_time(-1, Duration::from_millis(300)).unwrap();
    put(&world, 50, 100);
    sink.write(feed.next().await.unwrap()).await.unwrap();
    let middle = world.log.end();
    while sink.seen_partitions() == 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    put(&world, 100, 150);
    sink.write(feed.next().await.unwrap()).await.unwrap();
    let said = tokio::time::timeout(Duration::from_millis(100), sink.durable()).await.unwrap().unwrap();
    assert!(
        said.lsn >= middle.lsn,
        "{said} is below {middle}: what stood before the barrier was still on its way"
    );
    sink.sync().await.unwrap();
    sink.close().await.unwrap();
    let messages = world.read();
    assert_eq!(messages.len(), 150);
    for message in messages {
        let at: u64 = String::from_utf8(message.value.clone().unwrap()).unwrap().parse().unwrap();
        let count = if (50..100).contains(&at) { 2 } else { 4 };
        let key = message.key.clone().unwrap();
        assert_eq!(
            message.partition,
            super::super::partitioner::partition_of(key.as_bytes(), count),
            "{key}"
        );
    }
}
