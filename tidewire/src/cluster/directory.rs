//! The data directory: one process at a time, a version that is known, one cluster for ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidewire_core::disk::{DirLock, Disk, OpenMode, read_whole, write_atomically};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::ClusterId;
use tidewire_core::meta::{MetaChange, MetaStore};

/// The layout that this program writes.
const VERSION: &str = "1";

/// An open data directory.
pub(super) struct Directory {
    pub(super) root: PathBuf,
    /// It had no version before: nothing in it is known to belong together.
    fresh: bool,
    /// Held as long as the directory is used.
    _lock: DirLock,
}

fn io(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("data_dir {}: {what}", path.display())).with_source(error)
}

impl Directory {
    /// Creates it if it is not there, locks it and checks its version; one that has none gets it with
    /// [`pin_cluster`](Self::pin_cluster).
    pub(super) fn open(disk: &Arc<dyn Disk>, root: &Path) -> Result<Self, Error> {
        disk.create_dir_all(root)
            .map_err(|error| io("cannot be created; check path and rights", root, error))?;
        let lock = disk.lock(&root.join("LOCK")).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::Conflict,
                format!(
                    "data_dir {} is in use by another process; stop that one, or give this cluster a directory of its own",
                    root.display()
                ),
            ),
            _ => io("cannot be locked", root, error),
        })?;
        let path = root.join("VERSION");
        let fresh = !disk.exists(&path).map_err(|error| io("VERSION cannot be read", root, error))?;
        if !fresh {
            let found = read_whole(disk.as_ref(), &path)
                .map_err(|error| io("VERSION cannot be read", root, error))?;
            check_version(root, &String::from_utf8_lossy(&found))?;
        }
        Ok(Self { root: root.to_owned(), fresh, _lock: lock })
    }

    /// Pins the cluster's name in the metadata, or compares it with the one that is pinned. Metadata that knows nothing beside
    /// trees that are there is not theirs: who reads their logs, what is parked and who is sealed out would be forgotten.
    pub(super) async fn pin_cluster(
        &self,
        disk: &Arc<dyn Disk>,
        meta: &Arc<dyn MetaStore>,
        id: &ClusterId,
    ) -> Result<(), Error> {
        const KEY: &str = "cluster/id";
        match meta.get(KEY).await? {
            Some(pinned) if pinned == id.as_str() => return self.mark(disk),
            Some(pinned) => {
                return Err(Error::new(
                    ErrorKind::Refused,
                    format!(
                        "data_dir belongs to cluster {}, the configuration says {id}; a cluster's id never changes: set it back, or use another data_dir",
                        String::from_utf8_lossy(&pinned)
                    ),
                ));
            }
            None => {}
        }
        let trees = self.trees_on_disk(disk);
        if !trees.is_empty() && !self.fresh {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "data_dir {} has trees ({}), and its metadata (meta.redb) knows nothing of them: put the directory back whole from a copy; \
                     or remove VERSION too, and it goes on without positions of sinks and peers, dead letters, added and sealed peers",
                    self.root.display(),
                    trees.join(", ")
                ),
            ));
        }
        if !trees.is_empty() {
            tracing::warn!(data_dir = %self.root.display(), trees = trees.join(", "), "trees are taken over without metadata: positions of sinks and peers, dead letters, added and sealed peers begin anew");
        }
        let pin = MetaChange::put(KEY, Bytes::copy_from_slice(id.as_str().as_bytes()));
        meta.commit(vec![pin]).await?;
        self.mark(disk)
    }

    /// Gives it its version. Not before the cluster is pinned: a start that is cut short is begun anew like the first one.
    fn mark(&self, disk: &Arc<dyn Disk>) -> Result<(), Error> {
        if !self.fresh {
            return Ok(());
        }
        write_atomically(disk.as_ref(), &self.root.join("VERSION"), format!("{VERSION}\n").as_bytes())
            .map_err(|error| io("VERSION cannot be written", &self.root, error))
    }

    /// The directory of a tree.
    pub(super) fn tree(&self, name: &str) -> PathBuf {
        self.root.join("trees").join(name)
    }

    /// Names of the trees that have files here.
    pub(super) fn trees_on_disk(&self, disk: &Arc<dyn Disk>) -> Vec<String> {
        let manifest = |name: &String| self.tree(name).join("wal").join("MANIFEST");
        let names = disk.list(&self.root.join("trees")).unwrap_or_default();
        names.into_iter().filter(|name| disk.open(&manifest(name), OpenMode::Read).is_ok()).collect()
    }
}

fn check_version(root: &Path, found: &str) -> Result<(), Error> {
    let found = found.trim();
    if found == VERSION {
        return Ok(());
    }
    let root = root.display();
    // Layouts are counted; anything else was not written by any Tidewire.
    let (kind, said) = if found.parse::<u32>().is_ok() {
        let said = format!(
            "data_dir {root} has layout {found}, this program knows layout {VERSION}; use the Tidewire that wrote it"
        );
        (ErrorKind::Refused, said)
    } else {
        let said = format!(
            "data_dir {root}: VERSION holds {:?}, which is no layout; put the directory back whole from a copy",
            found.chars().take(32).collect::<String>()
        );
        (ErrorKind::Corrupt, said)
    };
    Err(Error::new(kind, said))
}
