//! The topic that the demo feeds: read back at the end, and compared with the tree.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidewire_connectors::kafka::rdkafka::ClientConfig;
use tidewire_connectors::kafka::rdkafka::consumer::{BaseConsumer, Consumer};
use tidewire_connectors::kafka::rdkafka::error::KafkaError;
use tidewire_connectors::kafka::rdkafka::message::Message;
use tidewire_connectors::kafka::rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidewire_connectors::kafka::{KafkaConfig, KafkaSink};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::random::Random;

use crate::local::LocalSite;

/// The name of the sink.
const SINK: &str = "to-kafka";
/// How long the brokers may take to answer one question.
const ANSWER: Duration = Duration::from_secs(10);
/// Pauses of a tenth of a second without a message before reading is given up.
const QUIET: u32 = 100;

/// A topic of the demo's own.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    brokers: String,
    name: String,
}

/// What a topic says.
#[derive(Debug)]
struct Contents {
    messages: u64,
    /// The last value of each key that was not deleted.
    values: BTreeMap<Bytes, Bytes>,
}

impl Topic {
    /// A topic under a name that nothing has used.
    ///
    /// # Errors
    /// In a build that has no Kafka.
    #[expect(clippy::unnecessary_wraps, reason = "a build without Kafka has nothing else to answer")]
    pub(super) fn new(brokers: &str) -> Result<Self, Error> {
        let name = format!("tidewire-demo-{:08x}", Random::from_os().below(1 << 32));
        Ok(Self { brokers: brokers.to_owned(), name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Feeds it from a site, from where the last sink of the site came to.
    pub(super) async fn feed_from(&self, site: &LocalSite) -> Result<(), Error> {
        let (Some(cluster), Some(tree)) = (site.cluster(), site.tree()) else { return Ok(()) };
        let config = KafkaConfig::new(self.brokers.clone(), self.name.clone());
        let sink =
            KafkaSink::new(config).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        cluster.add_sink(tree.identity().tree.as_str(), SINK, sink).await
    }

    /// Reads all of it and compares it with the tree of a site. The line says what was found; false: they differ.
    pub(super) async fn compare(&self, site: &LocalSite) -> Result<(bool, String), Error> {
        let (Some(cluster), Some(tree)) = (site.cluster(), site.tree()) else {
            return Ok((false, format!("{} is down", site.name())));
        };
        let topic = self.clone();
        let read = cluster.tasks().blocking(move || topic.read()).await?;
        let found = read.map_err(|error| {
            let said = format!("topic {} of {} cannot be read back", self.name, self.brokers);
            Error::new(ErrorKind::Unavailable, said).with_source(error)
        })?;
        let rows = tree.scan(b"", None, usize::MAX);
        let rows: BTreeMap<Bytes, Bytes> = rows.into_iter().map(|row| (row.key, row.value)).collect();
        let equal = rows == found.values;
        let (name, keys, messages) = (&self.name, found.values.len(), found.messages);
        let verdict = if equal { "the same as the tree" } else { "NOT what the tree holds" };
        Ok((equal, format!("topic {name} holds {keys} keys in {messages} messages: {verdict}")))
    }

    fn read(&self) -> Result<Contents, KafkaError> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.name)
            .set("enable.auto.commit", "false")
            .create()?;
        let mut ends = self.ends(&consumer)?;
        let mut contents = Contents { messages: 0, values: BTreeMap::new() };
        let mut quiet = 0;
        while !ends.is_empty() && quiet < QUIET {
            let Some(message) = consumer.poll(Duration::from_millis(100)) else {
                quiet += 1;
                continue;
            };
            let message = message?;
            quiet = 0;
            contents.messages += 1;
            let key = Bytes::copy_from_slice(message.key().unwrap_or_default());
            match message.payload() {
                Some(value) => contents.values.insert(key, Bytes::copy_from_slice(value)),
                None => contents.values.remove(&key),
            };
            if ends.get(&message.partition()).is_some_and(|end| message.offset() + 1 >= *end) {
                ends.remove(&message.partition());
            }
        }
        Ok(contents)
    }

    /// Begins to read every partition, and says where those end that hold anything.
    fn ends(&self, consumer: &BaseConsumer) -> Result<BTreeMap<i32, i64>, KafkaError> {
        let metadata = consumer.fetch_metadata(Some(&self.name), ANSWER)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let mut ends = BTreeMap::new();
        let mut all = TopicPartitionList::new();
        for partition in partitions.map(|partition| partition.id()) {
            let (first, end) = consumer.fetch_watermarks(&self.name, partition, ANSWER)?;
            if first < end {
                ends.insert(partition, end);
            }
            all.add_partition_offset(&self.name, partition, Offset::Beginning)?;
        }
        consumer.assign(&all)?;
        // Gone before the consumer is: one that is dropped while a list of it lives hangs.
        drop(all);
        Ok(ends)
    }
}
