//! The decoders of what comes over a link, for those who fire at them.

use prost::Message;

use super::marks::{
    decode_offsets, decode_vector, decode_watermarks, encode_offsets, encode_vector, encode_watermarks,
};
use super::pages::{Assembler, Page, PageGroup, split};
use super::wire::{self, frame::Body};
use crate::causal::{OriginMarks, VersionVector, Watermarks};
use crate::error::LinkError;
use crate::id::{Hlc, Incarnation, Offset, OriginTag, PageId, PartitionId};
use crate::record::{Interest, sample_blocks};
use crate::trials::Decoder;

const PARTITIONS: u16 = 8;
/// Bytes of a page that are taken at most.
const MOST_BYTES: usize = 1 << 20;
const FIXED_BYTES: usize = 16 * 1024;

/// Everything that reads frames.
pub const DECODERS: &[Decoder] = &[Decoder {
    name: "wire-frame",
    samples: frames,
    decode: decode_frame,
    seal: None,
    bytes_per_byte: 256,
    fixed_bytes: FIXED_BYTES,
}];

fn frames() -> Vec<Vec<u8>> {
    let (origin, incarnation) = (OriginTag::new(0xAB), Incarnation::new(7));
    let at = |offset| {
        (0..PARTITIONS)
            .map(|partition| (PartitionId::new(partition), Offset::new(offset)))
            .collect::<Vec<_>>()
    };
    let group = PageGroup { closed: Hlc::new(1 << 30), blocks: sample_blocks(incarnation, origin) };
    let (after, through) = (at(0), at(40));
    let page = Page { id: PageId::new(1), origin, incarnation, after, groups: vec![group], through };
    let mut marks = OriginMarks::new(incarnation, PARTITIONS);
    marks.advance(PartitionId::new(2), Offset::new(9), Hlc::new(11));
    let mut watermarks = Watermarks::default();
    watermarks.insert(origin, marks);
    let frontier: VersionVector = [(origin, Hlc::new(11))].into_iter().collect();
    let interest = vec!["eu/".into(), "us/".into()];
    let hello = wire::Hello {
        interest: interest.clone(),
        cluster: "eu-west".into(),
        boot_id: 3,
        tree: "orders".into(),
        partitions: PARTITIONS.into(),
        merge_mode: "lww".into(),
        known_clusters: vec!["us-east".into()],
        ..wire::Hello::default()
    };
    let welcome = wire::Welcome {
        watermarks: encode_watermarks(&watermarks),
        frontier: encode_vector(&frontier),
        credit_bytes: 1 << 20,
        interest,
        ..wire::Welcome::default()
    };
    let ack = wire::Ack {
        watermarks: encode_watermarks(&watermarks),
        frontier: encode_vector(&frontier),
        refused: Some(wire::PageRefusal { page_id: 4, kind: "gap".into(), detail: "a gap".into() }),
        ..wire::Ack::default()
    };
    let heartbeat = wire::Heartbeat {
        origin: origin.get(),
        tails: encode_offsets(&at(40)),
        ..wire::Heartbeat::default()
    };
    let mut bodies =
        vec![Body::Hello(hello), Body::Welcome(welcome), Body::Ack(ack), Body::Heartbeat(heartbeat)];
    bodies.extend(split(&page).into_iter().map(Body::Page));
    bodies.into_iter().map(|body| wire::Frame::new(5, body).encode_to_vec()).collect()
}

fn decode_frame(bytes: &[u8]) -> Result<(), String> {
    let frame =
        wire::Frame::decode(bytes::Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())?;
    let read: Result<(), LinkError> = match frame.body {
        Some(Body::Hello(hello)) => return Decoder::said(Interest::new(hello.interest)),
        Some(Body::Welcome(welcome)) => {
            Decoder::said(Interest::new(welcome.interest))?;
            decode_watermarks(&welcome.watermarks, PARTITIONS)
                .and_then(|_| decode_vector(&welcome.frontier).map(drop))
        }
        Some(Body::Ack(ack)) => decode_watermarks(&ack.watermarks, PARTITIONS)
            .and_then(|_| decode_vector(&ack.frontier).map(drop)),
        Some(Body::Heartbeat(heartbeat)) => decode_offsets(&heartbeat.tails, PARTITIONS).map(drop),
        Some(Body::Page(page)) => Assembler::new(PARTITIONS, MOST_BYTES).push(page).map(drop),
        Some(_) => Ok(()),
        None => return Err("an empty frame".to_owned()),
    };
    Decoder::said(read)
}
