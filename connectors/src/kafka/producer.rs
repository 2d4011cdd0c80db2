//! [`Producer`]: a client of librdkafka with the thread that polls it.
//!
//! librdkafka calls back only while somebody polls. That somebody is one named thread for each running sink: owned
//! here, started with the run and joined at its end. The last handle of the client is dropped there too, because that
//! blocks. Between two polls the thread looks up the number of partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tidewire_core::error::{SinkError, SinkErrorKind};
use tidewire_core::tasks::Tasks;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::config::KafkaConfig;
use super::progress::{Callbacks, Progress};
use super::topic::{self, Seen};
use super::{client, faults};

/// How long one poll waits. A stop and a fault are seen at its end; arrivals are told at once.
const ROUND: Duration = Duration::from_millis(10);

type Client = BaseProducer<Callbacks>;

/// A message on its way to the client's queue: slices of its batch, and its number.
pub(super) type Record<'a> = BaseRecord<'a, [u8], [u8], usize>;

/// The client of one run.
pub(super) struct Producer {
    client: Option<Arc<Client>>,
    stop: Arc<AtomicBool>,
    ended: Option<oneshot::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// Creates the client and starts to poll it.
    pub(super) async fn start(
        tasks: &Tasks,
        config: &KafkaConfig,
        topic: &str,
        progress: &Arc<Progress>,
    ) -> Result<Self, SinkError> {
        let (config, callbacks) = (config.clone(), Callbacks(progress.clone()));
        let check = config.partition_check.get();
        // Reads certificates and secrets.
        let create = move || {
            let client = client::producer(&config)?;
            client
                .create_with_context(callbacks)
                .map_err(|error| faults::refused("creating the client", &error))
        };
        let created = tasks.blocking(create).await.map_err(unfinished)?;
        let client: Arc<Client> = Arc::new(created?);
        let stop = Arc::new(AtomicBool::new(false));
        let (end, ended) = oneshot::channel();
        let mut poller = Poller {
            client: client.clone(),
            progress: progress.clone(),
            topic: topic.to_owned(),
            check,
            next_check: Instant::now() + check,
        };
        let stopped = stop.clone();
        let run = move || {
            while !stopped.load(Ordering::Acquire) {
                poller.round();
            }
            drop(poller);
            // Nobody waits any more when a sink was dropped instead of closed.
            let _ = end.send(());
        };
        // The polling thread that librdkafka needs; joined by `stop`.
        let thread = std::thread::Builder::new().name("kafka poll".to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            SinkError::new(SinkErrorKind::Transient, "no thread for polling; it is tried again")
                .with_source(error)
        })?;
        Ok(Self { client: Some(client), stop, ended: Some(ended), thread: Some(thread) })
    }

    fn client(&self) -> &Arc<Client> {
        self.client.as_ref().expect("the client is there until the stop")
    }

    /// Puts a message into the client's queue. Never blocks.
    #[expect(clippy::result_large_err, reason = "the record is handed back to be tried again")]
    pub(super) fn send<'a>(
        &self,
        record: Record<'a>,
    ) -> Result<(), (rdkafka::error::KafkaError, Record<'a>)> {
        self.client().send(record)
    }

    /// Asks for the topic.
    pub(super) async fn look(&self, tasks: &Tasks, topic: &str) -> Result<Seen, SinkError> {
        let (client, topic) = (self.client().clone(), topic.to_owned());
        tasks.blocking(move || topic::look(client.client(), &topic)).await.map_err(unfinished)?
    }

    /// Drops what is still in the queue, and waits until the thread and the client are gone.
    pub(super) async fn stop(&mut self) {
        self.signal();
        if let Some(ended) = self.ended.take() {
            // An error says that the thread is gone, too.
            let _ = ended.await;
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the polling thread of a kafka sink panicked");
        }
    }

    /// The thread's handle of the client has to be the last one, so this one goes first.
    fn signal(&mut self) {
        self.client = None;
        self.stop.store(true, Ordering::Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.signal();
    }
}

fn unfinished(error: tidewire_core::error::Error) -> SinkError {
    SinkError::new(SinkErrorKind::Transient, "the client did not answer").with_source(error)
}

/// What the thread does.
struct Poller {
    client: Arc<Client>,
    progress: Arc<Progress>,
    topic: String,
    check: Duration,
    next_check: Instant,
}

impl Poller {
    fn round(&mut self) {
        self.client.poll(ROUND);
        self.progress.end_round();
        if Instant::now() >= self.next_check {
            // What is not known now is asked again; what went wrong for good shows at the next message.
            if let Ok(Seen::Partitions(count)) = topic::look(self.client.client(), &self.topic) {
                self.progress.see_partitions(count);
            }
            self.next_check = Instant::now() + self.check;
        }
    }
}
