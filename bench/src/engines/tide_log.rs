//! [`TideLog`]: the log of a tree without the tree: writer and files, and nobody who applies what is durable.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire_core::id::{Lsn, PartitionId, TreeName};
use tidewire_core::limits::Limits;
use tidewire_core::record::{Group, Mutation};
use tidewire_core::tasks::Tasks;
use tidewire_core::wal::file::FileStorage;
use tidewire_core::wal::{DurableGroups, WalStorage, Writer, WriterConfig, WriterStart};

use super::tide_site::Site;
use crate::bare::FILE_BYTES;
use crate::failure::Outcome;
use crate::workload::{serial_key, value};

const COLLECTED_EVERY: Duration = Duration::from_millis(20);

/// How a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Every group is read and checked.
    Whole,
    /// Sealed segments by their footers, as with a snapshot that covers them.
    Footers,
}

/// A log on files. Cheap to clone.
#[derive(Clone)]
pub struct TideLog {
    writer: Writer,
    storage: Arc<FileStorage>,
}

struct Nobody;

impl DurableGroups for Nobody {
    fn apply(&self, _group: &Arc<Group>) {}

    fn is_followed(&self) -> bool {
        false
    }
}

impl TideLog {
    /// Opens the log of a tree, or creates it. Blocks.
    pub fn open(site: &Site, name: &str, partitions: u16, opening: Opening) -> Outcome<Self> {
        let tree = TreeName::new(name)?;
        let limits = Limits::default();
        let from = match opening {
            Opening::Whole => Lsn::ZERO,
            Opening::Footers => Lsn::new(u64::MAX),
        };
        let opened = FileStorage::open(
            site.disk.clone(),
            &site.dir.join(name).join("wal"),
            site.manifest(&tree, partitions),
            limits.clone(),
            site.tasks.clone(),
            from,
            &mut |_| {},
        )?;
        let storage = opened.storage;
        let origin = site.cluster.tag();
        let next = |partition| storage.partition((origin, PartitionId::new(partition))).next;
        let offsets = (0..partitions).map(next).collect();
        let writer = Writer::new(
            WriterConfig {
                tree,
                origin,
                incarnation: storage.manifest().incarnation,
                partitions,
                limits,
                clock: site.clock.clone(),
                storage: storage.clone(),
                runner: site.runner.clone(),
                groups: Arc::new(Nobody),
                metrics: site.wal_metrics.clone(),
            },
            WriterStart {
                lsn: opened.next_lsn,
                sequence: opened.next_group,
                offsets,
                ..WriterStart::default()
            },
        );
        Ok(Self { writer, storage })
    }

    /// Makes it what a log is in service, where consumers keep up: its files have their size and are written over again
    /// and again, behind a collector that lets go of each as soon as it is full. The bare loop has the same.
    pub async fn serve(&self, tasks: &Tasks) -> Outcome<()> {
        let record = |at| Mutation::set(Bytes::copy_from_slice(&serial_key(at)), value(1024));
        let records: Vec<Mutation> = (0..1_000).map(record).collect();
        while self.storage.bounds().physical_bytes < 3 * FILE_BYTES as u64 {
            self.writer.append(&records).await?;
        }
        let storage = self.storage.clone();
        tasks.spawn("collector", async move {
            loop {
                let bounds = storage.bounds();
                if bounds.retained_bytes > FILE_BYTES as u64
                    && let Err(error) = storage.trim(bounds.next).await
                {
                    eprintln!("nothing is trimmed any more: {error}");
                    return;
                }
                tokio::time::sleep(COLLECTED_EVERY).await;
            }
        });
        Ok(())
    }

    /// The writing end.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Where it lies.
    pub fn storage(&self) -> &Arc<FileStorage> {
        &self.storage
    }
}
