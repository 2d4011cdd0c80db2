//! [`Topic`]: reads a real topic, and asks librdkafka's own partitioner for a second opinion.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// One message as it was read.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) partition: i32,
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
}

/// A consumer of every partition, from the beginning.
pub(super) struct Topic(BaseConsumer);

impl Topic {
    pub(super) fn open(brokers: &str, topic: &str, partitions: i32) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "claims")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "100")
            .create()
            .expect("a consumer");
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::Beginning).expect("a position");
        }
        consumer.assign(&all).expect("assigned");
        // A consumer that is dropped while a list of it is alive hangs.
        drop(all);
        Self(consumer)
    }

    /// The next message, if one comes within 100 ms.
    pub(super) fn next(&self) -> Option<Message> {
        let message = self.0.poll(Duration::from_millis(100))?.ok()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let headers = message.headers().expect("headers").iter();
        let headers = headers.map(|header| (header.key.to_owned(), text(header.value.expect("a value"))));
        Some(Message {
            partition: message.partition(),
            key: text(message.key().expect("a key")),
            value: message.payload().map(text),
            headers: headers.collect(),
        })
    }
}

/// Where librdkafka's re-implementation of the Java client's partitioner puts keys: sends them and reads them back.
pub(super) fn second_opinion(
    brokers: &str,
    topic: &str,
    partitions: i32,
    keys: &[&str],
) -> BTreeMap<String, i32> {
    create(brokers, topic, partitions);
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers).set("partitioner", "murmur2").set("acks", "1");
    let producer: BaseProducer = client.create().expect("a producer");
    for key in keys {
        producer
            .send(BaseRecord::to(topic).key(*key).payload(""))
            .map_err(|(error, _)| error)
            .expect("queued");
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(30)).expect("delivered");
    let consumer = Topic::open(brokers, topic, partitions).0;
    let mut found = BTreeMap::new();
    let deadline = super::super::now() + Duration::from_secs(60);
    while found.len() < keys.len() {
        assert!(super::super::now() < deadline, "{} of {} keys came back", found.len(), keys.len());
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let key = String::from_utf8(message.key().expect("a key").to_vec()).expect("text");
            found.insert(key, message.partition());
        }
    }
    found
}

/// Creates a topic.
pub(super) fn create(brokers: &str, topic: &str, partitions: i32) {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    use rdkafka::client::DefaultClientContext;
    let mut client = ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        client.set("bootstrap.servers", brokers).create().expect("an admin client");
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
    for answer in futures::executor::block_on(admin.create_topics([&new], &options)).expect("an answer") {
        answer.expect("created");
    }
}
