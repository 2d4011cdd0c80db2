//! [`JsonlSink`]: the five calls of a sink, as plainly as they can be made.

use std::sync::Arc;

use async_trait::async_trait;
use tidewire_core::disk::{Disk, RealDisk};
use tidewire_core::error::SinkError;
use tidewire_core::feed::{Batch, Cursor};
use tidewire_core::sink::{Sink, SinkContext};

use super::config::JsonlConfig;
use super::encode::lines;
use super::output::Output;
use crate::InvalidSettings;

/// Writes each effective change as one line of JSON.
pub struct JsonlSink {
    output: Output,
    run: Option<Run>,
}

/// What lasts from one `resume` to the next.
struct Run {
    ctx: SinkContext,
    written: Cursor,
    durable: Cursor,
    /// Lines were appended since the last sync.
    appended: bool,
}

impl JsonlSink {
    /// A sink with these settings. Touches nothing until the first change comes.
    ///
    /// # Errors
    /// When the settings cannot work.
    pub fn new(config: JsonlConfig) -> Result<Self, InvalidSettings> {
        Self::on(Arc::new(RealDisk), config)
    }

    /// The same on another disk.
    ///
    /// # Errors
    /// When the settings cannot work.
    pub fn on(disk: Arc<dyn Disk>, config: JsonlConfig) -> Result<Self, InvalidSettings> {
        let config = config.validate()?;
        let output = if config.is_stdout() { Output::stdout() } else { Output::file(disk, config.path) };
        Ok(Self { output, run: None })
    }

    fn run(&mut self) -> &mut Run {
        self.run.as_mut().expect("a run begins with resume")
    }
}

#[async_trait]
impl Sink for JsonlSink {
    fn kind(&self) -> &'static str {
        "jsonl"
    }

    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.output.open(&ctx.tasks).await?;
        let start = ctx.checkpoint;
        self.run = Some(Run { ctx: ctx.clone(), written: start, durable: start, appended: false });
        Ok(None) // a file of lines knows no position: go on at the checkpoint
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        let output = self.output.clone();
        let run = self.run();
        let lines = lines(&run.ctx, &batch);
        if !lines.is_empty() {
            run.appended = true; // rows of the state do not move the cursor, and are to be synced all the same
            output.append(&run.ctx.tasks, lines).await?;
        }
        run.written = batch.end(); // also of a batch without records: it moves the cursor
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        let run = self.run();
        if run.durable.lsn >= run.written.lsn {
            std::future::pending::<()>().await; // nothing is outstanding
        }
        self.sync().await // when this is dropped halfway, nothing was answered and the next call syncs again
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        let output = self.output.clone();
        let run = self.run();
        if run.appended || run.durable.lsn < run.written.lsn {
            output.sync(&run.ctx.tasks).await?;
            (run.durable, run.appended) = (run.written, false);
        }
        Ok(run.durable)
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(()) // what was appended and not synced comes again in the next run
    }
}
