//! [`System`]: what replicates from one server to another.

use std::sync::Arc;

use async_trait::async_trait;

use crate::failure::Outcome;
use crate::sights::Sights;

/// Two servers of one kind and what goes from one to the other. Starting one is [`Kind::start`](crate::kind::Kind::start):
/// then the source is there and empty, and nothing is replicated yet.
#[async_trait]
pub trait System: Send {
    /// Writes entries 0 to `entries` to the source, as fast as it goes. Only here the source may leave out its syncs; what
    /// it wrote is on disk when this returns.
    async fn load(&mut self, entries: u64) -> Outcome<()>;

    /// Starts the target, and the replication.
    async fn open(&mut self) -> Outcome<()>;

    /// How many entries are at the target: durable as far as the system syncs, and visible. Asked often.
    async fn arrived(&mut self) -> Outcome<u64>;

    /// Notes in `sights` which probes are seen at the target, for as long as what is returned lives.
    async fn watch(&mut self, sights: Sights) -> Outcome<Watch>;

    /// The source, for live writes.
    async fn source(&mut self) -> Outcome<Arc<dyn Source>>;

    /// Stops everything and removes its data.
    async fn stop(self: Box<Self>) -> Outcome<()>;
}

/// The source, for many writers at once.
#[async_trait]
pub trait Source: Send + Sync {
    /// Writes so many entries from `first` on; returns when they are durable.
    async fn write(&self, first: u64, count: u64) -> Outcome<()>;

    /// Writes a probe and notes in `sights` when it was answered.
    async fn probe(&self, number: u64, sights: &Sights) -> Outcome<()>;
}

/// Tasks that end when this is dropped.
#[derive(Default)]
pub struct Watch(Vec<tokio::task::AbortHandle>);

impl Watch {
    pub fn of(handles: impl IntoIterator<Item = tokio::task::AbortHandle>) -> Self {
        Self(handles.into_iter().collect())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
