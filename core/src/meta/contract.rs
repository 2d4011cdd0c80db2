//! [`MetaStore`]: what every store of metadata owes to those who keep facts in it.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::MetaError;

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaChange {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// What it holds from now on.
        value: Bytes,
    },
    /// Removes a key, if it is there.
    Delete {
        /// The key.
        key: String,
    },
    /// The transaction happens only if the key holds this when it begins.
    Expect {
        /// The key.
        key: String,
        /// What it must hold; None: it must not be there.
        value: Option<Bytes>,
    },
}

impl MetaChange {
    /// Sets a key.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: key.into(), value: value.into() }
    }

    /// Removes a key, if it is there.
    pub fn delete(key: impl Into<String>) -> Self {
        Self::Delete { key: key.into() }
    }

    /// Lets the transaction happen only if the key holds this when it begins.
    pub fn expect(key: impl Into<String>, value: Option<Bytes>) -> Self {
        Self::Expect { key: key.into(), value }
    }
}

/// A durable map from short keys to small values, with transactions.
///
/// Calls may come from many tasks at once; transactions happen one after the other, and a read sees all those that had
/// returned before it began. Meant for kilobytes a second: whoever has more to say writes behind.
#[async_trait]
pub trait MetaStore: Send + Sync + 'static {
    /// What a key holds.
    ///
    /// # Errors
    /// `Io` and `Corrupt` mean unknown, not absent: nothing may be concluded from them.
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError>;

    /// All keys that begin with a prefix, with what they hold, in the order of the bytes of the keys.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError>;

    /// One transaction: all changes in the order given, or none; durable when it returns. Expectations are checked
    /// first, wherever they stand. When the future is dropped it has happened or not.
    ///
    /// # Errors
    /// `Conflict` when an expectation did not hold: nothing was written. After `Io` it was written whole or not at
    /// all, and only reading tells.
    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError>;
}
