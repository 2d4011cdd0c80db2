//! walrus: `FsyncSchedule::SyncEach`. Files are opened with O_SYNC and every append ends with an fsync. A topic for each
//! writer: one topic has one lock.

use std::path::Path;

use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

use super::peer::Peer;
use crate::failure::Outcome;

/// Where walrus looks for its directory.
pub const DIR_VARIABLE: &str = "WALRUS_DATA_DIR";

/// A walrus, and the topics of its writers.
pub struct Walruses {
    walrus: Walrus,
    topics: Vec<String>,
}

impl Walruses {
    /// The process has to be started with [`DIR_VARIABLE`] set to `dir`.
    pub fn open(dir: &Path) -> Outcome<Self> {
        if std::env::var_os(DIR_VARIABLE).as_deref() != Some(dir.as_os_str()) {
            return Err("walrus was started for another directory".into());
        }
        let reads = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };
        let walrus = Walrus::with_consistency_and_schedule(reads, FsyncSchedule::SyncEach)?;
        Ok(Self { walrus, topics: (0..256).map(|writer| format!("w{writer}")).collect() })
    }
}

impl Peer for Walruses {
    fn append(&self, writer: usize, _key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        Ok(self.walrus.append_for_topic(&self.topics[writer], value)?)
    }

    fn append_many(&self, writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        let values = vec![value; keys.len()];
        Ok(self.walrus.batch_append_for_topic(&self.topics[writer], &values)?)
    }

    fn read_all(&self) -> Outcome<u64> {
        let mut records = 0;
        loop {
            let read = self.walrus.batch_read_for_topic(&self.topics[0], 4 << 20, true)?;
            if read.is_empty() {
                return Ok(records);
            }
            records += read.len() as u64;
            std::hint::black_box(&read);
        }
    }
}
