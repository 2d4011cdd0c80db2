//! [`Fill`]: what a sink lacks that the log does not hold, and how a pump hands it over.
//!
//! Rows that come with a seed are in no log, and neither is what lies below the first position of a new sink. Both are
//! handed over as rows of the state, at one place of the log: behind everything that a seed may have overtaken, before
//! everything that may overtake it. A row that the log overwrites meanwhile is left out; the log brings what did that.
//! Whatever breaks off is begun anew: rows come again then, as everything may.

use std::fmt;
use std::sync::Arc;

use super::contract::Sink;
use super::fault::Fault;
use super::worker::Worker;
use crate::feed::{Batch, Cursor, FeedError};
use crate::id::{Lsn, SeedNumber};

/// Who learns that a sink has what came with a seed.
pub type OnFilled = Arc<dyn Fn(SeedNumber) + Send + Sync>;

/// What a sink lacks.
#[derive(Clone)]
pub struct Fill {
    /// The last seed of which it was told.
    pub seed: SeedNumber,
    /// It is new: it lacks what lies below this position, too.
    pub below: Option<Lsn>,
    /// Who learns that it lacks nothing more.
    pub on_filled: OnFilled,
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, below, .. } = self;
        f.debug_struct("Fill").field("seed", seed).field("below", below).finish_non_exhaustive()
    }
}

impl Fill {
    /// Whether something is lacking while the state holds a seed.
    pub(super) fn is_due(&self, seeded: SeedNumber) -> bool {
        self.below.is_some() || self.seed < seeded
    }
}

impl Worker {
    /// Whether the sink lacks something that the log does not hold.
    pub(super) fn owes_rows(&self) -> bool {
        self.pump.fill.as_ref().is_some_and(|fill| fill.is_due(self.pump.log.seeded()))
    }

    /// Hands over what the sink lacks that the log does not hold, and everything of the log that comes before it. Answers
    /// where to go on; None when the pump is stopped meanwhile.
    pub(super) async fn fill(&mut self, sink: &mut dyn Sink, from: Cursor) -> Result<Option<Cursor>, Fault> {
        let Some(fill) = self.pump.fill.clone() else { return Ok(Some(from)) };
        let seeded = self.pump.log.seeded();
        // Behind everything that the seed may have overtaken. A new sink was handed nothing yet.
        let at = if fill.below.is_some() { from } else { self.pump.log.end() };
        if from.lsn < at.lsn {
            let reader = self.pump.log.feed(from);
            self.feed(sink, reader, Some(at.lsn)).await?;
        }
        if self.is_stopped() || !self.hand_over_rows(sink, &fill, seeded, at).await? {
            return Ok(None);
        }
        tracing::info!(
            consumer = self.pump.name,
            seed = %seeded,
            lsn = %at.lsn,
            "what the log does not hold is delivered"
        );
        // A new sink has the state of the moment in which it looked for its first position.
        let seed = if fill.below.is_some() { fill.seed } else { seeded };
        (fill.on_filled)(seed);
        self.pump.fill = Some(Fill { seed, below: None, ..fill });
        Ok(Some(at))
    }

    /// Hands over the rows that belong to a place; false when the pump is stopped meanwhile.
    async fn hand_over_rows(
        &mut self,
        sink: &mut dyn Sink,
        fill: &Fill,
        seeded: SeedNumber,
        at: Cursor,
    ) -> Result<bool, Fault> {
        // What came with a seed is said to lie at the first position.
        let below = fill.below.unwrap_or(Lsn::ZERO.next());
        let (mut after, mut bytes) = (None, 0);
        loop {
            let some = self.pump.log.rows(below, after.as_deref());
            if self.pump.log.seeded() != seeded {
                // What came just now may belong behind more of the log.
                return Err(FeedError::Seeded.into());
            }
            if !some.rows.is_empty() {
                let batch = Batch::of_rows(some.rows, at);
                bytes += batch.bytes();
                self.owe(bytes);
                if !self.write(sink, batch).await.map_err(Fault::of_row)? {
                    return Ok(false);
                }
            }
            let more = some.after.is_some();
            if bytes > 0 && (!more || bytes >= self.pump.settings.window_bytes) {
                let synced = self.synced(sink).await.map_err(Fault::of_row)?;
                let Some(cursor) = synced else { return Ok(false) };
                // Less would be stored as where to go on, with rows behind it that are not handed over again.
                if cursor != at {
                    return Err(Fault::Claim(cursor));
                }
                bytes = 0;
                self.owe(bytes);
            }
            if !more {
                return Ok(true);
            }
            after = some.after;
            tokio::task::yield_now().await;
            if self.is_stopped() {
                return Ok(false);
            }
        }
    }
}
