//! [`Log`]: the reading side, recent groups from memory and older ones from the provider.

use std::sync::Arc;

use super::recent::Recent;
use super::storage::WalStorage;
use crate::error::StorageError;
use crate::id::Lsn;
use crate::record::Group;

/// What followers read. They share the recent groups.
pub struct Log {
    storage: Arc<dyn WalStorage>,
    recent: Recent,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("bounds", &self.storage.bounds()).finish_non_exhaustive()
    }
}

impl Log {
    /// The log of a provider, with room for `recent_bytes` of groups in memory.
    pub fn new(storage: Arc<dyn WalStorage>, recent_bytes: usize) -> Self {
        Self { storage, recent: Recent::new(recent_bytes) }
    }

    /// Takes note of a group that has been applied.
    pub fn remember(&self, group: &Arc<Group>) {
        self.recent.push(group.clone());
    }

    /// Whole groups from the first that reaches beyond `from`, about `limit` bytes of them.
    ///
    /// # Errors
    /// As [`WalStorage::read`].
    pub async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError> {
        match self.recent.read(from, limit) {
            Some(groups) => Ok(groups),
            None => self.storage.read(from, limit).await,
        }
    }

    /// The same out of memory alone; None if the log's files must be asked.
    pub fn recent(&self, from: Lsn, limit: usize) -> Option<Vec<Arc<Group>>> {
        self.recent.read(from, limit)
    }

    /// Bytes of recent groups in memory.
    pub fn recent_bytes(&self) -> u64 {
        self.recent.bytes()
    }

    /// Where it is stored.
    pub fn storage(&self) -> &Arc<dyn WalStorage> {
        &self.storage
    }
}
