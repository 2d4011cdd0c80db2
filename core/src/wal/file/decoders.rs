//! The decoders of a log's files, for those who fire at them.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::footer::{decode_footer, encode_footer};
use super::index::Contents;
use super::log_files::LogFiles;
use super::manifest::Manifest;
use super::parse::{Parsed, parse_group};
use super::segment::{HEADER_BYTES, SegmentHeader, SegmentNumber};
use super::trim_point::TrimPoint;
use crate::disk::{Disk, MemDisk, OpenMode};
use crate::id::{ClusterId, GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, TreeName};
use crate::record::{Frame, FramedBlock, Group, MergeMode, checksum, sample_blocks};
use crate::trials::Decoder;

const DIR: &str = "/wal";
const INCARNATION: Incarnation = Incarnation::new(0x77);
const FIXED_BYTES: usize = 16 * 1024;

/// Everything that reads what lies in the directory of a log.
pub const DECODERS: &[Decoder] = &[
    Decoder {
        name: "group",
        samples: groups,
        decode: decode_group,
        seal: None,
        bytes_per_byte: 32,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "segment-header",
        samples: || vec![header().encode().to_vec()],
        decode: |bytes| {
            Decoder::said(exact(bytes, HEADER_BYTES).and_then(|()| said(SegmentHeader::decode(bytes))))
        },
        seal: Some(|bytes| Decoder::seal_end(bytes, |body| checksum(0, &[body]))),
        bytes_per_byte: 4,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "segment-footer",
        samples: || vec![encode_footer(&contents(), header().seed())],
        decode: |bytes| said(decode_footer(bytes, contents().end, header().seed())),
        seal: Some(seal_footer),
        bytes_per_byte: 16,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "manifest",
        samples: || vec![manifest().encode()],
        decode: |bytes| said(Manifest::decode(bytes)),
        seal: Some(|bytes| Decoder::seal_end(bytes, |body| checksum(0, &[body]))),
        bytes_per_byte: 64,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "trim-point",
        samples: || vec![trim_point().encode()],
        decode: |bytes| said(TrimPoint::decode(bytes)),
        seal: Some(|bytes| Decoder::seal_end(bytes, |body| checksum(0, &[body]))),
        bytes_per_byte: 32,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "segment",
        samples: segments,
        decode: decode_segment,
        seal: None,
        bytes_per_byte: 64,
        fixed_bytes: 1 << 20,
    },
];

fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
    Decoder::said(result)
}

fn exact(bytes: &[u8], length: usize) -> Result<(), String> {
    if bytes.len() == length { Ok(()) } else { Err("another length".to_owned()) }
}

fn manifest() -> Manifest {
    let name = |text| ClusterId::new(text).expect("a name");
    Manifest {
        incarnation: INCARNATION,
        cluster: name("here"),
        tree: TreeName::new("orders").expect("a name"),
        partitions: 8,
        merge: MergeMode::LastWriterWins,
        origins: [(name("there").tag(), (name("there"), Incarnation::new(5)))].into(),
    }
}

fn header() -> SegmentHeader {
    SegmentHeader {
        incarnation: INCARNATION,
        number: SegmentNumber(1),
        first_lsn: Lsn::ZERO,
        first_group: GroupSequence::ZERO,
        before: None,
        recycled: false,
    }
}

fn trim_point() -> TrimPoint {
    TrimPoint {
        incarnation: INCARNATION,
        segment: SegmentNumber(5),
        first_lsn: Lsn::new(900),
        first_group: GroupSequence::new(40),
        ends: [((OriginTag::new(3), PartitionId::new(1)), Offset::new(450))].into(),
    }
}

fn sample_groups() -> Vec<Group> {
    let blocks = sample_blocks(INCARNATION, manifest().cluster.tag());
    let mut lsn = Lsn::ZERO;
    let mut framed = |sequence: u64, index: u16, frames: u16, at: usize| {
        let block = blocks[at].clone();
        let frame = Frame {
            sequence: GroupSequence::new(sequence),
            index,
            frames,
            length: u32::try_from(block.bytes().len()).expect("small"),
            first_lsn: lsn,
            closed: Hlc::new(1 << 30),
            skip: 0,
        };
        lsn = lsn.advanced(u64::from(block.count()));
        FramedBlock { frame, block }
    };
    let first = Group::new(vec![framed(0, 0, 1, 0)]);
    let second = Group::new(vec![framed(1, 0, 2, 1), framed(1, 1, 2, 2)]);
    vec![first, second]
}

fn bytes_of(group: &Group) -> Vec<u8> {
    let mut bytes = Vec::new();
    for framed in group.blocks() {
        bytes.extend_from_slice(
            &framed.frame.encode(header().seed(), &framed.block.stored_crc().to_le_bytes()),
        );
        bytes.extend_from_slice(framed.block.bytes());
    }
    bytes
}

fn groups() -> Vec<Vec<u8>> {
    sample_groups().iter().map(bytes_of).collect()
}

fn contents() -> Contents {
    let mut contents = Contents::new(&header());
    for group in sample_groups() {
        contents.push(&group);
    }
    contents
}

fn segments() -> Vec<Vec<u8>> {
    let mut bytes = header().encode().to_vec();
    for group in groups() {
        bytes.extend(group);
    }
    // Room that was filled ahead.
    let filled = [&bytes[..], &[0; 300]].concat();
    vec![bytes, filled]
}

fn decode_group(bytes: &[u8]) -> Result<(), String> {
    match parse_group(&Bytes::copy_from_slice(bytes), 0, header().seed(), &manifest()) {
        Parsed::Group(_, length) => exact(bytes, length),
        Parsed::Short(needed) => {
            assert!(needed > bytes.len(), "more bytes are needed than there are");
            Err("short".to_owned())
        }
        Parsed::Damaged(error) => Err(error.to_string()),
    }
}

fn seal_footer(bytes: &mut [u8]) {
    if let Ok(length) = u32::try_from(bytes.len())
        && let Some(place) = bytes.get_mut(8..12)
    {
        place.copy_from_slice(&length.to_le_bytes());
    }
    Decoder::seal_end(bytes, |body| checksum(header().seed(), &[body]));
}

/// A log of this one segment, as the tools look at it: whatever its bytes are, what it says adds up.
fn decode_segment(bytes: &[u8]) -> Result<(), String> {
    let disk = MemDisk::new();
    let put = |name: &str, bytes: &[u8]| {
        let file = disk.open(&Path::new(DIR).join(name), OpenMode::CreateNew).expect("created");
        file.write_all_at(&mut [IoSlice::new(bytes)], 0).expect("written");
    };
    disk.create_dir_all(Path::new(DIR)).expect("created");
    put("MANIFEST", &manifest().encode());
    put(&header().number.file_name(), bytes);
    let log = LogFiles::open(Arc::new(disk), Path::new(DIR)).map_err(|error| error.to_string())?;
    let checkup = log.check(&mut |done, total| assert!(done <= total)).map_err(|error| error.to_string())?;
    let whole: u64 = sample_groups().iter().map(Group::records).sum();
    assert!(checkup.records() <= whole, "no more records than were written");
    match checkup.damage {
        Some(damage) => Err(damage.what),
        None if checkup.records() < whole => Err("cut short".to_owned()),
        None => Ok(()),
    }
}
