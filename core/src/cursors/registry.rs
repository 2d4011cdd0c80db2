//! [`Registry`]: the consumers of one tree's log and their positions.
//!
//! A registration is durable before the consumer is handed its first record. A report is taken over at once and stored
//! with the next [`flush`](Registry::flush); only what is stored counts. Reports never move back within an incarnation.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{Incarnation, Lsn, SeedNumber, SinkName, TreeName};
use crate::meta::{MetaChange, MetaStore};

/// How names of sinks begin among the consumers of a log.
pub const SINK: &str = "sink ";

/// How a sink is named among the consumers of a log.
pub fn consumer_of(sink: &SinkName) -> String {
    format!("{SINK}{sink}")
}

/// One consumer: what it reported, and what of that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    reported: Option<Cursor>,
    stored: Option<Cursor>,
    /// Its last report was below what is retained.
    fell_off: bool,
    /// That a report was not taken has been said.
    warned: bool,
    /// It has not said since the start from where it needs the log, and is expected to.
    awaited: bool,
    /// The last seed of which a sink has delivered what the log does not hold, as it is stored.
    filled: SeedNumber,
}

/// Where positions of a log can be at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Of this incarnation of the log.
    pub incarnation: Incarnation,
    /// The lowest position that is retained.
    pub floor: Lsn,
    /// The end of what is applied.
    pub head: Lsn,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// It is taken over, and stored with the next flush.
    Taken,
    /// It says nothing new.
    Unmoved,
    /// The log no longer holds that position: the consumer has fallen off, and holds nothing any more.
    FellOff,
    /// No position of this log: of another incarnation, or above its end.
    Refused,
    /// Nobody of this name is registered.
    Unknown,
}

/// A registered consumer, as far as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: String,
    /// Its stored position; None: it has reported nothing, and needs everything.
    pub stored: Option<Cursor>,
    /// It said that it needs what is no longer there.
    pub fell_off: bool,
}

type Log = Box<dyn Fn() -> Window + Send + Sync>;

/// The consumers of one tree.
pub struct Registry {
    meta: Arc<dyn MetaStore>,
    prefix: String,
    filled_prefix: String,
    consumers: Mutex<BTreeMap<String, Position>>,
    log: Option<Log>,
    /// Something was reported that is not stored.
    reported: Notify,
    /// Held by a pass of the collector from its look at the consumers until it has done what it concludes from that, and
    /// by whoever registers.
    pass: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("consumers", &*self.consumers.lock()).finish()
    }
}

impl Registry {
    /// Reads the consumers of a tree.
    ///
    /// # Errors
    /// When the store cannot be read, or holds something that is no position: then nothing is known, and nothing may be
    /// trimmed.
    pub async fn open(meta: Arc<dyn MetaStore>, tree: &TreeName) -> Result<Self, Error> {
        let (prefix, filled_prefix) = (format!("cursor/{tree}/"), format!("seeded/{tree}/"));
        let stored = read(meta.as_ref(), &prefix).await?;
        let mut consumers: BTreeMap<_, _> = stored
            .into_iter()
            .map(|(name, stored)| (name, Position { reported: stored, stored, ..Position::default() }))
            .collect();
        for (key, value) in meta.list(&filled_prefix).await? {
            let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            let number: u64 = number.ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, format!("the stored number {key} cannot be read"))
            })?;
            if let Some(position) = consumers.get_mut(&key[filled_prefix.len()..]) {
                position.filled = SeedNumber::new(number);
            }
        }
        let consumers = Mutex::new(consumers);
        let (reported, pass) = (Notify::new(), tokio::sync::Mutex::default());
        Ok(Self { meta, prefix, filled_prefix, consumers, log: None, reported, pass })
    }

    /// The same, with a log that reports are checked against before they count.
    #[must_use]
    pub fn over(self, log: impl Fn() -> Window + Send + Sync + 'static) -> Self {
        Self { log: Some(Box::new(log)), ..self }
    }

    /// Registers a consumer, durably, and returns its stored position. Repeating it is harmless. One that is new waits for the
    /// end of a pass of the collector: whatever is in the log when this returns, nothing goes that it may need.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn register(&self, consumer: &str) -> Result<Option<Cursor>, Error> {
        if let Some(position) = self.consumers.lock().get(consumer) {
            return Ok(position.stored);
        }
        let _no_pass = self.pass.lock().await;
        // Another call may have done it meanwhile, and a position be stored.
        if let Some(position) = self.consumers.lock().get(consumer) {
            return Ok(position.stored);
        }
        self.meta.commit(vec![MetaChange::put(self.key(consumer), Bytes::new())]).await?;
        Ok(self.consumers.lock().entry(consumer.to_owned()).or_default().stored)
    }

    /// Keeps new consumers out while a pass concludes from those that there are. Take it before the look at them.
    pub async fn begin_pass(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.pass.lock().await
    }

    /// Takes over how far a consumer is; stored with the next flush. A position behind the one known in the same
    /// incarnation changes nothing, and one that the log does not hold is not taken.
    pub fn report(&self, consumer: &str, cursor: Cursor) -> ReportOutcome {
        self.take(consumer, cursor, false)
    }

    /// From now on it counts as not heard until it says from where it needs the log.
    pub fn expect(&self, consumer: &str) {
        if let Some(position) = self.consumers.lock().get_mut(consumer) {
            position.awaited = true;
        }
    }

    /// A consumer that is expected and was not heard yet.
    pub fn unheard(&self) -> Option<String> {
        let consumers = self.consumers.lock();
        consumers.iter().find(|(_, position)| position.awaited).map(|(name, _)| name.clone())
    }

    /// Takes over from where on a consumer needs the log, also if that lies behind what it has reported: it went back
    /// itself, or is seeded. Stored with the next flush.
    pub fn hold(&self, consumer: &str, cursor: Cursor) -> ReportOutcome {
        self.take(consumer, cursor, true)
    }

    fn take(&self, consumer: &str, cursor: Cursor, may_go_back: bool) -> ReportOutcome {
        let window = self.log.as_ref().map(|log| log());
        let mut consumers = self.consumers.lock();
        let Some(position) = consumers.get_mut(consumer) else { return ReportOutcome::Unknown };
        let foreign = |window: Window| window.incarnation != cursor.incarnation || cursor.lsn > window.head;
        let outcome = if window.is_some_and(foreign) {
            ReportOutcome::Refused
        } else if window.is_some_and(|window| cursor.lsn < window.floor) {
            position.fell_off = true;
            ReportOutcome::FellOff
        } else {
            let back = position
                .reported
                .is_some_and(|known| known.incarnation == cursor.incarnation && known.lsn > cursor.lsn);
            if back && !may_go_back {
                return ReportOutcome::Unmoved;
            }
            let moved = position.reported != Some(cursor);
            // Who says where to begin was heard; who reports progress has been before.
            let awaited = position.awaited && !may_go_back;
            let Position { stored, filled, .. } = *position;
            *position = Position { reported: Some(cursor), stored, awaited, filled, ..Position::default() };
            if moved {
                self.reported.notify_one();
            }
            return if moved { ReportOutcome::Taken } else { ReportOutcome::Unmoved };
        };
        if !std::mem::replace(&mut position.warned, true) {
            tracing::warn!(consumer, %cursor, ?window, ?outcome, "a position that this log does not hold was reported; it does not count");
        }
        outcome
    }

    /// Waits until something is reported that is not stored: without consumers, or while they stand still, for ever.
    /// Cancel-safe; for one task.
    pub async fn unstored(&self) {
        let differs =
            |position: &Position| position.reported.is_some() && position.reported != position.stored;
        while !self.consumers.lock().values().any(differs) {
            self.reported.notified().await;
        }
    }

    /// Stores what was reported since the last flush, in one transaction.
    ///
    /// # Errors
    /// When it cannot be stored; the next flush tries again.
    pub async fn flush(&self) -> Result<(), Error> {
        let changed: Vec<(String, Cursor)> = {
            let consumers = self.consumers.lock();
            let moved = consumers.iter().filter(|(_, position)| position.reported != position.stored);
            moved.filter_map(|(name, position)| Some((name.clone(), position.reported?))).collect()
        };
        if changed.is_empty() {
            return Ok(());
        }
        let puts = changed
            .iter()
            .map(|(name, cursor)| MetaChange::put(self.key(name), cursor.to_string().into_bytes()));
        self.meta.commit(puts.collect()).await?;
        let mut consumers = self.consumers.lock();
        for (name, cursor) in changed {
            if let Some(position) = consumers.get_mut(&name) {
                position.stored = Some(cursor);
            }
        }
        Ok(())
    }

    /// Stores the position of a consumer at once, in one transaction with what must hold for it: the fence of a lease. A
    /// position behind the one known in the same incarnation changes nothing.
    ///
    /// # Errors
    /// `Conflict` when the fence did not hold, `NotFound` for a consumer that is not registered, or when it cannot be
    /// stored.
    pub async fn store(&self, consumer: &str, cursor: Cursor, fence: MetaChange) -> Result<(), Error> {
        let window = self.log.as_ref().map(|log| log());
        {
            let mut consumers = self.consumers.lock();
            let known = consumers.get_mut(consumer).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{consumer:?} is no consumer of this log"))
            })?;
            let back = known
                .stored
                .is_some_and(|stored| stored.incarnation == cursor.incarnation && stored.lsn >= cursor.lsn);
            let of_log = window.filter(|window| window.incarnation == cursor.incarnation);
            known.fell_off = of_log.is_some_and(|window| cursor.lsn < window.floor);
            let outside = window.is_some() && of_log.is_none_or(|window| cursor.lsn > window.head);
            // What the log does not hold is no pin: the consumer is told when it reads.
            if back || known.fell_off || outside {
                return Ok(());
            }
        }
        let put = MetaChange::put(self.key(consumer), cursor.to_string().into_bytes());
        self.meta.commit(vec![fence, put]).await?;
        if let Some(position) = self.consumers.lock().get_mut(consumer) {
            let filled = position.filled;
            *position =
                Position { reported: Some(cursor), stored: Some(cursor), filled, ..Position::default() };
        }
        Ok(())
    }

    /// Stores that a sink has delivered what a seed brought, in one transaction with what must hold for it. Its position
    /// lies behind that already.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub async fn store_filled(
        &self,
        consumer: &str,
        seed: SeedNumber,
        fence: MetaChange,
    ) -> Result<(), Error> {
        if self.filled(consumer) >= seed {
            return Ok(());
        }
        let put = MetaChange::put(self.filled_key(consumer), seed.to_string().into_bytes());
        self.meta.commit(vec![fence, put]).await?;
        if let Some(position) = self.consumers.lock().get_mut(consumer) {
            position.filled = seed;
        }
        Ok(())
    }

    /// The last seed of which a sink has delivered what it brought.
    pub fn filled(&self, consumer: &str) -> SeedNumber {
        self.consumers.lock().get(consumer).map_or(SeedNumber::ZERO, |position| position.filled)
    }

    /// The sink that is furthest behind the seeds, and the last seed of which it has delivered what it brought.
    pub fn least_filled(&self) -> Option<(String, SeedNumber)> {
        let consumers = self.consumers.lock();
        let sinks = consumers.iter().filter(|(name, _)| name.starts_with(SINK));
        let least = sinks.min_by_key(|(_, position)| position.filled);
        least.map(|(name, position)| (name.clone(), position.filled))
    }

    /// Forgets a consumer, durably.
    ///
    /// # Errors
    /// When it cannot be stored; the consumer stays.
    pub async fn remove(&self, consumer: &str) -> Result<(), Error> {
        let keys = [self.key(consumer), self.filled_key(consumer)];
        self.meta.commit(keys.map(MetaChange::delete).into()).await?;
        self.consumers.lock().remove(consumer);
        Ok(())
    }

    /// Every consumer with its stored position; None: it has reported nothing, and needs everything.
    pub fn stored(&self) -> Vec<(String, Option<Cursor>)> {
        self.consumers.lock().iter().map(|(name, position)| (name.clone(), position.stored)).collect()
    }

    /// Every consumer, as known in memory.
    pub fn consumers(&self) -> Vec<Consumer> {
        let consumers = self.consumers.lock();
        let known = consumers.iter().map(|(name, position)| Consumer {
            name: name.clone(),
            stored: position.stored,
            fell_off: position.fell_off,
        });
        known.collect()
    }

    /// Every consumer with the position that the store holds at this moment.
    ///
    /// # Errors
    /// When the store cannot be read, or holds something that is no position, or not the consumers that are known here:
    /// then nothing is known, and nothing may be trimmed.
    pub async fn read_stored(&self) -> Result<Vec<Consumer>, Error> {
        let stored = read(self.meta.as_ref(), &self.prefix).await?;
        let consumers = self.consumers.lock();
        if let Some(lost) = consumers.keys().find(|name| !stored.contains_key(*name)) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("consumer {lost:?} is registered, and the metadata has lost it: restart the server"),
            ));
        }
        let fell_off = |name: &str| consumers.get(name).is_some_and(|position| position.fell_off);
        Ok(stored
            .into_iter()
            .map(|(name, stored)| Consumer { fell_off: fell_off(&name), name, stored })
            .collect())
    }

    fn filled_key(&self, consumer: &str) -> String {
        format!("{}{consumer}", self.filled_prefix)
    }

    fn key(&self, consumer: &str) -> String {
        format!("{}{consumer}", self.prefix)
    }
}

async fn read(meta: &dyn MetaStore, prefix: &str) -> Result<BTreeMap<String, Option<Cursor>>, Error> {
    let mut stored = BTreeMap::new();
    for (key, value) in meta.list(prefix).await? {
        let cursor = decode(&value).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("the stored position {key} cannot be read"))
        })?;
        stored.insert(key[prefix.len()..].to_owned(), cursor);
    }
    Ok(stored)
}

pub(super) fn decode(value: &[u8]) -> Option<Option<Cursor>> {
    if value.is_empty() {
        return Some(None);
    }
    std::str::from_utf8(value).ok()?.parse().ok().map(Some)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
