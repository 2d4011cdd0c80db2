//! The decoders of a snapshot, for those who fire at them.

use bytes::Bytes;

use super::chunk::{Chunk, ChunkBuilder, EntryView, SealedChunk};
use super::footer::{ChunkPlace, SnapshotFooter, TAIL_BYTES};
use super::header::SnapshotHeader;
use crate::causal::{OriginMarks, Watermarks};
use crate::id::{Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::record::{FormatError, checksum};
use crate::tree::image::RangeImage;
use crate::tree::target::Progress;
use crate::trials::Decoder;

const INCARNATION: Incarnation = Incarnation::new(0x1122);
const FIXED_BYTES: usize = 16 * 1024;

/// Everything that reads snapshots.
pub(in crate::tree) const DECODERS: &[Decoder] = &[
    Decoder {
        name: "snapshot-header",
        samples: || vec![header().encode()],
        decode: |bytes| Decoder::said(decode_header(bytes)),
        seal: Some(seal_header),
        bytes_per_byte: 64,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "snapshot-chunk",
        samples: chunks,
        decode: |bytes| Decoder::said(decode_chunk(bytes)),
        seal: Some(seal_chunk),
        // Packed bytes gain at most 256 for one, and nothing is unpacked under a wrong checksum.
        bytes_per_byte: 300,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "snapshot-footer",
        samples: footers,
        decode: |bytes| Decoder::said(SnapshotFooter::decode(bytes, INCARNATION)),
        seal: Some(|bytes| Decoder::seal_end(bytes, |body| checksum(INCARNATION.get(), &[body]))),
        bytes_per_byte: 16,
        fixed_bytes: FIXED_BYTES,
    },
];

fn header() -> SnapshotHeader {
    let mut watermarks = Watermarks::default();
    for origin in [3, 9] {
        let mut marks = OriginMarks::new(Incarnation::new(origin + 100), 2);
        marks.advance(PartitionId::new(1), Offset::new(origin * 7), Hlc::new(origin * 11));
        watermarks.insert(OriginTag::new(origin), marks);
    }
    SnapshotHeader {
        incarnation: INCARNATION,
        number: 7,
        covered: Lsn::new(5_000),
        written_ms: 1_700_000_000_000,
        clock: Hlc::new(99),
        partitions: 2,
        progress: Progress {
            frontier: [(OriginTag::new(3), Hlc::new(40))].into_iter().collect(),
            watermarks,
            reaped: Hlc::new(33),
        },
        observed: [(OriginTag::new(9), Hlc::new(98))].into_iter().collect(),
        ranges: vec![RangeImage {
            from: Bytes::from_static(b"a"),
            to: Bytes::from_static(b"b"),
            version: version(77),
            lsn: Lsn::new(4_999),
        }],
    }
}

fn version(hlc: u64) -> Version {
    Version { hlc: Hlc::new(hlc), origin: OriginTag::new(9) }
}

fn decode_header(bytes: &[u8]) -> Result<(), FormatError> {
    if SnapshotHeader::length(bytes)? != bytes.len() {
        return Err(FormatError::Short("a snapshot"));
    }
    SnapshotHeader::decode(bytes).map(drop)
}

fn seal_header(bytes: &mut [u8]) {
    if let Ok(length) = u32::try_from(bytes.len())
        && let Some(place) = bytes.get_mut(8..12)
    {
        place.copy_from_slice(&length.to_le_bytes());
    }
    // The seed is the incarnation that the header says.
    let seed = bytes.get(12..20).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    Decoder::seal_end(bytes, |body| checksum(seed, &[body]));
}

/// One that is packed, and one that would only grow.
fn chunks() -> Vec<Vec<u8>> {
    let of = |values: &[&[u8]]| {
        let mut builder = ChunkBuilder::default();
        for (at, value) in (0..).zip(values) {
            let key = format!("key-{at}");
            let value = (at % 3 != 1).then_some(*value);
            let deadline_ms = value.filter(|_| at % 3 == 2).map(|_| 1_700_000_000_000);
            builder.push(&EntryView {
                key: key.as_bytes(),
                value,
                version: version(at),
                lsn: Lsn::new(at),
                deadline_ms,
            });
        }
        builder.seal(INCARNATION, 0)
    };
    vec![of(&[&[b'v'; 200][..]; 12]), of(&[b"short"])]
}

fn decode_chunk(bytes: &[u8]) -> Result<(), FormatError> {
    let mut chunk = Chunk::default();
    chunk.parse(bytes, INCARNATION, 0)?;
    for entry in chunk.entries() {
        entry?;
    }
    // As it is loaded: what is good as a whole is good with its values left packed.
    let bytes = Bytes::copy_from_slice(bytes);
    let loaded = SealedChunk::open(&bytes, INCARNATION, 0)?.rows(&bytes)?;
    loaded.map_or(Ok(()), |rows| rows.visit(|_| Ok(())))
}

fn seal_chunk(bytes: &mut [u8]) {
    Decoder::seal_end(bytes, |body| checksum(super::chunk::seed(INCARNATION, 0), &[body]));
}

fn footers() -> Vec<Vec<u8>> {
    let place = |at| ChunkPlace { at, length: 300, entries: 12, crc: 0xfeed };
    let footer = SnapshotFooter {
        end: Lsn::new(6_000),
        entries: 24,
        raw_bytes: 900,
        chunks: vec![place(200), place(500)],
        superseded: vec![Lsn::new(10)..Lsn::new(12)],
    };
    let mut bytes = footer.encode(INCARNATION);
    bytes.truncate(bytes.len() - TAIL_BYTES);
    vec![bytes]
}
