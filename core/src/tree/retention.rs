//! What the log of a tree may forget, and how it does.

use super::core::Tree;
use crate::error::{Error, ErrorKind};
use crate::id::Lsn;
use crate::wal::{Bounds, WalStorage};

impl Tree {
    /// What its log would hold after a trim, as far as files go.
    pub fn bounds_after_trim(&self, before: Lsn) -> Bounds {
        self.0.storage.bounds_after_trim(before)
    }

    /// What its log holds.
    pub fn bounds(&self) -> Bounds {
        self.0.storage.bounds()
    }

    /// Lets go of whole segments of the log below a position, and says what it holds then. For the collector: consumers
    /// are not asked here.
    ///
    /// # Errors
    /// `Refused` above the tree's own checkpoint: opening it would need what is gone. `Unavailable` when the trim point
    /// cannot be stored; nothing is removed then.
    pub async fn trim(&self, before: Lsn) -> Result<Bounds, Error> {
        let checkpoint = self.checkpoint();
        if before > checkpoint.max(self.bounds().first) {
            let said =
                format!("the log is needed from {checkpoint} on to open the tree; take a snapshot first");
            return Err(Error::new(ErrorKind::Refused, said));
        }
        let gone = self.bounds().trimmed_records;
        self.0.storage.trim(before).await?;
        let bounds = self.bounds();
        self.0.gauges.trimmed.inc_by(bounds.trimmed_records - gone);
        Ok(bounds)
    }
}
