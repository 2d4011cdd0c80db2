//! Reads groups out of the bytes of a segment.

use bytes::Bytes;

use super::manifest::Manifest;
use crate::record::{Block, FRAME_BYTES, FormatError, Frame, FramedBlock, Group};

/// Frames of a group for which room is made on the word of the first.
const EXPECTED_FRAMES: usize = 64;

/// What stands at a place in a segment.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A whole group, and how many bytes it takes.
    Group(Group, usize),
    /// The bytes end before the group does: at least this many are needed.
    Short(usize),
    /// No group of this segment.
    Damaged(FormatError),
}

/// Reads the group that begins at `from` in `bytes`, checksums included.
pub(super) fn parse_group(bytes: &Bytes, from: usize, seed: u64, manifest: &Manifest) -> Parsed {
    let mut blocks = Vec::new();
    let mut at = from;
    loop {
        let Some(head) = bytes[at..].first_chunk::<FRAME_BYTES>() else {
            return Parsed::Short(at - from + FRAME_BYTES);
        };
        let end = match Frame::parse_header(head) {
            Ok(frame) => at + FRAME_BYTES + frame.length as usize,
            Err(error) => return Parsed::Damaged(error),
        };
        if end > bytes.len() {
            return Parsed::Short(end - from);
        }
        let framed = match parse_framed(bytes, at..end, seed, manifest) {
            Ok(framed) => framed,
            Err(error) => return Parsed::Damaged(error),
        };
        if !follows(blocks.last(), &framed) {
            return Parsed::Damaged(FormatError::Field("the frames of a group do not follow each other"));
        }
        let last = framed.frame.index + 1 == framed.frame.frames;
        if blocks.is_empty() {
            blocks.reserve_exact(usize::from(framed.frame.frames).min(EXPECTED_FRAMES));
        }
        blocks.push(framed);
        at = end;
        if last {
            return Parsed::Group(Group::new(blocks), at - from);
        }
    }
}

fn parse_framed(
    bytes: &Bytes,
    range: std::ops::Range<usize>,
    seed: u64,
    manifest: &Manifest,
) -> Result<FramedBlock, FormatError> {
    let frame = Frame::parse(&bytes[range.clone()], seed)?;
    let block = Block::parse(bytes.slice(range.start + FRAME_BYTES..range.end))?;
    let incarnation = manifest
        .incarnation_of(block.origin())
        .ok_or(FormatError::Field("a block of an origin that was never enrolled"))?;
    block.verify(incarnation)?;
    if u32::from(frame.skip) > block.count() {
        return Err(FormatError::Field("a frame skips more records than its block has"));
    }
    Ok(FramedBlock { frame, block })
}

fn follows(before: Option<&FramedBlock>, next: &FramedBlock) -> bool {
    match before {
        None => next.frame.index == 0,
        Some(before) => {
            next.frame.index == before.frame.index + 1
                && next.frame.sequence == before.frame.sequence
                && next.frame.frames == before.frame.frames
                && next.frame.first_lsn == before.next_lsn()
        }
    }
}
