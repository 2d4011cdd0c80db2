//! [`LetterStore`]: pieces of bytes by name, durable and within a bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::meta::{MetaChange, MetaStore};

/// Letters by name, durable, at most so many bytes of them.
pub struct LetterStore {
    meta: Arc<dyn MetaStore>,
    prefix: String,
    most_bytes: u64,
    held: Mutex<BTreeMap<String, u64>>,
}

impl std::fmt::Debug for LetterStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LetterStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl LetterStore {
    /// Opens what is stored below a prefix, and says what that is, by name; at most `most_bytes` may be.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open(
        meta: Arc<dyn MetaStore>,
        prefix: String,
        most_bytes: u64,
    ) -> Result<(Self, Vec<(String, Bytes)>), Error> {
        let store = Self { meta, prefix, most_bytes, held: Mutex::default() };
        let all = store.read().await?;
        *store.held.lock() = all.iter().map(|(name, value)| (name.clone(), value.len() as u64)).collect();
        Ok((store, all))
    }

    /// Keeps letters, all or none, durably. One of a name that is there takes its place.
    ///
    /// # Errors
    /// `TooLarge` when there is no room, which is the end until somebody makes some; else when it cannot be stored.
    pub async fn put(&self, letters: Vec<(String, Bytes)>) -> Result<(), Error> {
        let bytes: u64 = letters.iter().map(|(_, value)| value.len() as u64).sum();
        if !self.has_room(bytes) {
            return Err(self.full(bytes));
        }
        self.replace(letters).await
    }

    /// The same whatever the bound, for letters that are there already and say something new.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn replace(&self, letters: Vec<(String, Bytes)>) -> Result<(), Error> {
        let changes = letters.iter().map(|(name, value)| MetaChange::put(self.key(name), value.clone()));
        self.meta.commit(changes.collect()).await?;
        self.held.lock().extend(letters.into_iter().map(|(name, value)| (name, value.len() as u64)));
        Ok(())
    }

    /// Forgets letters, durably.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn remove(&self, names: Vec<String>) -> Result<(), Error> {
        self.meta.commit(names.iter().map(|name| MetaChange::delete(self.key(name))).collect()).await?;
        let mut held = self.held.lock();
        names.iter().for_each(|name| _ = held.remove(name));
        Ok(())
    }

    /// Everything that is stored, by name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(&self) -> Result<Vec<(String, Bytes)>, Error> {
        let all = self.meta.list(&self.prefix).await?;
        Ok(all.into_iter().map(|(key, value)| (key[self.prefix.len()..].to_owned(), value)).collect())
    }

    /// What is said of a letter that is not what was stored.
    pub fn damaged(&self, name: &str) -> Error {
        Error::new(ErrorKind::Corrupt, format!("the dead letter {}{name} cannot be read", self.prefix))
    }

    /// Whether so many bytes more fit.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.most_bytes
    }

    /// What is said when they do not.
    pub fn full(&self, bytes: u64) -> Error {
        let (count, held, most) = (self.count(), self.bytes(), self.most_bytes);
        Error::new(
            ErrorKind::TooLarge,
            format!(
                "{count} dead letters hold {held} bytes of {most}, and this one takes {bytes}; see `tidewire dead-letters list`, and settle some"
            ),
        )
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.held.lock().keys().cloned().collect()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.held.lock().len() as u64
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.held.lock().values().sum()
    }

    /// How many bytes there may be.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::MemMeta;

    #[tokio::test]
    async fn what_is_stored_is_bounded_in_bytes_and_survives() {
        let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::default());
        let open = || LetterStore::open(meta.clone(), "dead/t/s/".to_owned(), 10);
        let (store, _) = open().await.unwrap();
        let letter = |name: &str, bytes| vec![(name.to_owned(), Bytes::from(vec![1; bytes]))];
        store.put(letter("a", 6)).await.unwrap();
        let full = store.put(letter("b", 5)).await.unwrap_err();
        assert_eq!((full.kind(), store.count(), store.bytes()), (ErrorKind::TooLarge, 1, 6));
        store.put(letter("b", 4)).await.unwrap();
        drop(store);
        let (store, all) = open().await.unwrap();
        assert_eq!(all, [letter("a", 6), letter("b", 4)].concat());
        assert!(!store.has_room(1));
        store.remove(vec!["a".to_owned()]).await.unwrap();
        assert_eq!((store.names(), store.bytes()), (vec!["b".to_owned()], 4));
        assert_eq!(store.read().await.unwrap(), letter("b", 4));
    }
}
