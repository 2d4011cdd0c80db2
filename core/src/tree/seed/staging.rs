//! [`Staging`]: a seed on its way in, kept in a file until it is whole.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::record::SeedWish;
use crate::disk::{DiskFile, OpenMode};
use crate::error::{Error, ErrorKind, StorageError, StorageErrorKind};
use crate::id::ClusterId;
use crate::record::Interest;
use crate::tree::Tree;
use crate::tree::snapshot::{SnapshotHeader, SnapshotName};

/// Bytes after which what came is written and synced.
const SLICE_BYTES: usize = 1024 * 1024;
/// Bytes of the disk that a seed leaves free at least: the log needs room too.
const ROOM_LEFT: u64 = 32 * 1024 * 1024;

/// What a seed did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Rows of the seed, deleted ones included.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Keys that are other now than before.
    pub changed: u64,
    /// Writes of this cluster, made on an older copy of its log, that were written anew.
    pub rewritten: u64,
}

/// A seed on its way in. One at a time; dropping it gives it up.
#[async_trait]
pub trait Staging: Send {
    /// Takes the next bytes, in order.
    ///
    /// # Errors
    /// `Unavailable` when they cannot be kept: the seed is over then. And what [`import`](Self::import) would say, as soon
    /// as it is plain that a seed that begins so is of no use.
    async fn write(&mut self, piece: Bytes) -> Result<(), Error>;

    /// How many bytes have come.
    fn bytes(&self) -> u64;

    /// Joins the whole seed with what is here: durable when it returns. No page may be applied meanwhile. Dropping the
    /// future does not stop it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not what was sent, `Conflict` when a log is known here under another incarnation,
    /// or, with [`LateRows`](super::late::LateRows), when it might bring back what is forgotten here,
    /// `Refused` when the giver's clock is too far ahead, `Unavailable` when it cannot be stored. Nothing has changed.
    async fn import(self: Box<Self>) -> Result<Imported, Error>;
}

pub(super) struct TreeStaging {
    tree: Tree,
    file: Arc<dyn DiskFile>,
    /// Bytes that are written.
    at: u64,
    slice: Vec<u8>,
    /// Which keys were held when it began.
    interest: Interest,
    /// What it begins with was looked at, or is too long for that.
    looked: bool,
    one: OwnedMutexGuard<()>,
}

impl Tree {
    /// The seed that this tree wants, whatever its givers' logs hold.
    pub fn seed_wish(&self) -> Option<SeedWish> {
        self.0.seeds.wish()
    }

    /// Whether a seed is coming in.
    pub fn is_being_seeded(&self) -> bool {
        self.0.seeds.is_staging()
    }

    /// Asks for a seed, durably, whether or not the givers' logs would do.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn wish_for_seed(&self, wish: SeedWish) -> Result<(), Error> {
        let seeds = self.0.seeds.clone();
        Ok(self.0.tasks.blocking(move || seeds.change(|record| record.wish = Some(wish))).await??)
    }

    /// Takes back, durably, what was asked of this giver alone. To be called when none of its seeds can come in any more.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn withdraw_seed(&self, giver: &ClusterId) -> Result<(), Error> {
        let (seeds, giver) = (self.0.seeds.clone(), giver.clone());
        Ok(self.0.tasks.blocking(move || seeds.change(|record| record.withdraw(&giver))).await??)
    }

    pub(super) fn seed_dir(&self) -> PathBuf {
        self.0.seeds.dir.join("seed")
    }

    /// Begins to take a seed. From here on it is wanted until one is finished, also after a crash.
    pub(in crate::tree) async fn stage_seed(&self) -> Result<Box<dyn Staging>, Error> {
        let Ok(one) = self.0.seeds.staging.clone().try_lock_owned() else {
            return Err(Error::new(
                ErrorKind::Busy,
                "another cluster seeds this tree now; the log is enough then, or ask again",
            ));
        };
        let (seeds, dir) = (self.0.seeds.clone(), self.seed_dir());
        let opened = self.0.tasks.blocking(move || {
            let io = |error: std::io::Error| {
                let said = format!("{} takes no seed", dir.display());
                StorageError::new(StorageErrorKind::Io, said).with_source(error)
            };
            seeds.change(|record| {
                record.wish.get_or_insert(SeedWish { from: None });
            })?;
            let path = dir.join(SnapshotName::new(0).file());
            seeds.disk.create_dir_all(&dir).map_err(io)?;
            if seeds.disk.exists(&path).map_err(io)? {
                seeds.disk.remove(&path).map_err(io)?;
            }
            seeds.disk.open(&path, OpenMode::CreateNew).map_err(io)
        });
        let file = opened.await??;
        let (tree, interest) = (self.clone(), self.interest());
        Ok(Box::new(TreeStaging { tree, file, at: 0, slice: Vec::new(), interest, looked: false, one }))
    }
}

impl TreeStaging {
    /// Looks at what the seed begins with as soon as that has come: most of what can be wrong shows there.
    fn look(&mut self) -> Result<(), Error> {
        if self.looked {
            return Ok(());
        }
        let header = SnapshotHeader::front(&self.slice).map_err(|fault| self.tree.unusable(&fault.into()))?;
        self.looked = header.is_some() || self.slice.len() >= SLICE_BYTES;
        header.map_or(Ok(()), |header| self.tree.check_header(&header))
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let (slice, at, file) = (std::mem::take(&mut self.slice), self.at, self.file.clone());
        self.at += slice.len() as u64;
        let (seeds, dir) = (self.tree.0.seeds.clone(), self.tree.seed_dir());
        let written = self.tree.0.tasks.blocking(move || {
            let free = seeds.disk.available(&dir).ok().flatten();
            if let Some(free) = free.filter(|free| *free < slice.len() as u64 + ROOM_LEFT) {
                let said = format!(
                    "{} has no room for a seed: {free} bytes are free, and the log needs some; make room",
                    dir.display()
                );
                return Err(StorageError::new(StorageErrorKind::Full, said));
            }
            file.write_all_at(&mut [IoSlice::new(&slice)], at).and_then(|()| file.sync_data()).map_err(
                |error| {
                    let said = format!("a seed cannot be kept in {}", dir.display());
                    StorageError::new(StorageErrorKind::Io, said).with_source(error)
                },
            )
        });
        Ok(written.await??)
    }
}

#[async_trait]
impl Staging for TreeStaging {
    async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        self.slice.extend_from_slice(&piece);
        self.look()?;
        if self.slice.len() >= SLICE_BYTES { self.flush().await } else { Ok(()) }
    }

    fn bytes(&self) -> u64 {
        self.at + self.slice.len() as u64
    }

    async fn import(mut self: Box<Self>) -> Result<Imported, Error> {
        self.flush().await?;
        let Self { tree, at, one, interest, .. } = *self;
        if interest != tree.interest() {
            let said = "other keys are held here than when this seed began: it is asked for again";
            return Err(Error::new(ErrorKind::Unavailable, said));
        }
        // Joined to its end even if nobody waits for it: half of it would be of no history.
        let (answer, answered) = oneshot::channel();
        let (tasks, name) = (tree.0.tasks.clone(), format!("seed of {}", tree.0.identity.tree));
        tasks.spawn(name, async move {
            let imported = tree.import_seed(at).await;
            drop(one);
            // Nobody may be left who waits for the answer.
            let _gone = answer.send(imported);
        });
        answered.await.unwrap_or_else(|_| Err(Error::shutting_down()))
    }
}
