//! redb: `Durability::Immediate`, its default: a commit returns after its fsync.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::peer::Peer;
use crate::failure::Outcome;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// A database with one table.
pub struct Redb(Database);

impl Redb {
    pub fn open(dir: &Path) -> Outcome<Self> {
        Ok(Self(Database::create(dir.join("bench.redb"))?))
    }
}

impl Peer for Redb {
    fn append(&self, writer: usize, key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        self.append_many(writer, std::slice::from_ref(key), value)
    }

    fn append_many(&self, _writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let mut write = self.0.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        {
            let mut rows = write.open_table(ROWS)?;
            for key in keys {
                rows.insert(&key[..], value)?;
            }
        }
        Ok(write.commit()?)
    }

    fn read_all(&self) -> Outcome<u64> {
        let mut records = 0;
        for row in self.0.begin_read()?.open_table(ROWS)?.iter()? {
            let (key, value) = row?;
            std::hint::black_box((key.value(), value.value()));
            records += 1;
        }
        Ok(records)
    }
}
