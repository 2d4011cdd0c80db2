//! [`Join`]: walks through a staged seed and the state here at once, key by key.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::rules::Stand;
use crate::id::Lsn;
use crate::record::Interest;
use crate::tree::core::AppliedState;
use crate::tree::image::EntryImage;
use crate::tree::snapshot::{SnapshotFault, SnapshotFile};

/// Bytes of entries that are copied out of the state under one lock.
const PIECE_BYTES: usize = 64 * 1024;
/// What a key counts beside its bytes.
const KEY_BYTES: usize = 32;

/// A key, as it stands here and in the seed.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Bytes,
    pub(super) here: Option<EntryImage>,
    pub(super) row: Option<EntryImage>,
}

/// A walk in key order. What changes here meanwhile may be seen or not.
pub(super) struct Join {
    file: Arc<SnapshotFile>,
    /// What is held here: an older giver sends more.
    interest: Interest,
    chunk: usize,
    rows: VecDeque<EntryImage>,
    here: VecDeque<EntryImage>,
    /// The last key that was copied; None before the first.
    after: Option<Bytes>,
    at_end: bool,
}

impl Join {
    pub(super) fn new(file: &Arc<SnapshotFile>, interest: &Interest) -> Self {
        let (rows, here) = (VecDeque::new(), VecDeque::new());
        Self {
            file: file.clone(),
            interest: interest.clone(),
            chunk: 0,
            rows,
            here,
            after: None,
            at_end: false,
        }
    }

    /// The next keys of either side, about `most` bytes of them; none at the end. With how many bytes they have. Blocks.
    pub(super) fn some(
        &mut self,
        applied: &AppliedState,
        most: usize,
    ) -> Result<(Vec<Pair>, u64), SnapshotFault> {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        while bytes < most
            && let Some(pair) = self.next(applied)?
        {
            let sides = [&pair.here, &pair.row].into_iter().flatten();
            bytes += sides
                .map(|image| image.key.len() + image.value.as_ref().map_or(0, Bytes::len))
                .sum::<usize>();
            bytes += KEY_BYTES;
            pairs.push(pair);
        }
        Ok((pairs, bytes as u64))
    }

    /// The next key of either side. Blocks.
    pub(super) fn next(&mut self, applied: &AppliedState) -> Result<Option<Pair>, SnapshotFault> {
        self.fill_rows()?;
        self.fill_here(applied);
        let (row, here) = (self.rows.front(), self.here.front());
        let key = match (row, here) {
            (None, None) => return Ok(None),
            (Some(row), None) => row.key.clone(),
            (None, Some(here)) => here.key.clone(),
            (Some(row), Some(here)) => row.key.clone().min(here.key.clone()),
        };
        let of_key = |images: &mut VecDeque<EntryImage>| {
            let is_next = images.front().is_some_and(|image| image.key == key);
            if is_next { images.pop_front() } else { None }
        };
        let (row, here) = (of_key(&mut self.rows), of_key(&mut self.here));
        Ok(Some(Pair { key, here, row }))
    }

    fn fill_rows(&mut self) -> Result<(), SnapshotFault> {
        while self.rows.is_empty() && self.chunk < self.file.chunks() {
            let (rows, interest) = (&mut self.rows, &self.interest);
            self.file.read(self.chunk..self.chunk + 1, |chunk| {
                for entry in chunk.entries() {
                    let entry = entry?;
                    if !interest.contains(entry.key) {
                        continue;
                    }
                    rows.push_back(EntryImage {
                        key: Bytes::copy_from_slice(entry.key),
                        value: entry.value.map(Bytes::copy_from_slice),
                        version: entry.version,
                        // It lies nowhere in this log.
                        lsn: Lsn::ZERO,
                        deadline_ms: entry.deadline_ms,
                    });
                }
                Ok(())
            })?;
            self.chunk += 1;
        }
        Ok(())
    }

    fn fill_here(&mut self, applied: &AppliedState) {
        if !self.here.is_empty() || self.at_end {
            return;
        }
        applied.settle();
        self.here = applied.state.read().export(self.after.as_deref(), PIECE_BYTES).into();
        match self.here.back() {
            Some(last) => self.after = Some(last.key.clone()),
            None => self.at_end = true,
        }
    }
}

/// How an image stands.
pub(super) fn stand(image: &EntryImage) -> Stand {
    Stand { version: image.version, live: image.value.is_some() }
}
