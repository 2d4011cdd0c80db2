//! [`FaultySink`]: any sink, failing on order.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::contract::{Sink, SinkContext};
use crate::error::{SinkError, SinkErrorKind};
use crate::feed::{Batch, Cursor};
use crate::tree::Change;

/// A call of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkCall {
    /// `resume`.
    Resume,
    /// `write`.
    Write,
    /// `durable`.
    Durable,
    /// `sync`.
    Sync,
    /// `close`.
    Close,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFault {
    /// It answers with an error of this kind, before the call reaches the sink.
    Fail(SinkErrorKind),
    /// It never answers.
    Hang,
    /// It panics.
    Panic,
    /// It answers this much later than it would.
    Late(Duration),
}

type Rejects = Box<dyn Fn(&Change) -> bool + Send>;

#[derive(Default)]
struct Script {
    /// What comes of which call, after how many calls of it have gone well.
    orders: Vec<(SinkCall, u64, SinkFault)>,
    rejects: Option<Rejects>,
    calls: Vec<SinkCall>,
}

/// The script of a [`FaultySink`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct SinkFaults(Arc<Mutex<Script>>);

impl SinkFaults {
    /// Nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// A sink with this script.
    pub fn wrap(&self, sink: impl Sink + 'static) -> FaultySink {
        FaultySink { sink: Box::new(sink), faults: self.clone(), context: None, answer: None }
    }

    /// After `good` calls more of this kind that go well, one does not. Orders for the same call are carried out in turn.
    pub fn order(&self, call: SinkCall, good: u64, fault: SinkFault) {
        self.0.lock().orders.push((call, good, fault));
    }

    /// The next `count` calls of this kind go wrong.
    pub fn order_next(&self, call: SinkCall, count: u64, fault: SinkFault) {
        (0..count).for_each(|_| self.order(call, 0, fault));
    }

    /// A batch with such a change in it is refused as a fault of a record.
    pub fn reject(&self, rejects: impl Fn(&Change) -> bool + Send + 'static) {
        self.0.lock().rejects = Some(Box::new(rejects));
    }

    /// Takes every change again, and forgets what was ordered.
    pub fn heal(&self) {
        let mut script = self.0.lock();
        script.orders.clear();
        script.rejects = None;
    }

    /// How often a call was made.
    pub fn calls(&self, call: SinkCall) -> usize {
        self.0.lock().calls.iter().filter(|made| **made == call).count()
    }

    fn next(&self, call: SinkCall) -> Option<SinkFault> {
        let mut script = self.0.lock();
        script.calls.push(call);
        let at = script.orders.iter().position(|(of, ..)| *of == call)?;
        match &mut script.orders[at].1 {
            0 => Some(script.orders.remove(at).2),
            good => {
                *good -= 1;
                None
            }
        }
    }

    async fn act(&self, call: SinkCall) -> Result<(), SinkError> {
        Self::carry_out(call, self.next(call)).await
    }

    async fn carry_out(call: SinkCall, fault: Option<SinkFault>) -> Result<(), SinkError> {
        match fault {
            None => Ok(()),
            Some(SinkFault::Fail(kind)) => Err(SinkError::new(kind, format!("{call:?} fails on order"))),
            Some(SinkFault::Hang) => std::future::pending().await,
            Some(SinkFault::Late(by)) => {
                tokio::time::sleep(by).await;
                Ok(())
            }
            #[expect(clippy::panic, reason = "on order")]
            Some(SinkFault::Panic) => panic!("{call:?} panics on order"),
        }
    }
}

/// A sink that does what its script says, and otherwise what the sink inside does.
pub struct FaultySink {
    sink: Box<dyn Sink>,
    faults: SinkFaults,
    context: Option<SinkContext>,
    answer: Option<(Cursor, Option<SinkFault>)>,
}

#[async_trait]
impl Sink for FaultySink {
    fn kind(&self) -> &'static str {
        self.sink.kind()
    }

    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        self.faults.act(SinkCall::Resume).await?;
        (self.context, self.answer) = (Some(ctx.clone()), None);
        self.sink.resume(ctx).await
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        self.faults.act(SinkCall::Write).await?;
        if let Some(context) = &self.context {
            let changes = context.changes.decode(&batch, batch.start().lsn);
            let script = self.faults.0.lock();
            let refused =
                script.rejects.as_ref().and_then(|rejects| changes.iter().find(|change| rejects(change)));
            if let Some(change) = refused {
                let said = format!("the record at {} is refused on order", change.lsn);
                return Err(SinkError::new(SinkErrorKind::Record, said));
            }
        }
        self.sink.write(batch).await
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        // Not acted on before there is an answer, and the answer is kept: a wait that is dropped is no call.
        let (durable, fault) = match self.answer {
            Some(answer) => answer,
            None => {
                let durable = self.sink.durable().await?;
                *self.answer.insert((durable, self.faults.next(SinkCall::Durable)))
            }
        };
        SinkFaults::carry_out(SinkCall::Durable, fault).await?;
        self.answer = None;
        Ok(durable)
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        self.faults.act(SinkCall::Sync).await?;
        self.sink.sync().await
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.faults.act(SinkCall::Close).await?;
        self.sink.close().await
    }
}
