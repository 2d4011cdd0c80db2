//! Zeros, to be written and to be compared with.

use std::io::{self, IoSlice};

use crate::disk::DiskFile;

/// Bytes that are read or written at once: they stay in the cache of a core.
pub(super) const ZEROS_BYTES: usize = 256 * 1024;

static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];

/// Whether there is nothing but zeros in a slice of at most [`ZEROS_BYTES`].
pub(super) fn is_zero(slice: &[u8]) -> bool {
    ZEROS.get(..slice.len()).is_some_and(|zeros| zeros == slice)
}

/// Writes zeros from a place to another. Not synced.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_zeros(file: &dyn DiskFile, mut at: u64, end: u64) -> io::Result<()> {
    while at < end {
        let length = usize::try_from(end - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        file.write_all_at(&mut [IoSlice::new(&ZEROS[..length])], at)?;
        at += length as u64;
    }
    Ok(())
}
