//! [`Registry`]: the consumers of one tree's log and their positions.
//!
//! A registration is durable before the consumer is handed its first record. A report is taken over at once and stored
//! with the next [`flush`](Registry::flush); only what is stored counts. Reports never move back within an incarnation.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::TreeName;
use crate::meta::{MetaChange, MetaStore};

/// One consumer: what it reported, and what of that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    reported: Option<Cursor>,
    stored: Option<Cursor>,
}

/// The consumers of one tree.
pub struct Registry {
    meta: Arc<dyn MetaStore>,
    prefix: String,
    consumers: Mutex<BTreeMap<String, Position>>,
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
        let prefix = format!("cursor/{tree}/");
        let mut consumers = BTreeMap::new();
        for (key, value) in meta.list(&prefix).await? {
            let name = key[prefix.len()..].to_owned();
            let stored = decode(&value).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, format!("the stored position {key} cannot be read"))
            })?;
            consumers.insert(name, Position { reported: stored, stored });
        }
        Ok(Self { meta, prefix, consumers: Mutex::new(consumers) })
    }

    /// Registers a consumer, durably, and returns its stored position. Repeating it is harmless.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn register(&self, consumer: &str) -> Result<Option<Cursor>, Error> {
        if let Some(position) = self.consumers.lock().get(consumer) {
            return Ok(position.stored);
        }
        self.meta.commit(vec![MetaChange::put(self.key(consumer), Bytes::new())]).await?;
        Ok(self.consumers.lock().entry(consumer.to_owned()).or_default().stored)
    }

    /// Takes over how far a consumer is; stored with the next flush. One that is not registered, or a position behind the
    /// one known in the same incarnation, changes nothing.
    pub fn report(&self, consumer: &str, cursor: Cursor) {
        if let Some(position) = self.consumers.lock().get_mut(consumer) {
            let back = position
                .reported
                .is_some_and(|known| known.incarnation == cursor.incarnation && known.lsn >= cursor.lsn);
            if !back {
                position.reported = Some(cursor);
            }
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

    /// Forgets a consumer, durably.
    ///
    /// # Errors
    /// When it cannot be stored; the consumer stays.
    pub async fn remove(&self, consumer: &str) -> Result<(), Error> {
        self.meta.commit(vec![MetaChange::Delete { key: self.key(consumer) }]).await?;
        self.consumers.lock().remove(consumer);
        Ok(())
    }

    /// Every consumer with its stored position; None: it has reported nothing, and needs everything.
    pub fn stored(&self) -> Vec<(String, Option<Cursor>)> {
        self.consumers.lock().iter().map(|(name, position)| (name.clone(), position.stored)).collect()
    }

    fn key(&self, consumer: &str) -> String {
        format!("{}{consumer}", self.prefix)
    }
}

fn decode(value: &[u8]) -> Option<Option<Cursor>> {
    if value.is_empty() {
        return Some(None);
    }
    std::str::from_utf8(value).ok()?.parse().ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Incarnation, Lsn};
    use crate::meta::{FaultyMeta, MemMeta};

    fn cursor(incarnation: u64, lsn: u64) -> Cursor {
        Cursor { incarnation: Incarnation::new(incarnation), lsn: Lsn::new(lsn) }
    }

    async fn open(meta: &Arc<dyn MetaStore>) -> Registry {
        Registry::open(meta.clone(), &TreeName::new("t").expect("name")).await.expect("opens")
    }

    #[tokio::test]
    async fn f33_a_registration_is_durable_before_it_is_answered_and_holds_everything_until_a_report() {
        let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
        open(&meta).await.register("peer b").await.expect("registered");
        assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), None)]);
    }

    #[tokio::test]
    async fn f11_a_report_counts_when_it_is_stored_and_not_before() {
        let faulty = FaultyMeta::new(Arc::new(MemMeta::new()));
        let meta: Arc<dyn MetaStore> = Arc::new(faulty.clone());
        let registry = open(&meta).await;
        registry.register("peer b").await.expect("registered");
        registry.report("peer b", cursor(1, 9));
        assert_eq!(registry.stored(), [("peer b".to_owned(), None)]);
        faulty.fail_next_commits(1);
        registry.flush().await.expect_err("not stored");
        assert_eq!(registry.stored(), [("peer b".to_owned(), None)]);
        registry.flush().await.expect("stored");
        assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), Some(cursor(1, 9)))]);
    }

    #[tokio::test]
    async fn a_report_never_moves_back_but_a_new_incarnation_starts_anew() {
        let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
        let registry = open(&meta).await;
        registry.report("stranger", cursor(1, 1));
        registry.register("peer b").await.expect("registered");
        for (reported, stored) in
            [(cursor(1, 9), cursor(1, 9)), (cursor(1, 4), cursor(1, 9)), (cursor(2, 3), cursor(2, 3))]
        {
            registry.report("peer b", reported);
            registry.flush().await.expect("stored");
            assert_eq!(registry.stored(), [("peer b".to_owned(), Some(stored))]);
        }
        registry.remove("peer b").await.expect("removed");
        assert_eq!(open(&meta).await.stored(), []);
    }
}
