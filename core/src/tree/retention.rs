//! What the log of a tree may forget, and how it does.

use std::time::Duration;

use super::core::Tree;
use crate::error::{Error, ErrorKind};
use crate::id::{Hlc, Lsn};
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

    /// The first position of the log from which on, in the portions in which it is trimmed, something is younger than
    /// `age` by the clock here.
    pub fn first_younger(&self, age: Duration) -> Lsn {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.0.storage.first_at_or_above(Hlc::from_millis(self.0.clock.wall_millis().saturating_sub(age)))
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
