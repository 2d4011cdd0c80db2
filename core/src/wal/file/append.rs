//! Puts a group behind the end of a segment: one vectored write, one sync.

use std::io::{self, IoSlice};

use crate::disk::DiskFile;
use crate::record::Group;

/// Most slices of one write that the system takes.
const SLICES: usize = 1_024;

/// Writes a group at a position and makes it durable.
pub(super) fn write_group(file: &dyn DiskFile, group: &Group, mut at: u64, seed: u64) -> io::Result<()> {
    let frames: Vec<_> = group
        .blocks()
        .iter()
        .map(|framed| {
            let block = framed.block.bytes();
            framed.frame.encode(seed, &block[block.len() - 4..])
        })
        .collect();
    let parts: Vec<&[u8]> = frames
        .iter()
        .zip(group.blocks())
        .flat_map(|(frame, framed)| [&frame[..], &framed.block.bytes()[..]])
        .collect();
    for chunk in parts.chunks(SLICES) {
        let mut slices: Vec<IoSlice<'_>> = chunk.iter().map(|part| IoSlice::new(part)).collect();
        file.write_all_at(&mut slices, at)?;
        at += chunk.iter().map(|part| part.len() as u64).sum::<u64>();
    }
    file.sync_data()
}
