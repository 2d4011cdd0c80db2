//! fjall: a write batch with `PersistMode::SyncData`, an fdatasync of the journal in each commit. Without it a write is
//! in the system's cache when it is answered.

use std::path::Path;

use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::peer::Peer;
use crate::failure::Outcome;

/// A database with one keyspace.
pub struct Fjall {
    db: Database,
    keys: Keyspace,
}

impl Fjall {
    pub fn open(dir: &Path) -> Outcome<Self> {
        let db = Database::builder(dir).journal_compression(CompressionType::None).open()?;
        let keys = db.keyspace("bench", KeyspaceCreateOptions::default)?;
        Ok(Self { db, keys })
    }
}

impl Peer for Fjall {
    fn append(&self, writer: usize, key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        self.append_many(writer, std::slice::from_ref(key), value)
    }

    fn append_many(&self, _writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for key in keys {
            batch.insert(&self.keys, &key[..], value);
        }
        Ok(batch.commit()?)
    }

    fn read_all(&self) -> Outcome<u64> {
        let mut records = 0;
        for row in self.keys.iter() {
            std::hint::black_box(row.into_inner()?);
            records += 1;
        }
        Ok(records)
    }
}
