//! [`Run`]: one run of a sink, from the first record to the close.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::BaseRecord;
use tidewire_core::error::{SinkError, SinkErrorKind};
use tidewire_core::feed::{Batch, Cursor};
use tidewire_core::record::Kind;
use tidewire_core::sink::SinkContext;
use tidewire_core::tree::Change;
use tokio::time::{Instant, sleep, sleep_until};

use super::config::{KafkaConfig, ValueFormat};
use super::ledger::Ledger;
use super::partitioner::partition_of;
use super::producer::{Producer, Record};
use super::progress::{Arrived, Awaited, Progress};
use super::stall::Stall;
use super::stamp::Stamp;
use super::topic::Seen;
use super::{faults, topic, topic_name};
use crate::json::write_change;

/// Keys of a range delete that are looked up at once.
const REMOVED_AT_ONCE: usize = 1_000;
/// Between two questions that the brokers have not settled.
const PAUSE: Duration = Duration::from_millis(100);
/// The client frees the room of arrived messages a moment after it has told of them.
const ROOM_PAUSE: Duration = Duration::from_millis(5);
const ROOM_PAUSES: u32 = 200;

/// What lasts from one `resume` to the `close` behind it.
pub(super) struct Run {
    config: KafkaConfig,
    ctx: SinkContext,
    topic: Arc<str>,
    progress: Arc<Progress>,
    /// None until there is something to deliver.
    producer: Option<Producer>,
    partitions: u32,
    /// The number of the next message.
    next: u64,
    ledger: Ledger,
    stall: Stall,
    stamp: Stamp,
    envelope: Vec<u8>,
}

impl Run {
    pub(super) fn new(config: KafkaConfig, ctx: SinkContext) -> Self {
        let topic = topic_name::of(&config.topic, ctx.log.identity().tree.as_str()).into();
        let stall = Stall::new(config.stall_after.get(), Instant::now());
        Self {
            config,
            ctx,
            topic,
            progress: Arc::new(Progress::new()),
            producer: None,
            partitions: 0,
            next: 0,
            ledger: Ledger::default(),
            stall,
            stamp: Stamp::default(),
            envelope: Vec::new(),
        }
    }

    /// Hands the effective changes of a batch to the client.
    pub(super) async fn write(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.progress.look()?;
        let view = self.ctx.changes.clone();
        let changes = view.decode(batch, batch.start().lsn);
        if !changes.is_empty() {
            self.connect().await?;
            self.follow_partitions().await?;
        }
        let mut group = 0;
        let mut end = batch.cursor_after(1);
        for change in &changes {
            while change.lsn >= end.lsn && group < batch.groups().len() {
                group += 1;
                self.ledger.end(self.next, end);
                end = batch.cursor_after(group + 1);
            }
            self.change(change).await?;
        }
        self.ledger.end(self.next, batch.end());
        Ok(())
    }

    /// Ready when more is durable than was answered.
    pub(super) async fn durable(&mut self) -> Result<Cursor, SinkError> {
        loop {
            let arrived = self.progress.look()?;
            if let Some(news) = self.ledger.news(arrived.prefix) {
                return Ok(news);
            }
            self.wait(self.ledger.awaited().map_or(Awaited::Nothing, Awaited::Prefix)).await?;
        }
    }

    /// Waits until every message has arrived; what is durable then is answered with that.
    pub(super) async fn sync(&mut self) -> Result<Cursor, SinkError> {
        let durable = self.settle().await?;
        self.ledger.answer(durable);
        Ok(durable)
    }

    /// Waits until every message has arrived.
    async fn settle(&mut self) -> Result<Cursor, SinkError> {
        loop {
            let arrived = self.progress.look()?;
            let durable = self.ledger.advance(arrived.prefix);
            if arrived.prefix >= self.next {
                return Ok(durable.unwrap_or(self.ctx.checkpoint));
            }
            self.wait(Awaited::Prefix(self.next)).await?;
        }
    }

    pub(super) async fn stop(&mut self) {
        if let Some(mut producer) = self.producer.take() {
            producer.stop().await;
        }
    }

    /// Waits for arrivals, and for a stall. May wake early.
    async fn wait(&mut self, awaited: Awaited) -> Result<Arrived, SinkError> {
        let arrived = self.progress.look()?;
        let (now, waiting) = (Instant::now(), self.next - arrived.total);
        if self.stall.check(now, arrived.total, waiting) {
            let said = format!(
                "topic {}: {waiting} messages wait and none arrived for {}; the client says: {}; look at the brokers \
                 {}, it is tried again",
                self.topic,
                self.config.stall_after,
                self.progress.brokers(),
                self.config.brokers
            );
            return Err(SinkError::new(SinkErrorKind::Transient, said));
        }
        if waiting == 0 {
            self.progress.wait(awaited).await;
        } else {
            tokio::select! { biased;
                () = self.progress.wait(awaited) => {}
                () = sleep_until(self.stall.next_check(now)) => {}
            }
        }
        self.progress.look()
    }

    /// Starts the client and finds the topic, when the first record comes.
    async fn connect(&mut self) -> Result<(), SinkError> {
        if self.producer.is_none() {
            let tasks = self.ctx.tasks.clone();
            self.producer = Some(Producer::start(&tasks, &self.config, &self.topic, &self.progress).await?);
        }
        if self.partitions == 0 {
            self.partitions = self.find_topic().await?;
            self.progress.see_partitions(self.partitions);
            tracing::debug!(topic = %self.topic, partitions = self.partitions, "delivering");
        }
        Ok(())
    }

    async fn find_topic(&self) -> Result<u32, SinkError> {
        let tasks = self.ctx.tasks.clone();
        let (mut created, mut last) = (false, "no answer yet".to_owned());
        let end = Instant::now() + self.config.connect_timeout.get();
        while Instant::now() < end {
            match self.producer().look(&tasks, &self.topic).await? {
                Seen::Partitions(count) => return Ok(count),
                Seen::Missing if !self.config.create_topic => {
                    let said = format!(
                        "topic {} does not exist and create_topic is false; create it, or allow that",
                        self.topic
                    );
                    return Err(SinkError::new(SinkErrorKind::Config, said));
                }
                Seen::Missing if !created => {
                    let (config, topic) = (self.config.clone(), self.topic.clone());
                    let creation = tasks.blocking(move || topic::create(&config, &topic)).await;
                    creation.map_err(|error| {
                        SinkError::new(SinkErrorKind::Transient, "no answer").with_source(error)
                    })??;
                    created = true;
                }
                Seen::Missing => last = "it was created and does not show yet".to_owned(),
                Seen::Unsettled(code) => last = code.to_string(),
            }
            self.progress.look()?;
            sleep(PAUSE).await;
        }
        let said = format!(
            "topic {} not found at {} within {} ({last}; the client says: {}); look at the brokers, it is tried again",
            self.topic,
            self.config.brokers,
            self.config.connect_timeout,
            self.progress.brokers()
        );
        Err(SinkError::new(SinkErrorKind::Destination, said))
    }

    /// A change of the number of partitions moves keys. So it is a barrier: everything before it arrives first.
    async fn follow_partitions(&mut self) -> Result<(), SinkError> {
        let now = self.progress.partitions();
        if now != self.partitions {
            self.settle().await?;
            let before = std::mem::replace(&mut self.partitions, now);
            tracing::warn!(
                topic = %self.topic,
                before,
                now,
                "the topic's partitions changed; keys move to others"
            );
        }
        Ok(())
    }

    async fn change(&mut self, change: &Change) -> Result<(), SinkError> {
        let view = self.ctx.changes.clone();
        let headers = self.stamp.headers(view.as_ref(), change);
        let json = self.config.value == ValueFormat::Json;
        match change.kind {
            Kind::Mark => Ok(()),
            Kind::Delete => self.send(Some(&change.key), None, headers).await,
            Kind::Set if !json && view.is_forgotten(change) => {
                self.send(Some(&change.key), None, headers).await
            }
            Kind::Set if !json => self.send(Some(&change.key), Some(&change.value), headers).await,
            Kind::Set => {
                let envelope = self.envelop(change);
                let sent = self.send(Some(&change.key), Some(&envelope), headers).await;
                self.envelope = envelope;
                sent
            }
            Kind::DeleteRange if json => {
                let envelope = self.envelop(change);
                for partition in 0..i32::try_from(self.partitions).unwrap_or(i32::MAX) {
                    self.send_to(partition, None, Some(&envelope), headers.clone()).await?;
                }
                self.envelope = envelope;
                Ok(())
            }
            Kind::DeleteRange => self.remove_range(change, &headers).await,
        }
    }

    /// A tombstone for each key that the range delete removed here. What was set since has a message of its own.
    async fn remove_range(&mut self, change: &Change, headers: &OwnedHeaders) -> Result<(), SinkError> {
        let view = self.ctx.changes.clone();
        let mut after = None;
        loop {
            let keys = view.removed(change, after.as_deref(), REMOVED_AT_ONCE);
            for key in &keys {
                self.send(Some(key), None, headers.clone()).await?;
            }
            if keys.len() < REMOVED_AT_ONCE {
                return Ok(());
            }
            after = keys.into_iter().next_back();
        }
    }

    fn envelop(&mut self, change: &Change) -> Vec<u8> {
        let mut envelope = std::mem::take(&mut self.envelope);
        envelope.clear();
        let tree = self.ctx.log.identity().tree;
        write_change(&mut envelope, &tree, self.ctx.changes.as_ref(), change);
        envelope
    }

    async fn send(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: OwnedHeaders,
    ) -> Result<(), SinkError> {
        let partition = key.map_or(0, |key| partition_of(key, self.partitions));
        self.send_to(partition, key, value, headers).await
    }

    async fn send_to(
        &mut self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: OwnedHeaders,
    ) -> Result<(), SinkError> {
        let number = usize::try_from(self.next).expect("a run sends fewer messages than a word can count");
        let topic = self.topic.clone();
        let mut record: Record<'_> = BaseRecord::with_opaque_to(&topic, number).partition(partition);
        record.key = key;
        record.payload = value;
        record.headers = Some(headers);
        let mut pauses = 0;
        loop {
            let refused = match self.producer().send(record) {
                Ok(()) => {
                    self.next += 1;
                    return Ok(());
                }
                Err(refused) => refused,
            };
            let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            match refused {
                (KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)
                    if pauses < ROOM_PAUSES =>
                {
                    record = back;
                    pauses += self.make_room().await?;
                }
                (KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _) => {
                    let said = format!(
                        "a message of {bytes} bytes does not fit into queue_bytes = {}; raise it",
                        self.config.queue_bytes
                    );
                    return Err(SinkError::new(SinkErrorKind::Config, said));
                }
                (error, _) => {
                    let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                    return Err(faults::undelivered(&self.topic, code, bytes));
                }
            }
        }
    }

    /// The queue is full: waits until a quarter of what waits has arrived, so that not every arrival wakes. Counts the
    /// times when nothing waited.
    async fn make_room(&mut self) -> Result<u32, SinkError> {
        let arrived = self.progress.look()?;
        let waiting = self.next - arrived.total;
        if waiting == 0 {
            sleep(ROOM_PAUSE).await;
            return Ok(1);
        }
        self.wait(Awaited::Total(arrived.total + (waiting / 4).max(1))).await?;
        Ok(0)
    }

    #[cfg(test)]
    pub(super) fn believe_partitions(&mut self, count: u32) {
        self.partitions = count;
        self.progress.see_partitions(count);
    }

    #[cfg(test)]
    pub(super) fn seen_partitions(&self) -> u32 {
        self.progress.partitions()
    }

    fn producer(&self) -> &Producer {
        self.producer.as_ref().expect("connected before anything is sent")
    }
}
