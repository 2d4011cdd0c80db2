//! The decoders of this room, for those who fire at them.

use bytes::Bytes;

use super::{
    Block, BlockBuilder, Coverage, FRAME_BYTES, Frame, Interest, Mutation, RecordView, checksum, view,
};
use crate::causal::VersionVector;
use crate::id::{GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::trials::Decoder;

const PARTITIONS: u16 = 8;
const INCARNATION: Incarnation = Incarnation::new(0x1122_3344_5566_7788);
const SEED: u64 = 77;
const FIXED_BYTES: usize = 16 * 1024;

/// Everything that reads records, blocks and frames.
pub const DECODERS: &[Decoder] = &[
    Decoder {
        name: "record",
        samples: records,
        decode: decode_record,
        seal: None,
        bytes_per_byte: 4,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "block",
        samples: blocks,
        decode: decode_block,
        seal: Some(seal_block),
        bytes_per_byte: 16,
        fixed_bytes: FIXED_BYTES,
    },
    Decoder {
        name: "frame",
        samples: frames,
        decode: decode_frame,
        seal: Some(seal_frame),
        bytes_per_byte: 4,
        fixed_bytes: FIXED_BYTES,
    },
];

/// Blocks of a few shapes, all of one origin and incarnation: also for the rooms that frame and ship them.
pub(crate) fn sample_blocks(incarnation: Incarnation, origin: OriginTag) -> Vec<Block> {
    let deps: VersionVector =
        [(OriginTag::new(5), Hlc::new(6)), (OriginTag::new(9), Hlc::new(40))].into_iter().collect();
    let ttl = Mutation { deadline_ms: Some(1_700_000_000_000), ..Mutation::set("b", "expires") };
    let shapes: [(Vec<Mutation>, VersionVector); 3] = [
        (vec![Mutation::set("a", "v")], VersionVector::default()),
        (
            vec![
                Mutation::set("key-1", "value"),
                ttl,
                Mutation::delete("a"),
                Mutation::delete_range("c", "d"),
            ],
            deps.clone(),
        ),
        ((0..40).map(|at| Mutation::set(format!("key-{at}"), vec![b'x'; at])).collect(), deps),
    ];
    let mut next = [Offset::ZERO; PARTITIONS as usize];
    let mut hlc = Hlc::new(1 << 20);
    let mut build = |(mutations, deps): (Vec<Mutation>, VersionVector)| {
        let mut builder = BlockBuilder::new(origin, PARTITIONS, deps.len(), 64);
        for mutation in &mutations {
            hlc = Hlc::new(hlc.get() + 1);
            let partition = PartitionId::of(&mutation.key, PARTITIONS);
            builder.push(mutation, partition, next[partition.index()], hlc, false);
            next[partition.index()] = next[partition.index()].next();
        }
        builder.seal(&deps, incarnation)
    };
    shapes.into_iter().map(&mut build).collect()
}

fn samples() -> Vec<Block> {
    sample_blocks(INCARNATION, OriginTag::new(0xAB))
}

fn blocks() -> Vec<Vec<u8>> {
    let whole = samples();
    let interest = Interest::new(["key-1", "c"]).expect("prefixes");
    let part = |block: &Block| Coverage::of(&whole[0]).filter(block, &interest, INCARNATION);
    let filtered = whole[1..].iter().map(part);
    let cover = Coverage::of(&whole[2]).cover(whole[2].origin(), INCARNATION);
    let all = whole.iter().cloned().chain(filtered).chain([cover]);
    all.map(|block| block.bytes().to_vec()).collect()
}

fn records() -> Vec<Vec<u8>> {
    let ttl = Mutation { deadline_ms: Some(9), ..Mutation::set("key", "value") };
    let all = [ttl, Mutation::set("k", ""), Mutation::delete("a key"), Mutation::delete_range("from", "to")];
    let encoded = all.iter().map(|mutation| {
        let mut bytes = Vec::new();
        view::encode(&mut bytes, mutation, PartitionId::new(3), Hlc::new(99), true);
        bytes
    });
    encoded.collect()
}

fn frames() -> Vec<Vec<u8>> {
    let framed = samples().into_iter().enumerate().map(|(at, block)| {
        let frame = Frame {
            sequence: GroupSequence::new(7),
            index: u16::try_from(at).expect("few"),
            frames: 3,
            length: u32::try_from(block.bytes().len()).expect("small"),
            first_lsn: Lsn::new(50),
            closed: Hlc::new(1 << 30),
            skip: 0,
        };
        let mut bytes = frame.encode(SEED, &block.stored_crc().to_le_bytes()).to_vec();
        bytes.extend_from_slice(block.bytes());
        bytes
    });
    framed.collect()
}

fn decode_record(bytes: &[u8]) -> Result<(), String> {
    let read = RecordView::parse(bytes).and_then(|(record, length)| {
        assert!(length <= bytes.len(), "a record ends within its bytes");
        record.check()
    });
    Decoder::said(read)
}

fn decode_block(bytes: &[u8]) -> Result<(), String> {
    let block = Block::parse(Bytes::copy_from_slice(bytes));
    let read = block.and_then(|block| {
        // Whoever receives a block from elsewhere checks both; whoever reads one may look at these before.
        let _ = (block.deps(), block.runs().len());
        block.verify(INCARNATION)?;
        block.check(PARTITIONS)
    });
    Decoder::said(read)
}

fn seal_block(bytes: &mut [u8]) {
    if let Ok(length) = u32::try_from(bytes.len())
        && let Some(place) = bytes.get_mut(16..20)
    {
        place.copy_from_slice(&length.to_le_bytes());
    }
    Decoder::seal_end(bytes, |body| checksum(INCARNATION.get(), &[body]));
}

fn decode_frame(bytes: &[u8]) -> Result<(), String> {
    let frame = Frame::parse(bytes, SEED).map_err(|error| error.to_string())?;
    if FRAME_BYTES + frame.length as usize == bytes.len() {
        decode_block(&bytes[FRAME_BYTES..])
    } else {
        Err("bytes behind it".to_owned())
    }
}

fn seal_frame(bytes: &mut [u8]) {
    let Some((head, block)) = bytes.split_at_mut_checked(FRAME_BYTES).filter(|(_, block)| block.len() >= 4)
    else {
        return;
    };
    seal_block(block);
    head[20..24].copy_from_slice(&u32::try_from(block.len()).expect("small").to_le_bytes());
    let crc = checksum(SEED, &[&head[..44], &block[block.len() - 4..]]);
    head[44..48].copy_from_slice(&crc.to_le_bytes());
}
