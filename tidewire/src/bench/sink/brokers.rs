//! [`Brokers`]: the Kafka that is measured with: a real one, or the mock of librdkafka.

use std::time::Duration;

use tidewire_connectors::kafka::rdkafka::ClientConfig;
use tidewire_connectors::kafka::rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use tidewire_connectors::kafka::rdkafka::client::DefaultClientContext;
use tidewire_connectors::kafka::rdkafka::error::KafkaError;
use tidewire_connectors::kafka::rdkafka::mocking::MockCluster;
use tidewire_connectors::kafka::rdkafka::producer::DefaultProducerContext;
use tidewire_core::error::{Error, ErrorKind};

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) enum Brokers {
    Real { addresses: String, admin: AdminClient<DefaultClientContext> },
    Mock(MockCluster<'static, DefaultProducerContext>),
}

impl Brokers {
    pub(super) fn open(addresses: Option<&str>) -> Result<Self, Error> {
        match addresses {
            Some(addresses) => {
                let admin = ClientConfig::new().set("bootstrap.servers", addresses).create();
                Ok(Self::Real { addresses: addresses.to_owned(), admin: admin.map_err(refused)? })
            }
            None => Ok(Self::Mock(MockCluster::new(1).map_err(refused)?)),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Real { .. } => "real",
            Self::Mock(_) => "mock",
        }
    }

    pub(super) fn addresses(&self) -> String {
        match self {
            Self::Real { addresses, .. } => addresses.clone(),
            Self::Mock(cluster) => cluster.bootstrap_servers(),
        }
    }

    /// Creates a topic and hands its name back. Blocks, between two runs.
    pub(super) fn create(&self, topic: &str, partitions: i32) -> Result<String, Error> {
        match self {
            Self::Real { admin, .. } => {
                let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
                let answers = futures::executor::block_on(admin.create_topics([&new], &options()));
                for answer in answers.map_err(refused)? {
                    answer.map_err(|(_, code)| refused(KafkaError::AdminOp(code)))?;
                }
            }
            Self::Mock(cluster) => cluster.create_topic(topic, partitions, 1).map_err(refused)?,
        }
        Ok(topic.to_owned())
    }

    /// Removes it again; a mock cluster forgets everything at its end.
    pub(super) fn remove(&self, topic: &str) {
        if let Self::Real { admin, .. } = self
            && let Err(error) = futures::executor::block_on(admin.delete_topics(&[topic], &options()))
        {
            tracing::warn!(%error, topic, "the topic was not removed");
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn refused(error: KafkaError) -> Error {
    let said = "the brokers did not do as they were asked; look at --brokers";
    Error::new(ErrorKind::Unavailable, said).with_source(error)
}
