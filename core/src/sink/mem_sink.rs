//! [`MemSink`]: a destination in memory, for tests of whatever drives sinks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::conformance::Held;
use super::contract::{Sink, SinkContext};
use crate::error::SinkError;
use crate::feed::{Batch, Cursor};
use crate::record::Kind;
use crate::tree::Change;

/// How long the destination takes to make something durable.
const FLUSH: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Destination {
    changes: Vec<Change>,
    closed: u64,
}

/// What a [`MemSink`] has made durable. Cheap to clone; outlives its sinks.
#[derive(Clone, Default)]
pub struct MemDestination(Arc<Mutex<Destination>>);

impl MemDestination {
    /// An empty destination.
    pub fn new() -> Self {
        Self::default()
    }

    /// A sink into it, as a process makes one when it starts.
    pub fn sink(&self) -> MemSink {
        MemSink { destination: self.clone(), run: None, flushing: Vec::new() }
    }

    /// Everything that is durable, in the order in which it came.
    pub fn changes(&self) -> Vec<Change> {
        self.0.lock().changes.clone()
    }

    /// The same, as the conformance suite reads a destination.
    pub fn held(&self) -> Vec<Held> {
        let held = |change: &Change| {
            let value = (change.kind == Kind::Set).then(|| change.value.clone());
            Held { key: change.key.clone(), value }
        };
        self.0.lock().changes.iter().map(held).collect()
    }

    /// How often a sink into it was closed.
    pub fn closed(&self) -> u64 {
        self.0.lock().closed
    }

    pub(super) fn add(&self, changes: impl IntoIterator<Item = Change>) {
        self.0.lock().changes.extend(changes);
    }
}

pub(super) struct Run {
    pub(super) ctx: SinkContext,
    pub(super) written: Cursor,
    pub(super) durable: Cursor,
}

/// Collects changes and makes them durable a moment later. Everything that is not durable dies with it.
pub struct MemSink {
    pub(super) destination: MemDestination,
    pub(super) run: Option<Run>,
    pub(super) flushing: Vec<Change>,
}

impl MemSink {
    pub(super) fn run(&mut self) -> &mut Run {
        self.run.as_mut().expect("a run begins with resume")
    }
}

#[async_trait]
impl Sink for MemSink {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.flushing.clear();
        self.run = Some(Run { ctx: ctx.clone(), written: ctx.checkpoint, durable: ctx.checkpoint });
        Ok(None)
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        let run = self.run();
        let changes = run.ctx.changes.decode(&batch, batch.start().lsn);
        run.written = batch.end();
        self.flushing.extend(changes);
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        let run = self.run();
        if run.durable == run.written {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(FLUSH).await;
        self.sync().await
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        self.destination.add(self.flushing.drain(..));
        let run = self.run();
        run.durable = run.written;
        Ok(run.durable)
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.destination.0.lock().closed += 1;
        Ok(())
    }
}
