//! [`Reader`]: reads a whole topic.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message};
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

/// A consumer of a whole topic that keeps what it has read.
pub(super) struct Reader {
    consumer: BaseConsumer,
    topic: String,
    /// How many messages of each partition were read.
    counts: Vec<i64>,
    messages: Vec<Read>,
}

impl Reader {
    pub(super) fn open(brokers: &str, topic: &str, partitions: i32) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "reader")
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
        let counts = vec![0; usize::try_from(partitions).unwrap()];
        Self { consumer, topic: topic.to_owned(), counts, messages: Vec::new() }
    }

    /// Reads on until everything is read that is there now; others may come meanwhile.
    pub(super) fn catch_up(&mut self) -> &[Read] {
        let patience = Duration::from_secs(10);
        let high = |partition| self.consumer.fetch_watermarks(&self.topic, partition, patience).unwrap().1;
        let ends: Vec<i64> =
            (0..).map_while(|at| (at < self.counts.len() as i32).then(|| high(at))).collect();
        let mut quiet = 0;
        while self.counts.iter().zip(&ends).any(|(read, end)| read < end) {
            assert!(quiet < 100, "{:?} of {ends:?} messages came", self.counts);
            quiet = if self.poll() { 0 } else { quiet + 1 };
        }
        &self.messages
    }

    /// Reads one more message, if it comes within 100 ms.
    fn poll(&mut self) -> bool {
        let Some(message) = self.consumer.poll(Duration::from_millis(100)) else { return false };
        let message = message.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = message.headers().map_or(Vec::new(), |headers| {
            let pair = |header: Header<'_, &[u8]>| (header.key.to_owned(), text(header.value.unwrap()));
            headers.iter().map(pair).collect()
        });
        self.counts[usize::try_from(message.partition()).unwrap()] += 1;
        self.messages.push(Read {
            partition: message.partition(),
            key: message.key().map(text),
            value: message.payload().map(<[u8]>::to_vec),
            headers,
        });
        true
    }
}

/// The messages of a topic, in the order of each partition: all that are there, and what comes on top within 200 ms.
pub(super) fn read(brokers: &str, topic: &str, partitions: i32) -> Vec<Read> {
    let mut reader = Reader::open(brokers, topic, partitions);
    reader.catch_up();
    while reader.poll() || reader.poll() {}
    reader.messages
}

/// Drops messages that repeat an earlier one: same dot, same key.
pub(super) fn without_repeats(messages: &[Read]) -> Vec<Read> {
    let mut seen = std::collections::BTreeSet::new();
    let fresh = |message: &&Read| seen.insert((message.header("tw-dot").to_owned(), message.key.clone()));
    messages.iter().filter(fresh).cloned().collect()
}
