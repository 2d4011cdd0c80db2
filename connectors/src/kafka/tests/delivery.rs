//! Claims about what arrives: keys, values, headers, partitions, order, and what is answered as durable.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidewire_core::feed::FeedSource;
use tidewire_core::record::Mutation;
use tidewire_core::sink::Sink;
use tidewire_core::tree::LogView;

use super::super::ValueFormat;
use super::super::partitioner::partition_of;
use super::reader::without_repeats;
use super::world::{PARTITIONS, World};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_change_arrives_with_its_key_its_value_and_the_headers_that_identify_it() {
    let world = World::new();
    world.log.push(&[Mutation::set("order-17", "paid"), Mutation::set("empty", Bytes::new())]);
    world.log.push(&[Mutation::delete("order-17")]);
    assert!(world.pump(world.config(), None).drain(PATIENCE).await, "all of it is durable");
    assert_eq!(world.durable.lock().last(), Some(&world.log.end()));
    let messages = world.read();
    assert_eq!(messages.len(), 3);
    let of_key =
        |key: &str| messages.iter().filter(|read| read.key.as_deref() == Some(key)).collect::<Vec<_>>();
    let order = of_key("order-17");
    assert_eq!(order[0].value.as_deref(), Some(&b"paid"[..]));
    assert_eq!(order[1].value, None, "a delete is a tombstone");
    assert_eq!(of_key("empty")[0].value.as_deref(), Some(&b""[..]), "an empty value is none");
    let names: Vec<&str> = order[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tw-origin", "tw-hlc", "tw-dot", "tw-op"]);
    let told = |at: usize, name| order[at].header(name);
    assert_eq!((told(0, "tw-origin"), told(0, "tw-op"), told(1, "tw-op")), ("eu-west", "set", "delete"));
    assert!(order[0].hlc() < order[1].hlc());
    let dots: Vec<Vec<&str>> = (0..2).map(|at| told(at, "tw-dot").split('/').collect()).collect();
    let offset = |at: usize| dots[at][2].parse::<u64>().unwrap();
    assert_eq!((dots[0][0], dots[0][1]), ("eu-west", dots[1][1]));
    assert!(offset(0) < offset(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_keep_their_order_and_lie_where_the_java_client_puts_them() {
    let world = World::new();
    let handle = world.pump(world.config(), None);
    for round in 0..20 {
        let sets = (0..50).map(|key| Mutation::set(format!("key-{key}"), format!("{round}")));
        world.log.push(&sets.collect::<Vec<_>>());
    }
    assert!(handle.drain(PATIENCE).await);
    let messages = world.read();
    assert_eq!(messages.len(), 1_000, "nothing was repeated, nothing is missing");
    let mut rounds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for message in &messages {
        let key = message.key.clone().unwrap();
        assert_eq!(message.partition, partition_of(key.as_bytes(), PARTITIONS as u32), "{key}");
        let value = String::from_utf8(message.value.clone().unwrap()).unwrap();
        rounds.entry(key).or_default().push(value.parse().unwrap());
    }
    assert_eq!(rounds.len(), 50);
    for (key, rounds) in rounds {
        assert_eq!(rounds, (0..20).collect::<Vec<_>>(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_mode_sends_the_envelope_and_still_deletes_by_tombstone() {
    let world = World::new();
    world.log.push(&[Mutation::set("a", "1"), Mutation::delete("a")]);
    let mut config = world.config();
    config.value = ValueFormat::Json;
    assert!(world.pump(config, None).drain(PATIENCE).await);
    let messages = world.read();
    let value = messages[0].value.as_deref().unwrap();
    let json: serde_json::Value = serde_json::from_slice(value).unwrap();
    assert_eq!((&json["op"], &json["key"], &json["value"]), (&"set".into(), &"a".into(), &"1".into()));
    assert_eq!(json["dot"], messages[0].header("tw-dot"));
    assert_eq!((&messages[1].value, messages[1].header("tw-op")), (&None, "delete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tiny_queue_pushes_back_and_loses_nothing() {
    let world = World::new();
    let handle = {
        let mut config = world.config();
        config.queue_bytes = tidewire_core::units::ByteSize::new(64 << 10);
        world.pump(config, None)
    };
    for _ in 0..40 {
        let sets = (0..100).map(|key| Mutation::set(format!("key-{key}"), vec![b'x'; 500]));
        world.log.push(&sets.collect::<Vec<_>>());
    }
    assert!(handle.drain(PATIENCE).await, "{:?}", handle.status());
    let messages = world.read();
    assert_eq!(messages.len(), 4_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn f36_nothing_is_durable_before_the_broker_has_said_so() {
    let world = World::new();
    world.log.put("warm-up", 1);
    let mut sink = world.started(world.config()).await;
    let mut feed = world.log.feed(world.beginning());
    sink.write(feed.next().await.unwrap()).await.unwrap();
    assert_eq!(sink.sync().await.unwrap(), world.log.end());
    // From here on an answer takes two seconds.
    world.cluster.broker_round_trip_time(-1, Duration::from_secs(2)).unwrap();
    let before = world.log.end();
    world.log.put("slow", 1);
    sink.write(feed.next().await.unwrap()).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(800), sink.durable()).await;
    assert!(
        early.is_err() || early.as_ref().is_ok_and(|said| *said.as_ref().unwrap() == before),
        "{early:?}"
    );
    let said = tokio::time::timeout(PATIENCE, sink.durable()).await.unwrap().unwrap();
    assert_eq!(said, world.log.end());
    sink.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_started_again_goes_on_at_least_once_and_in_order() {
    let world = World::new();
    let put = |from: u64, to: u64| {
        for at in from..to {
            world.log.push(&[Mutation::set(format!("key-{}", at % 5), at.to_string())]);
        }
    };
    put(0, 500);
    let mut sink = world.started(world.config()).await;
    let mut feed = world.log.feed(world.beginning());
    let mut written = 0;
    while written < 500 {
        let batch = feed.next().await.unwrap();
        written += batch.records();
        sink.write(batch).await.unwrap();
    }
    let durable = sink.durable().await.unwrap();
    // As if the process had died here: some of it arrived, and it is not known how much.
    drop(sink);
    put(500, 600);
    assert!(world.pump(world.config(), Some(durable)).drain(PATIENCE).await);
    let fresh = without_repeats(&world.read());
    assert_eq!(fresh.len(), 600, "every dot is there");
    for key in 0..5 {
        let key = format!("key-{key}");
        let of_key: Vec<_> = fresh.iter().filter(|read| read.key.as_ref() == Some(&key)).collect();
        assert!(of_key.is_sorted_by(|a, b| a.hlc() < b.hlc()), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_log_reaches_no_broker_and_its_progress_is_durable_at_once() {
    let world = World::new();
    let mut config = world.config();
    config.brokers = "127.0.0.1:1".into();
    let mut sink = world.started(config).await;
    let mut feed = world.log.feed(world.beginning());
    let idle = feed.idle().await.unwrap().unwrap();
    sink.write(idle).await.unwrap();
    assert_eq!(sink.durable().await.unwrap(), world.log.end());
    assert!(tokio::time::timeout(Duration::from_millis(50), sink.durable()).await.is_err(), "no news");
    sink.close().await.unwrap();
}
