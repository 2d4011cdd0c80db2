//! walrus: `FsyncSchedule::SyncEach`. Files are opened with O_SYNC and every append ends with an fsync. For batches its
//! other backend, mapped files and one msync for a batch: with O_SYNC each record of a batch is a synced write of its
//! own, a hundred times slower. A topic for each writer: one topic has one lock.

use std::path::Path;

use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus, disable_fd_backend};

use super::peer::Peer;
use crate::failure::Outcome;
use crate::turn::Work;

/// Where walrus looks for its directory.
pub const DIR_VARIABLE: &str = "WALRUS_DATA_DIR";

/// A walrus, and the topics of its writers.
pub struct Walruses {
    walrus: Walrus,
    topics: Vec<String>,
    prepares: bool,
}

impl Walruses {
    /// The process has to be started with [`DIR_VARIABLE`] set to `dir`. Records that are only prepared, for others to read,
    /// are not synced: that would take minutes.
    pub fn open(dir: &Path, work: &Work) -> Outcome<Self> {
        if std::env::var_os(DIR_VARIABLE).as_deref() != Some(dir.as_os_str()) {
            return Err("walrus was started for another directory".into());
        }
        let reads = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };
        let prepares = matches!(work, Work::Fill { .. });
        let schedule = if prepares { FsyncSchedule::NoFsync } else { FsyncSchedule::SyncEach };
        if matches!(work, Work::Batches { .. }) {
            disable_fd_backend();
        }
        let walrus = Walrus::with_consistency_and_schedule(reads, schedule)?;
        Ok(Self { walrus, topics: (0..256).map(|writer| format!("w{writer}")).collect(), prepares })
    }
}

impl Peer for Walruses {
    fn append(&self, writer: usize, _key: &[u8; 16], value: &[u8]) -> Outcome<()> {
        Ok(self.walrus.append_for_topic(&self.topics[writer], value)?)
    }

    fn append_many(&self, writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()> {
        if self.prepares {
            return keys.iter().try_for_each(|key| self.append(writer, key, value));
        }
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
