//! [`Tail`]: what stands behind the last group of a segment.
//!
//! Zeros are room that was filled ahead, or a hole. Other bytes are what a crash left of the group that was being
//! written, or a former life of the file; both are no damage, unless an intact frame of a later group is among them. All
//! of it is looked at, a slice at a time: no byte behind the end is believed to be nothing because those before it are.

use std::io;

use super::zeros::{ZEROS_BYTES, is_zero, write_zeros};
use crate::disk::DiskFile;
use crate::record::{FRAME_BYTES, Frame};

const MAGIC: &[u8; 4] = b"TWF1";
/// Bytes of a checksum, at the end of a block.
const CRC_BYTES: usize = 4;

/// The bytes of a file from a place to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Where it begins.
    pub(super) from: u64,
    /// Where the last byte ends that is not zero; `from` if there is none.
    pub(super) written: u64,
    /// Where the first intact frame stands that was looked for.
    pub(super) frame: Option<u64>,
}

impl Tail {
    /// Looks at everything from a place to `end`; stops at the first intact frame that is `wanted`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn look(
        file: &dyn DiskFile,
        (from, end): (u64, u64),
        seed: u64,
        wanted: impl Fn(&Frame) -> bool,
    ) -> io::Result<Self> {
        let mut tail = Self { from, written: from, frame: None };
        let mut buffer = vec![0; ZEROS_BYTES];
        let mut at = from;
        while at < end {
            let length = usize::try_from(end - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
            let read = file.read_at(&mut buffer[..length], at)?;
            let slice = &buffer[..read];
            if !is_zero(slice) {
                let last = slice.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                tail.written = at + last as u64 + 1;
                tail.frame = find_frame(file, at, slice, seed, &wanted)?;
            }
            if read < length || tail.frame.is_some() {
                break;
            }
            // A frame's magic may lie across the end of a slice.
            let step = if at + (read as u64) < end { read - (MAGIC.len() - 1) } else { read };
            at += step as u64;
        }
        Ok(tail)
    }

    /// Bytes that are not zero, and what lies between them.
    pub(super) fn bytes(&self) -> u64 {
        self.written - self.from
    }

    /// Writes zeros over what is not zero. Durable when it returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn blank(&self, file: &dyn DiskFile) -> io::Result<()> {
        write_zeros(file, self.from, self.written)?;
        file.sync_data()
    }
}

/// Where in a slice, which stands at `base`, the first intact frame begins that is wanted.
fn find_frame(
    file: &dyn DiskFile,
    base: u64,
    slice: &[u8],
    seed: u64,
    wanted: &impl Fn(&Frame) -> bool,
) -> io::Result<Option<u64>> {
    for start in memchr::memmem::find_iter(slice, MAGIC) {
        let place = base + start as u64;
        let mut head = [0; FRAME_BYTES];
        match slice[start..].first_chunk() {
            Some(whole) => head = *whole,
            None if file.read_at(&mut head, place)? < FRAME_BYTES => continue,
            None => {}
        }
        let Ok(frame) = Frame::parse_header(&head) else { continue };
        let mut crc = [0; CRC_BYTES];
        let at = start + FRAME_BYTES - CRC_BYTES + frame.length as usize;
        match slice.get(at..at + CRC_BYTES) {
            Some(inside) => crc.copy_from_slice(inside),
            None if file.read_at(&mut crc, base + at as u64)? < CRC_BYTES => continue,
            None => {}
        }
        if Frame::belongs(&head, &crc, seed) && wanted(&frame) {
            return Ok(Some(place));
        }
    }
    Ok(None)
}
