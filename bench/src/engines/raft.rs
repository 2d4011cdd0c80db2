//! raft-engine: `write(batch, sync = true)`. Concurrent writers form a group; its leader writes for all and syncs once.
//! A Raft group for each writer, as entries of one have to be consecutive. No compression: the values do not shrink.

use std::path::Path;
use std::sync::Mutex;

use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, LogBatch, MessageExt, ReadableSize};

use super::peer::Peer;
use crate::failure::Outcome;

/// A message with a number and bytes: the protobuf library brings one along.
struct Numbered;

impl MessageExt for Numbered {
    type Entry = UninterpretedOption;

    fn index(entry: &UninterpretedOption) -> u64 {
        entry.get_positive_int_value()
    }
}

fn entry(index: u64, value: &[u8]) -> UninterpretedOption {
    let mut entry = UninterpretedOption::new();
    entry.set_positive_int_value(index);
    entry.set_string_value(value.to_vec());
    entry
}

/// An engine, and the next index of each of its groups.
pub struct Raft {
    engine: raft_engine::Engine,
    next: Vec<Mutex<u64>>,
}

impl Raft {
    pub fn open(dir: &Path) -> Outcome<Self> {
        let config = Config {
            dir: dir.to_str().ok_or("a directory with a name in UTF-8")?.to_owned(),
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        };
        let engine = raft_engine::Engine::open(config)?;
        let next =
            (1..=256).map(|group| Mutex::new(engine.last_index(group).map_or(1, |last| last + 1))).collect();
        Ok(Self { engine, next })
    }
}

impl Peer for Raft {
    fn append(&self, writer: usize, key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        self.append_many(writer, std::slice::from_ref(key), value)
    }

    fn append_many(&self, writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let mut next = self.next[writer].lock().map_err(|_| "a writer panicked")?;
        let entries: Vec<_> = (*next..).zip(keys).map(|(index, _)| entry(index, value)).collect();
        *next += entries.len() as u64;
        let mut batch = LogBatch::with_capacity(1);
        batch.add_entries::<Numbered>(writer as u64 + 1, &entries)?;
        self.engine.write(&mut batch, true)?;
        Ok(())
    }

    fn read_all(&self) -> Outcome<u64> {
        let (Some(first), Some(last)) = (self.engine.first_index(1), self.engine.last_index(1)) else {
            return Ok(0);
        };
        let (mut at, mut records, mut entries) = (first, 0, Vec::new());
        while at <= last {
            let end = (last + 1).min(at + 8_192);
            entries.clear();
            records += self.engine.fetch_entries_to::<Numbered>(1, at, end, None, &mut entries)? as u64;
            std::hint::black_box(&entries);
            at = end;
        }
        Ok(records)
    }
}
