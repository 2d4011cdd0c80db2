//! [`DeadLetters`]: records that a destination will never take, parked durably and within a bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::dead_letter::DeadLetter;
use crate::error::Error;
use crate::feed::{Batch, Cursor};
use crate::id::{Incarnation, Lsn, SinkName, TreeName};
use crate::letters::LetterStore;
use crate::meta::MetaStore;

/// The dead letters of one sink. What is in here is left out when the log is read for this sink.
#[derive(Debug)]
pub struct DeadLetters {
    store: LetterStore,
    held: Mutex<BTreeSet<(Incarnation, Lsn)>>,
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
        let (store, all) = LetterStore::open(meta, format!("dead/{tree}/{sink}/"), most_bytes).await?;
        let mut held = BTreeSet::new();
        for (name, _) in all {
            let at: Cursor = name.parse().map_err(|_| store.damaged(&name))?;
            held.insert((at.incarnation, at.lsn));
        }
        Ok(Self { store, held: Mutex::new(held) })
    }

    /// Parks a record, durably.
    ///
    /// # Errors
    /// `TooLarge` when there is no room, which is the end until somebody makes some; else when it cannot be stored.
    pub async fn park(&self, letter: &DeadLetter) -> Result<(), Error> {
        self.store.put(vec![(letter.at.to_string(), letter.encode())]).await?;
        self.held.lock().insert((letter.at.incarnation, letter.at.lsn));
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.store.count()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// All of them, in the order of the log.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<DeadLetter>, Error> {
        let mut letters = Vec::new();
        for (name, value) in self.store.read().await? {
            let letter = name.parse().ok().and_then(|at| DeadLetter::decode(at, &value));
            letters.push(letter.ok_or_else(|| self.store.damaged(&name))?);
        }
        letters.sort_by_key(|letter: &DeadLetter| (letter.at.incarnation, letter.at.lsn));
        Ok(letters)
    }

    /// Gives one up, durably. If the log is read from before it once more, it is found again.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn give_up(&self, letter: &DeadLetter) -> Result<(), Error> {
        self.store.remove(vec![letter.at.to_string()]).await?;
        self.held.lock().remove(&(letter.at.incarnation, letter.at.lsn));
        Ok(())
    }

    /// Forgets all of them, durably: the sink is gone.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn clear(&self) -> Result<(), Error> {
        self.store.remove(self.store.names()).await?;
        self.held.lock().clear();
        Ok(())
    }

    /// What is left of a batch without the records that are parked, in order. Usually the batch as it is.
    pub(super) fn without_parked(&self, batch: Batch) -> Vec<Batch> {
        let (incarnation, from, to) = (batch.start().incarnation, batch.start().lsn, batch.end().lsn);
        let parked: Vec<Lsn> = {
            let held = self.held.lock();
            held.range((incarnation, from)..(incarnation, to)).map(|(_, lsn)| *lsn).collect()
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
        while held.contains(&(at.incarnation, at.lsn)) {
            at.lsn = at.lsn.next();
        }
        at
    }
}
