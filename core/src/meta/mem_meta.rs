//! [`MemMeta`]: metadata in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::contract::{MetaChange, MetaStore};
use crate::error::{MetaError, MetaErrorKind};

/// Metadata in memory. Clones are the same store, seen by the same process.
///
/// Everything is durable at once. [`crash`](Self::crash) ends a process: from then on what it holds fails.
#[derive(Clone, Default)]
pub struct MemMeta(Arc<Mutex<State>>);

#[derive(Clone, Default)]
struct State {
    entries: BTreeMap<String, Bytes>,
    dead: bool,
}

impl State {
    fn check(&self) -> Result<(), MetaError> {
        if self.dead {
            return Err(MetaError::new(
                MetaErrorKind::Closed,
                "the process that opened this store has crashed",
            ));
        }
        Ok(())
    }
}

impl MemMeta {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process dies: the store for the next one. This value and its clones fail from here on.
    #[must_use = "this store is dead from here on"]
    pub fn crash(&self) -> Self {
        let mut state = self.0.lock();
        let next = Self(Arc::new(Mutex::new(State { entries: state.entries.clone(), dead: false })));
        state.dead = true;
        next
    }

    /// An independent store with the same entries: a backup.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().clone())))
    }
}

#[async_trait]
impl MetaStore for MemMeta {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError> {
        let state = self.0.lock();
        state.check()?;
        Ok(state.entries.get(key).cloned())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError> {
        let state = self.0.lock();
        state.check()?;
        let from_prefix = state.entries.range(prefix.to_owned()..);
        Ok(from_prefix
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError> {
        let mut state = self.0.lock();
        state.check()?;
        for change in &changes {
            if let MetaChange::Expect { key, value } = change
                && state.entries.get(key) != value.as_ref()
            {
                return Err(MetaError::new(MetaErrorKind::Conflict, format!("{key} has changed")));
            }
        }
        for change in changes {
            match change {
                MetaChange::Put { key, value } => drop(state.entries.insert(key, value)),
                MetaChange::Delete { key } => drop(state.entries.remove(&key)),
                MetaChange::Expect { .. } => {}
            }
        }
        Ok(())
    }
}
