//! [`FaultyMeta`]: any store of metadata, with faults.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::contract::{MetaChange, MetaStore};
use crate::error::{MetaError, MetaErrorKind};

/// A store that does what another one does, but for the faults that were ordered. Clones share store and faults.
#[derive(Clone)]
pub struct FaultyMeta {
    inner: Arc<dyn MetaStore>,
    plan: Arc<Mutex<Plan>>,
    hung: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct Plan {
    next: u64,
    commits: u64,
    all: bool,
}

impl FaultyMeta {
    /// No faults yet.
    pub fn new(inner: Arc<dyn MetaStore>) -> Self {
        Self { inner, plan: Arc::default(), hung: Arc::new(watch::Sender::new(false)) }
    }

    /// The next calls, so many of them, fail without an effect.
    pub fn fail_next(&self, calls: u64) {
        self.plan.lock().next = calls;
    }

    /// The next transactions, so many of them, fail without an effect; reads work.
    pub fn fail_next_commits(&self, commits: u64) {
        self.plan.lock().commits = commits;
    }

    /// All calls fail without an effect.
    pub fn fail_all(&self) {
        self.plan.lock().all = true;
    }

    /// All calls wait before they have an effect.
    pub fn hang(&self) {
        self.hung.send_replace(true);
    }

    /// The end of all faults; what hangs goes on.
    pub fn heal(&self) {
        *self.plan.lock() = Plan::default();
        self.hung.send_replace(false);
    }

    async fn admit(&self, commits: bool) -> Result<(), MetaError> {
        // The sender lives as long as this store, so the wait ends with healing only.
        let _ = self.hung.subscribe().wait_for(|hung| !hung).await;
        let mut plan = self.plan.lock();
        let counted = if plan.next > 0 {
            plan.next -= 1;
            true
        } else if commits && plan.commits > 0 {
            plan.commits -= 1;
            true
        } else {
            false
        };
        if counted || plan.all {
            return Err(MetaError::new(MetaErrorKind::Io, "the metadata store failed as ordered"));
        }
        Ok(())
    }
}

#[async_trait]
impl MetaStore for FaultyMeta {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError> {
        self.admit(false).await?;
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError> {
        self.admit(false).await?;
        self.inner.list(prefix).await
    }

    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError> {
        self.admit(true).await?;
        self.inner.commit(changes).await
    }
}
