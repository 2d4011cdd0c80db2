//! The decoder of the record of seeds, for those who fire at it.

use super::floors::Floors;
use super::record::{SeedRecord, SeedWish};
use crate::causal::Watermark;
use crate::id::{ClusterId, Hlc, Incarnation, Offset, OriginTag, PartitionId};
use crate::record::checksum;
use crate::trials::Decoder;

const INCARNATION: Incarnation = Incarnation::new(0x77);

/// What reads the record of seeds.
pub(in crate::tree) const DECODERS: &[Decoder] = &[Decoder {
    name: "seed-record",
    samples,
    decode: |bytes| SeedRecord::decode(bytes, INCARNATION).map(drop).map_err(|error| error.to_string()),
    seal: Some(|bytes| Decoder::seal_end(bytes, |body| checksum(INCARNATION.get(), &[body]))),
    bytes_per_byte: 32,
    fixed_bytes: 16 * 1024,
}];

/// One in which nothing ever happened, and one in which everything is under way.
fn samples() -> Vec<Vec<u8>> {
    let mut floors = Floors::default();
    for (origin, partition, next) in [(3, 1, 450), (4, 0, 9), (4, 7, 1)] {
        let mark = Watermark { next: Offset::new(next), hlc: Hlc::new(next * 16) };
        floors.raise(OriginTag::new(origin), PartitionId::new(partition), mark);
    }
    let busy = SeedRecord {
        wish: Some(SeedWish { from: ClusterId::new("there").ok() }),
        base: Some(4),
        floors: floors.clone(),
        holes: [PartitionId::new(2), PartitionId::new(5)].into(),
        pending: Some((5, floors)),
        ..SeedRecord::default()
    };
    [SeedRecord::default(), busy].iter().map(|record| record.encode(INCARNATION)).collect()
}
