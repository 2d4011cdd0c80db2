//! [`Manifest`]: whose log it is, what is pinned, and which origins occur in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::segment::SegmentNumber;
use super::small_file::{seal, take, unseal};
use crate::disk::{Disk, OpenMode, write_atomically};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, Incarnation, OriginTag, TreeName};
use crate::record::MergeMode;

const MAGIC: &[u8; 4] = b"TWM1";
const NAME: &str = "MANIFEST";

/// What a log says about itself. Written whole, replaced atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The random id of this log.
    pub incarnation: Incarnation,
    /// The cluster that owns it.
    pub cluster: ClusterId,
    /// The tree.
    pub tree: TreeName,
    /// Number of partitions, pinned.
    pub partitions: u16,
    /// How concurrent writes are merged, pinned.
    pub merge: MergeMode,
    /// The other origins whose blocks may occur.
    pub origins: BTreeMap<OriginTag, (ClusterId, Incarnation)>,
}

fn corrupt(path: &Path, what: &str) -> StorageError {
    StorageError::new(
        StorageErrorKind::Corrupt,
        format!("{}: {what}; put the directory of this tree back from a copy", path.display()),
    )
}

impl Manifest {
    /// Where it lies.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// The incarnation with which blocks of an origin are checked.
    pub fn incarnation_of(&self, origin: OriginTag) -> Option<Incarnation> {
        if origin == self.cluster.tag() {
            return Some(self.incarnation);
        }
        self.origins.get(&origin).map(|(_, incarnation)| *incarnation)
    }

    /// Reads it, if the directory has one.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged, `Unsupported` when a newer version wrote it.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, StorageError> {
        let path = Self::path(dir);
        let io = |error: std::io::Error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be read", path.display()))
                .with_source(error)
        };
        if !disk.exists(&path).map_err(io)? {
            return Ok(None);
        }
        let file = disk.open(&path, OpenMode::Read).map_err(io)?;
        let length = file.len().map_err(io)?.min(1 << 20);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0).map_err(io)?;
        bytes.truncate(read);
        Self::decode(&bytes).map(Some).map_err(|what| corrupt(&path, &what))
    }

    /// Whether the directory has a segment.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn has_segments(disk: &dyn Disk, dir: &Path) -> Result<bool, StorageError> {
        let io = |error: std::io::Error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be listed", dir.display()))
                .with_source(error)
        };
        if !disk.exists(dir).map_err(io)? {
            return Ok(false);
        }
        let names = disk.list(dir).map_err(io)?;
        Ok(names.iter().any(|name| SegmentNumber::from_file_name(name).is_some()))
    }

    /// Replaces it; durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written; the old one stays.
    pub fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let path = Self::path(dir);
        write_atomically(disk, &path, &self.encode()).map_err(|error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be written", path.display()))
                .with_source(error)
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.incarnation.get().to_le_bytes());
        bytes.extend_from_slice(&self.partitions.to_le_bytes());
        for text in [self.cluster.as_str(), self.tree.as_str(), self.merge.name()] {
            put_text(&mut bytes, text);
        }
        let origins = u16::try_from(self.origins.len()).expect("known clusters are bounded");
        bytes.extend_from_slice(&origins.to_le_bytes());
        for (name, incarnation) in self.origins.values() {
            put_text(&mut bytes, name.as_str());
            bytes.extend_from_slice(&incarnation.get().to_le_bytes());
        }
        seal(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let fields = unseal(bytes, MAGIC, "manifest")?;
        Self::decode_body(fields).ok_or_else(|| "the manifest has a field that cannot be".to_owned())
    }

    fn decode_body(mut rest: &[u8]) -> Option<Self> {
        let incarnation = Incarnation::new(u64::from_le_bytes(*take(&mut rest)?));
        let partitions = u16::from_le_bytes(*take(&mut rest)?);
        let cluster = ClusterId::new(take_text(&mut rest)?).ok()?;
        let tree = TreeName::new(take_text(&mut rest)?).ok()?;
        let merge = MergeMode::from_name(take_text(&mut rest)?)?;
        let count = u16::from_le_bytes(*take(&mut rest)?);
        let mut origins = BTreeMap::new();
        for _ in 0..count {
            let name = ClusterId::new(take_text(&mut rest)?).ok()?;
            let incarnation = Incarnation::new(u64::from_le_bytes(*take(&mut rest)?));
            origins.insert(name.tag(), (name, incarnation));
        }
        rest.is_empty().then_some(Self { incarnation, cluster, tree, partitions, merge, origins })
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).expect("names are at most 63 bytes"));
    bytes.extend_from_slice(text.as_bytes());
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let [length] = *take::<1>(rest)?;
    let (head, tail) = rest.split_at_checked(usize::from(length))?;
    *rest = tail;
    std::str::from_utf8(head).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_every_flipped_bit_is_noticed() {
        let name = |text| ClusterId::new(text).expect("name");
        let manifest = Manifest {
            incarnation: Incarnation::new(77),
            cluster: name("here"),
            tree: TreeName::new("orders").expect("name"),
            partitions: 8,
            merge: MergeMode::LastWriterWins,
            origins: [(name("there").tag(), (name("there"), Incarnation::new(5)))].into(),
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
