//! [`KafkaSink`]: the five calls.

use async_trait::async_trait;
use tidewire_core::error::SinkError;
use tidewire_core::feed::{Batch, Cursor};
use tidewire_core::sink::{Sink, SinkContext};

use super::config::KafkaConfig;
use super::run::Run;
use crate::InvalidSettings;

/// Delivers each effective change of a tree to a topic, at least once.
pub struct KafkaSink {
    config: KafkaConfig,
    run: Option<Run>,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// A sink with these settings. Reaches no broker and creates nothing until the first change comes.
    ///
    /// # Errors
    /// When the settings cannot work.
    pub fn new(config: KafkaConfig) -> Result<Self, InvalidSettings> {
        Ok(Self { config: config.validate()?, run: None })
    }

    /// Makes the run believe that the topic had so many partitions until now.
    #[cfg(test)]
    pub(super) fn believe_partitions(&mut self, count: u32) {
        self.run().believe_partitions(count);
    }

    /// The partitions that were counted last.
    #[cfg(test)]
    pub(super) fn seen_partitions(&mut self) -> u32 {
        self.run().seen_partitions()
    }

    fn run(&mut self) -> &mut Run {
        self.run.as_mut().expect("a run begins with resume")
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.run = Some(Run::new(self.config.clone(), ctx.clone()));
        Ok(None) // a topic knows no position: go on at the checkpoint
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        self.run().write(&batch).await
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        self.run().durable().await
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        self.run().sync().await
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        // What has not arrived is dropped from the queue, and comes again in the next run.
        if let Some(mut run) = self.run.take() {
            run.stop().await;
        }
        Ok(())
    }
}
