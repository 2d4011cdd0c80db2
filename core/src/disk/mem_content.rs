//! [`MemContent`]: the bytes of a file in memory, and what of them a crash would keep.

use std::collections::BTreeMap;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The bytes as they are read, and the durable bytes of those sectors that changed since the last sync.
///
/// Kept as an undo list, because most sectors of most files are durable: a file costs its bytes once.
#[derive(Clone, Default)]
pub(super) struct MemContent {
    live: Vec<u8>,
    durable_len: usize,
    /// Shorter than a sector where the durable bytes end.
    before: BTreeMap<usize, Vec<u8>>,
}

impl MemContent {
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: usize) -> usize {
        let there = self.live.get(offset..).unwrap_or_default();
        let count = there.len().min(buf.len());
        buf[..count].copy_from_slice(&there[..count]);
        count
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        self.remember(offset, end);
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.remember(len, self.live.len());
        self.live.resize(len, 0);
    }

    pub(super) fn sync(&mut self) {
        self.before.clear();
        self.durable_len = self.live.len();
    }

    /// After a sync that failed: the changed sectors count as written and hold what they held before.
    pub(super) fn lose_unsynced(&mut self) {
        let len = self.live.len();
        self.undo(|start| start < len);
        self.live.resize(len, 0);
        self.sync();
    }

    /// What is found after a crash: of the changed sectors none, all, or any, and any length on the way.
    pub(super) fn crash(&mut self, random: &mut fastrand::Rng) {
        let (old, new) = (self.durable_len, self.live.len());
        let survivors = random.u8(..4);
        self.undo(|start| {
            let survives = match survivors {
                0 => false,
                1 => true,
                _ => random.bool(),
            };
            // Nothing was written beyond the new end: what is there is old.
            !survives || start >= new
        });
        let len = match random.u8(..4) {
            0 => old,
            1 | 2 => new,
            _ => random.usize(old.min(new)..=old.max(new)),
        };
        self.live.resize(len, 0);
        self.sync();
    }

    /// Keeps the durable bytes of the sectors of a range that is about to change.
    fn remember(&mut self, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let durable_end = self.durable_len.min(self.live.len());
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            let start = sector * SECTOR;
            self.before.entry(sector).or_insert_with(|| {
                let end = durable_end.min(start + SECTOR);
                if start < end { self.live[start..end].to_vec() } else { Vec::new() }
            });
        }
    }

    /// Puts the durable bytes of chosen sectors back; the length becomes that of the longer of both states.
    fn undo(&mut self, mut choose: impl FnMut(usize) -> bool) {
        self.live.resize(self.live.len().max(self.durable_len), 0);
        for (sector, old) in std::mem::take(&mut self.before) {
            let start = sector * SECTOR;
            if start >= self.live.len() || !choose(start) {
                continue;
            }
            let end = self.live.len().min(start + SECTOR);
            let kept = start + old.len().min(end - start);
            self.live[start..kept].copy_from_slice(&old[..kept - start]);
            self.live[kept..end].fill(0);
        }
    }
}
