//! RocksDB: `WriteOptions::set_sync(true)`, an fdatasync of its log before the answer; concurrent writers form a group.

use std::path::Path;

use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};

use super::peer::Peer;
use crate::failure::Outcome;

/// A database.
pub struct Rocks(DB);

impl Rocks {
    pub fn open(dir: &Path) -> Outcome<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        Ok(Self(DB::open(&options, dir)?))
    }
}

impl Peer for Rocks {
    fn append(&self, writer: usize, key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        self.append_many(writer, std::slice::from_ref(key), value)
    }

    fn append_many(&self, _writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.put(key, value);
        }
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(self.0.write_opt(batch, &durable)?)
    }

    fn read_all(&self) -> Outcome<u64> {
        let mut records = 0;
        for row in self.0.iterator(IteratorMode::Start) {
            std::hint::black_box(row?);
            records += 1;
        }
        Ok(records)
    }
}
