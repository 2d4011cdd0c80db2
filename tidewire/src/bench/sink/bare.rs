//! The bare loop: what whoever only wants messages in Kafka would write with the same client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidewire_connectors::kafka::KafkaConfig;
use tidewire_connectors::kafka::rdkafka::ClientContext;
use tidewire_connectors::kafka::rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidewire_connectors::kafka::rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use tidewire_connectors::kafka::rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tokio::time::Instant;

use super::{PATIENCE, VALUE_BYTES, key};

/// Whether the messages carry the headers of the sink's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    Same,
    None,
}

#[derive(Default)]
struct Count {
    delivered: AtomicU64,
    failed: AtomicU64,
}

struct Counting(Arc<Count>);

impl ClientContext for Counting {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
    }
}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.0.delivered } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// From the creation of the client to the last message delivered.
pub(super) async fn produce(
    config: KafkaConfig,
    topic: &str,
    entries: u64,
    headers: Headers,
) -> Result<Duration, Error> {
    let topic = topic.to_owned();
    let work = move || work(&config, &topic, entries, headers);
    Tasks::new(Threads::Spawn).blocking(work).await?
}

#[expect(clippy::disallowed_methods, reason = "a plain loop on a thread for blocking work")]
fn work(config: &KafkaConfig, topic: &str, entries: u64, headers: Headers) -> Result<Duration, Error> {
    let failed = |error: KafkaError| {
        Error::new(ErrorKind::Unavailable, "the bare loop could not deliver").with_source(error)
    };
    let began = Instant::now();
    let mut client = config.client().map_err(Error::from)?;
    // The same function of the key as the sink's own, in the client.
    client.set("partitioner", "murmur2");
    let count = Arc::new(Count::default());
    let producer: ThreadedProducer<Counting> =
        client.create_with_context(Counting(count.clone())).map_err(failed)?;
    let value = vec![b'v'; VALUE_BYTES];
    for at in 0..entries {
        let key = key(at);
        let mut record = BaseRecord::to(topic).key(key.as_str()).payload(value.as_slice());
        if headers == Headers::Same {
            record = record.headers(same_headers(at));
        }
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(failed(error)),
            }
        }
    }
    while count.delivered.load(Ordering::Relaxed) < entries {
        if count.failed.load(Ordering::Relaxed) > 0 || began.elapsed() > PATIENCE {
            return Err(failed(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(began.elapsed())
}

/// As many bytes as the sink's; the numbers are the entry's own.
fn same_headers(at: u64) -> OwnedHeaders {
    let hlc = (117_000_000_000_000_000 + at).to_string();
    let dot = format!("sender/{}/{}", at % 8, at / 8);
    OwnedHeaders::new_with_capacity(5)
        .insert(Header { key: "tw-origin", value: Some("sender") })
        .insert(Header { key: "tw-hlc", value: Some(&hlc) })
        .insert(Header { key: "tw-dot", value: Some(&dot) })
        .insert(Header { key: "tw-op", value: Some("set") })
}
