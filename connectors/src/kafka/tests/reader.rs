//! [`Reader`]: reads a whole topic.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// One message as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) partition: i32,
    pub(super) key: Option<String>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, String)>,
}

impl Read {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        &found.unwrap_or_else(|| panic!("no header {name}: {self:?}")).1
    }

    pub(super) fn hlc(&self) -> u64 {
        self.header("tw-hlc").parse().unwrap()
    }
}

/// The messages of a topic, in the order of each partition: all that are there now, and `wanted` of them at least unless
/// they do not come.
pub(super) fn read(brokers: &str, topic: &str, partitions: i32, wanted: usize) -> Vec<Read> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "10")
        .create()
        .unwrap();
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&all).unwrap();
    // A consumer that is dropped while a list of it is alive hangs.
    drop(all);
    let high = |partition| consumer.fetch_watermarks(topic, partition, Duration::from_secs(10)).unwrap().1;
    let there: i64 = (0..partitions).map(high).sum();
    // What comes on top is only waited for where a claim counts messages.
    let pauses = if wanted == 0 { 0 } else { 2 };
    let wanted = wanted.max(usize::try_from(there).unwrap());
    let mut messages = Vec::new();
    let mut quiet = 0;
    while messages.len() < wanted && quiet < 100 || quiet < pauses {
        match consumer.poll(Duration::from_millis(100)) {
            None => quiet += 1,
            Some(message) => {
                let message = message.unwrap();
                quiet = 0;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let headers = message.headers().map_or(Vec::new(), |headers| {
                    let pair = |header: rdkafka::message::Header<'_, &[u8]>| {
                        (header.key.to_owned(), text(header.value.unwrap()))
                    };
                    headers.iter().map(pair).collect()
                });
                messages.push(Read {
                    partition: message.partition(),
                    key: message.key().map(text),
                    value: message.payload().map(<[u8]>::to_vec),
                    headers,
                });
            }
        }
    }
    messages
}

/// Drops messages that repeat an earlier one: same dot, same key.
pub(super) fn without_repeats(messages: &[Read]) -> Vec<Read> {
    let mut seen = std::collections::BTreeSet::new();
    let fresh = |message: &&Read| seen.insert((message.header("tw-dot").to_owned(), message.key.clone()));
    messages.iter().filter(fresh).cloned().collect()
}
