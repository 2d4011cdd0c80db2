//! The topic: how many partitions it has, and its creation. Everything here blocks, so it runs where blocking is meant.

use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidewire_core::error::{SinkError, SinkErrorKind};

use super::config::KafkaConfig;
use super::{client, faults};

/// One question to the brokers; a question that is not answered can be put again, the connection goes on meanwhile.
pub(super) const SLICE: Duration = Duration::from_secs(1);

/// What the brokers say about a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It has so many partitions.
    Partitions(u32),
    /// It does not exist.
    Missing,
    /// Not known now; asking again may help.
    Unsettled(RDKafkaErrorCode),
}

/// Asks for a topic, for a second at most.
///
/// # Errors
/// When asking again cannot help.
pub(super) fn look<C: ClientContext>(client: &Client<C>, topic: &str) -> Result<Seen, SinkError> {
    let metadata = match client.fetch_metadata(Some(topic), SLICE) {
        Ok(metadata) => metadata,
        Err(error) => {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            let hopeless = faults::kind_of(code) == SinkErrorKind::Config;
            let asked = format!("asking for topic {topic}");
            return if hopeless { Err(faults::refused(&asked, &error)) } else { Ok(Seen::Unsettled(code)) };
        }
    };
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(Seen::Missing);
    };
    match found.error().map(RDKafkaErrorCode::from) {
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            return Ok(Seen::Missing);
        }
        Some(code) if faults::kind_of(code) == SinkErrorKind::Config => {
            let asked = format!("asking for topic {topic}");
            return Err(faults::refused(&asked, &KafkaError::MetadataFetch(code)));
        }
        Some(code) => return Ok(Seen::Unsettled(code)),
    }
    let partitions = u32::try_from(found.partitions().len()).unwrap_or(0);
    Ok(if partitions == 0 { Seen::Missing } else { Seen::Partitions(partitions) })
}

/// Creates a topic; it is no error when somebody else was faster.
///
/// # Errors
/// When the brokers refuse or do not answer.
pub(super) fn create(config: &KafkaConfig, topic: &str) -> Result<(), SinkError> {
    let what = format!("creating topic {topic}");
    let refused = |error: &KafkaError| faults::refused(&what, error);
    let admin: AdminClient<DefaultClientContext> =
        client::plain(config)?.create().map_err(|error| refused(&error))?;
    let partitions = config.partitions.map_or(-1, |count| i32::try_from(count).unwrap_or(i32::MAX));
    let replication = config.replication.map_or(-1, i32::from);
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(replication));
    let patience = Some(Duration::from_secs(10));
    let options = AdminOptions::new().request_timeout(patience).operation_timeout(patience);
    let answers = futures::executor::block_on(admin.create_topics([&topic], &options));
    for answer in answers.map_err(|error| refused(&error))? {
        match answer {
            Ok(name) => tracing::info!(topic = name, "created the topic"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(refused(&KafkaError::AdminOp(code))),
        }
    }
    Ok(())
}
