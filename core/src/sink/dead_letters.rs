//! [`DeadLetters`]: records that a destination will never take, parked durably and within a bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::dead_letter::DeadLetter;
use crate::error::{Error, ErrorKind};
use crate::feed::{Batch, Cursor};
use crate::id::{Incarnation, Lsn, SinkName, TreeName};
use crate::meta::{MetaChange, MetaStore};

/// The dead letters of one sink. What is in here is left out when the log is read for this sink.
pub struct DeadLetters {
    meta: Arc<dyn MetaStore>,
    prefix: String,
    most_bytes: u64,
    held: Mutex<BTreeMap<(Incarnation, Lsn), u64>>,
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl DeadLetters {
    /// Reads which records are parked; at most `most_bytes` of them may be.
    ///
    /// # Errors
    /// When the store cannot be read, or holds something else there.
    pub async fn open(
        meta: Arc<dyn MetaStore>,
        tree: &TreeName,
        sink: &SinkName,
        most_bytes: u64,
    ) -> Result<Self, Error> {
        let prefix = format!("dead/{tree}/{sink}/");
        let mut held = BTreeMap::new();
        for (key, value) in meta.list(&prefix).await? {
            let damaged = || Error::new(ErrorKind::Corrupt, format!("the dead letter {key} cannot be read"));
            let at: Cursor = key[prefix.len()..].parse().map_err(|_| damaged())?;
            held.insert((at.incarnation, at.lsn), value.len() as u64);
        }
        Ok(Self { meta, prefix, most_bytes, held: Mutex::new(held) })
    }

    /// Parks a record, durably.
    ///
    /// # Errors
    /// `TooLarge` when there is no room, which is the end until somebody makes some; else when it cannot be stored.
    pub async fn park(&self, letter: &DeadLetter) -> Result<(), Error> {
        let value = letter.encode();
        let bytes = value.len() as u64;
        let (count, held) = (self.count(), self.bytes());
        if held + bytes > self.most_bytes {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "{count} dead letters hold {held} bytes of {}, and this one takes {bytes}; see `tidewire dead-letters list`, and let the destination take what it refuses",
                    self.most_bytes
                ),
            ));
        }
        self.meta.commit(vec![MetaChange::put(self.key(letter.at), value)]).await?;
        self.held.lock().insert((letter.at.incarnation, letter.at.lsn), bytes);
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.held.lock().len() as u64
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.held.lock().values().sum()
    }

    /// All of them, in the order of the log.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<DeadLetter>, Error> {
        let mut letters = Vec::new();
        for (key, value) in self.meta.list(&self.prefix).await? {
            let at = key[self.prefix.len()..].parse().ok();
            let letter = at.and_then(|at| DeadLetter::decode(at, &value));
            letters.push(letter.ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, format!("the dead letter {key} cannot be read"))
            })?);
        }
        letters.sort_by_key(|letter: &DeadLetter| (letter.at.incarnation, letter.at.lsn));
        Ok(letters)
    }

    /// Forgets all of them, durably: the sink is gone.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn clear(&self) -> Result<(), Error> {
        let keys: Vec<Cursor> = {
            let held = self.held.lock();
            held.keys().map(|(incarnation, lsn)| Cursor { incarnation: *incarnation, lsn: *lsn }).collect()
        };
        let deletes = keys.iter().map(|at| MetaChange::delete(self.key(*at)));
        self.meta.commit(deletes.collect()).await?;
        self.held.lock().clear();
        Ok(())
    }

    /// What is left of a batch without the records that are parked, in order. Usually the batch as it is.
    pub(super) fn without_parked(&self, batch: Batch) -> Vec<Batch> {
        let (incarnation, from, to) = (batch.start().incarnation, batch.start().lsn, batch.end().lsn);
        let parked: Vec<Lsn> = {
            let held = self.held.lock();
            held.range((incarnation, from)..(incarnation, to)).map(|((_, lsn), _)| *lsn).collect()
        };
        if parked.is_empty() {
            return vec![batch];
        }
        let (mut parts, mut at) = (Vec::new(), from);
        for lsn in parked {
            parts.push(batch.slice(at, lsn));
            at = lsn.next();
        }
        parts.push(batch.slice(at, to));
        parts.retain(|part| part.start().lsn < part.end().lsn);
        parts
    }

    /// The first position from `at` on that is not parked.
    pub(super) fn past_parked(&self, mut at: Cursor) -> Cursor {
        let held = self.held.lock();
        while held.contains_key(&(at.incarnation, at.lsn)) {
            at.lsn = at.lsn.next();
        }
        at
    }

    fn key(&self, at: Cursor) -> String {
        format!("{}{at}", self.prefix)
    }
}
