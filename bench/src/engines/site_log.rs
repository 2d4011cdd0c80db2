//! What is measured of a [`Site`]'s logs alone, not of its links.

use tidewire_core::id::{Incarnation, TreeName};
use tidewire_core::record::MergeMode;
use tidewire_core::wal::file::Manifest;

use super::tide_site::Site;

impl Site {
    /// What a new log of this cluster says about itself.
    pub fn manifest(&self, tree: &TreeName, partitions: u16) -> Manifest {
        Manifest {
            incarnation: Incarnation::new(self.random.id()),
            cluster: self.cluster.clone(),
            tree: tree.clone(),
            partitions,
            merge: MergeMode::default(),
            origins: Default::default(),
        }
    }

    /// Groups made durable so far, each with one sync.
    pub fn groups(&self) -> u64 {
        let text = self.metrics.render();
        let lines = text.lines().filter(|line| line.starts_with("tidewire_committed_groups_total"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}
