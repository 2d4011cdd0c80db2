//! [`Sink`]: the five calls of a consumer.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::SinkError;
use crate::feed::{Batch, Cursor};
use crate::random::Random;
use crate::tasks::Tasks;
use crate::tree::{ChangeView, LogView};

/// What a sink is given when it starts.
#[derive(Clone)]
pub struct SinkContext {
    /// The log that it reads.
    pub log: Arc<dyn LogView>,
    /// Decodes what it is given.
    pub changes: Arc<dyn ChangeView>,
    /// Where the run starts unless the destination itself knows better: what was durable last, or the beginning.
    pub checkpoint: Cursor,
    /// For work that blocks: [`Tasks::blocking`].
    pub tasks: Tasks,
    /// The seeded generator of this consumer.
    pub random: Random,
}

/// A destination of the feed. One pump drives it: one call at a time, in log order.
///
/// Durability is cumulative: one cursor acknowledges everything before it. A cursor answered as durable is never taken
/// back within a run. An error ends the run; the pump backs off and calls `resume` again.
#[async_trait]
pub trait Sink: Send {
    /// What it is, as `type` in a configuration and in status.
    fn kind(&self) -> &'static str {
        "custom"
    }

    /// Called at the start of every run. Where the destination itself says it is, because it keeps the position with
    /// the data; or None: the pump starts at the checkpoint.
    ///
    /// # Errors
    /// `Config` stops the sink until its settings change; anything else is tried again later.
    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError>;

    /// Takes a batch over; may wait, which pushes back on the feed. Not cancel-safe, and never cancelled but by the end
    /// of the run. A batch without records is progress of the cursor and of what is resolved, not a barrier. One with rows of
    /// the state has changes and does not move the cursor: [`durable`](Self::durable) owes nothing for it, `sync` does.
    ///
    /// # Errors
    /// Any error ends the run.
    async fn write(&mut self, batch: Batch) -> Result<(), SinkError>;

    /// Ready when the durable position has passed what was last answered. Cancel-safe: the pump waits for it and for
    /// the feed at once. A sink with nothing outstanding stays pending, and may use the time to serve its connection.
    ///
    /// # Errors
    /// Any error ends the run.
    async fn durable(&mut self) -> Result<Cursor, SinkError>;

    /// Makes everything durable that was taken over, and answers up to where.
    ///
    /// # Errors
    /// Any error ends the run.
    async fn sync(&mut self) -> Result<Cursor, SinkError>;

    /// Ends the run in order: called once, also after an error.
    ///
    /// # Errors
    /// Logged; nothing else comes of it.
    async fn close(&mut self) -> Result<(), SinkError>;
}

#[async_trait]
impl Sink for Box<dyn Sink> {
    fn kind(&self) -> &'static str {
        self.as_ref().kind()
    }

    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.as_mut().resume(ctx).await
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        self.as_mut().write(batch).await
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        self.as_mut().durable().await
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        self.as_mut().sync().await
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.as_mut().close().await
    }
}
