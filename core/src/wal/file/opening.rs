//! [`Opening`]: from the directory of a log to a [`FileStorage`].

use std::path::Path;
use std::sync::Arc;

use super::index::SegmentIndex;
use super::manifest::Manifest;
use super::recovery::{Recovery, Visitor};
use super::segment::SegmentNumber;
use super::segments::Segments;
use super::storage::{FileStorage, OpenedLog, failed};
use super::trim_point::TrimPoint;
use crate::disk::{Disk, OpenMode};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::Lsn;
use crate::limits::Limits;
use crate::tasks::Tasks;

/// What a log is opened with.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The MANIFEST of the directory, if it has one.
    pub(crate) found: Option<Manifest>,
    /// What a new log would say about itself.
    pub(crate) new: Manifest,
    pub(crate) limits: Limits,
    /// What ends here or below is not shown.
    pub(crate) from: Lsn,
}

impl Opening {
    /// Opens the log, or creates it, and shows every group that reaches beyond the position, in order. Blocks.
    ///
    /// # Errors
    /// As [`FileStorage::open`].
    pub(crate) fn run(
        self,
        disk: Arc<dyn Disk>,
        dir: &Path,
        tasks: Tasks,
        visit: Visitor<'_>,
    ) -> Result<OpenedLog, StorageError> {
        disk.create_dir_all(dir).map_err(|error| failed(dir.display(), error))?;
        let Self { found, new, limits, from } = self;
        let fresh = new.clone();
        let mut manifest = match found {
            Some(manifest) => {
                Self::check_pinned(&manifest, &new)?;
                manifest
            }
            None => {
                Self::refuse_segments_without_manifest(disk.as_ref(), dir)?;
                new.store(disk.as_ref(), dir)?;
                new
            }
        };
        let trim = TrimPoint::load(disk.as_ref(), dir, manifest.incarnation)?;
        // Whoever wrote here last may have been killed before a name was durable, or the end of one. What is seen now is
        // built upon: nothing may come back or go away that was neither.
        disk.sync_dir(dir).map_err(|error| failed(dir.display(), error))?;
        let recovery = Recovery {
            disk: disk.as_ref(),
            dir,
            manifest: &manifest,
            trim: trim.as_ref(),
            from,
            mode: OpenMode::Write,
        };
        let found = recovery.run(visit)?;
        if let Some(last) = found.segments.last() {
            // The same goes for its last group: it may have been written and not synced. Once it is shown it has to stay.
            let path = recovery.path(last.header.number);
            last.file.sync_data().map_err(|error| failed(path.display(), error))?;
        }
        if found.segments.is_empty() && manifest.incarnation != fresh.incarnation {
            // Either its creation was cut short, or its segments are gone: it is another log from now on, and peers that
            // know the old one say so.
            tracing::warn!(dir = %dir.display(), "no segment of this log is there: it begins anew under another incarnation");
            fresh.store(disk.as_ref(), dir)?;
            manifest = fresh;
        }
        let next_lsn = found.segments.last().map_or(Lsn::ZERO, SegmentIndex::next_lsn);
        let segments = Segments::recovered(found, trim);
        let storage = FileStorage::assemble((disk, dir), manifest, limits, tasks, segments);
        storage.remove_dead();
        if storage.segments.read().list.is_empty() {
            storage.add_segment()?;
        }
        let next_group = storage.segments.read().next_group;
        Ok(OpenedLog { storage, next_lsn, next_group })
    }

    fn refuse_segments_without_manifest(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let names = disk.list(dir).map_err(|error| failed(dir.display(), error))?;
        if names.iter().any(|name| SegmentNumber::from_file_name(name).is_some()) {
            return Err(StorageError::new(
                StorageErrorKind::Corrupt,
                format!(
                    "{} holds segments but no MANIFEST; put the directory of this tree back from a copy",
                    dir.display()
                ),
            ));
        }
        Ok(())
    }

    fn check_pinned(found: &Manifest, wanted: &Manifest) -> Result<(), StorageError> {
        let refuse = |what: &str, pinned: &dyn std::fmt::Display, asked: &dyn std::fmt::Display| {
            Err(StorageError::new(
                StorageErrorKind::Unsupported,
                format!(
                    "tree {:?}: {what} is pinned at {pinned} since the tree was created, and the configuration says {asked}; set it back to {pinned}",
                    found.tree.as_str()
                ),
            ))
        };
        if found.cluster != wanted.cluster {
            return refuse("the cluster id", &found.cluster, &wanted.cluster);
        }
        if found.tree != wanted.tree {
            return refuse("the name", &found.tree, &wanted.tree);
        }
        if found.partitions != wanted.partitions {
            return refuse("partitions", &found.partitions, &wanted.partitions);
        }
        if found.merge != wanted.merge {
            return refuse("merge", &found.merge, &wanted.merge);
        }
        Ok(())
    }
}
