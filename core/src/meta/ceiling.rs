//! [`StoredCeiling`]: the clock's ceiling, kept in a metadata store.

use std::sync::Arc;

use async_trait::async_trait;

use super::contract::{MetaChange, MetaStore};
use crate::clock::CeilingStore;
use crate::error::{MetaError, MetaErrorKind};
use crate::id::Hlc;

const KEY: &str = "clock/ceiling";

/// Keeps the ceiling of a cluster's clock under `clock/ceiling`: eight bytes, little endian.
pub struct StoredCeiling(Arc<dyn MetaStore>);

impl StoredCeiling {
    /// The ceiling in this store.
    pub fn new(store: Arc<dyn MetaStore>) -> Self {
        Self(store)
    }
}

#[async_trait]
impl CeilingStore for StoredCeiling {
    async fn load(&self) -> Result<Hlc, MetaError> {
        let Some(value) = self.0.get(KEY).await? else { return Ok(Hlc::ZERO) };
        let bytes = value.as_ref().try_into().map_err(|_| {
            MetaError::new(
                MetaErrorKind::Corrupt,
                format!("{KEY} has {} bytes instead of 8; restore the metadata from a backup", value.len()),
            )
        })?;
        Ok(Hlc::new(u64::from_le_bytes(bytes)))
    }

    async fn store(&self, ceiling: Hlc) -> Result<(), MetaError> {
        let value = ceiling.get().to_le_bytes().to_vec();
        self.0.commit(vec![MetaChange::put(KEY, value)]).await
    }
}
