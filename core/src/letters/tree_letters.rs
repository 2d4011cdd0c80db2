//! [`TreeLetters`]: the dead letters of a tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::letter::{Fate, Letter};
use super::parked::Parked;
use super::store::LetterStore;
use crate::error::Error;
use crate::id::{Dot, Lsn, TreeName};
use crate::meta::MetaStore;

/// What a tree cannot apply, durable and within a bound. One caller changes it at a time, under [`turn`](Self::turn).
#[derive(Debug)]
pub struct TreeLetters {
    store: LetterStore,
    letters: Mutex<BTreeMap<String, Letter>>,
    /// Held over every change and over what follows from it.
    pub turn: tokio::sync::Mutex<()>,
}

impl TreeLetters {
    /// Reads what is parked of a tree; at most `most_bytes` may be. With zero nothing is ever parked.
    ///
    /// # Errors
    /// When the store cannot be read, or holds something else there.
    pub async fn open(meta: Arc<dyn MetaStore>, tree: &TreeName, most_bytes: u64) -> Result<Self, Error> {
        // A sink's name is never empty, so this is nobody's.
        let (store, all) = LetterStore::open(meta, format!("dead/{tree}//"), most_bytes).await?;
        let mut letters = BTreeMap::new();
        for (name, value) in all {
            let letter = Letter::decode(&value).ok_or_else(|| store.damaged(&name))?;
            letters.insert(name, letter);
        }
        Ok(Self { store, letters: Mutex::new(letters), turn: tokio::sync::Mutex::default() })
    }

    /// Parks letters, all or none, durably. What is known already stays as it is.
    ///
    /// # Errors
    /// `TooLarge` when there is no room; else when it cannot be stored.
    pub async fn park(&self, letters: Vec<Letter>) -> Result<(), Error> {
        let fresh: Vec<(String, Letter)> = {
            let known = self.letters.lock();
            let named = letters.into_iter().map(|letter| (letter.name(), letter));
            named.filter(|(name, _)| !known.contains_key(name)).collect()
        };
        if fresh.is_empty() {
            return Ok(());
        }
        self.store.put(fresh.iter().map(|(name, letter)| (name.clone(), letter.encode())).collect()).await?;
        self.letters.lock().extend(fresh);
        Ok(())
    }

    /// Decides what becomes of a letter, durably.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn settle(&self, dot: Dot, fate: Fate) -> Result<(), Error> {
        let found =
            self.letters.lock().iter().find(|(_, letter)| letter.dot() == dot).map(|(name, letter)| {
                let mut letter = Letter { fate, ..letter.clone() };
                if let Fate::Dropped(_) = fate {
                    letter.bytes = Bytes::new();
                }
                (name.clone(), letter)
            });
        let Some((name, letter)) = found else { return Ok(()) };
        self.store.replace(vec![(name.clone(), letter.encode())]).await?;
        self.letters.lock().insert(name, letter);
        Ok(())
    }

    /// Forgets what was settled, where no opening of the tree replays the log from below `checkpoint` any more.
    ///
    /// # Errors
    /// When it cannot be stored; it is remembered then.
    pub async fn forget(&self, checkpoint: Lsn) -> Result<(), Error> {
        let gone = |letter: &Letter| match letter.fate {
            Fate::Parked => false,
            Fate::Replayed(at) | Fate::Dropped(at) => at < checkpoint,
        };
        let names: Vec<String> = {
            let letters = self.letters.lock();
            letters.iter().filter(|(_, letter)| gone(letter)).map(|(name, _)| name.clone()).collect()
        };
        if names.is_empty() {
            return Ok(());
        }
        self.store.remove(names.clone()).await?;
        let mut letters = self.letters.lock();
        names.iter().for_each(|name| _ = letters.remove(name));
        Ok(())
    }

    /// What follows from them.
    pub fn parked(&self) -> Parked {
        Parked::of(self.letters.lock().values())
    }

    /// Those that wait for somebody to decide.
    pub fn waiting(&self) -> Vec<Letter> {
        self.letters.lock().values().filter(|letter| letter.fate == Fate::Parked).cloned().collect()
    }

    /// Those that were applied and may not be in a snapshot yet.
    pub fn replayed(&self) -> Vec<Letter> {
        let letters = self.letters.lock();
        letters.values().filter(|letter| matches!(letter.fate, Fate::Replayed(_))).cloned().collect()
    }

    /// Their bytes, settled ones included, and how many there may be.
    pub fn bytes(&self) -> (u64, u64) {
        (self.store.bytes(), self.store.most_bytes())
    }

    /// What is said when letters do not fit; None: they do, or are there.
    pub fn refuse(&self, letters: &[Letter]) -> Option<Error> {
        let known = self.letters.lock();
        let fresh = letters.iter().filter(|letter| !known.contains_key(&letter.name()));
        let bytes = fresh.map(|letter| letter.encode().len() as u64).sum();
        (!self.store.has_room(bytes)).then(|| self.store.full(bytes))
    }
}
