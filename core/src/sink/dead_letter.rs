//! [`DeadLetter`]: one record that a destination will never take.

use bytes::{BufMut, Bytes, BytesMut};

use crate::feed::Cursor;
use crate::id::{Dot, Hlc, Incarnation, Offset, OriginTag, PartitionId, Version};
use crate::record::Kind;
use crate::tree::Change;

/// The first byte of a stored letter.
const VERSION: u8 = 1;
/// Everything before the four texts: version, kind, time, HLC, origin, incarnation, partition, offset, deadline.
const HEAD_BYTES: usize = 2 + 8 * 4 + 2 + 8 + 8;

/// One record that a destination will never take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it lies in this log.
    pub at: Cursor,
    /// What happens.
    pub kind: Kind,
    /// The key, or the first key of a range.
    pub key: Bytes,
    /// The key after the last one of a range.
    pub end_key: Option<Bytes>,
    /// The value.
    pub value: Bytes,
    /// When the value expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Its version.
    pub version: Version,
    /// Its identity.
    pub dot: Dot,
    /// What the destination said.
    pub error: String,
    /// When it was parked, in milliseconds since 1970.
    pub parked_ms: u64,
}

impl DeadLetter {
    pub(super) fn new(at: Cursor, (change, dot): (&Change, Dot), error: String, parked_ms: u64) -> Self {
        Self {
            at,
            kind: change.kind,
            key: Bytes::copy_from_slice(&change.key),
            end_key: change.end_key.as_deref().map(Bytes::copy_from_slice),
            value: Bytes::copy_from_slice(&change.value),
            deadline_ms: change.deadline_ms,
            version: change.version,
            dot,
            error,
            parked_ms,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + 16 + self.key.len() + self.value.len());
        bytes.put_u8(VERSION);
        bytes.put_u8(self.kind as u8);
        bytes.put_u64_le(self.parked_ms);
        bytes.put_u64_le(self.version.hlc.get());
        bytes.put_u64_le(self.version.origin.get());
        bytes.put_u64_le(self.dot.incarnation.get());
        bytes.put_u16_le(self.dot.partition.get());
        bytes.put_u64_le(self.dot.offset.get());
        bytes.put_u64_le(self.deadline_ms.unwrap_or_default());
        // No key is empty, so an empty end stands for none.
        let end_key = self.end_key.as_deref().unwrap_or_default();
        for text in [&self.key[..], end_key, &self.value[..], self.error.as_bytes()] {
            bytes.put_u32_le(u32::try_from(text.len()).expect("a record is below 16 MiB"));
            bytes.put_slice(text);
        }
        bytes.freeze()
    }

    pub(super) fn decode(at: Cursor, bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let long = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if head[0] != VERSION {
            return None;
        }
        let mut text = || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some(text)
        };
        let (key, end_key, value, error) = (text()?, text()?, text()?, text()?);
        let origin = OriginTag::new(long(18)?);
        Some(Self {
            at,
            kind: Kind::from_byte(head[1]).ok()?,
            key: Bytes::copy_from_slice(key),
            end_key: (!end_key.is_empty()).then(|| Bytes::copy_from_slice(end_key)),
            value: Bytes::copy_from_slice(value),
            deadline_ms: long(44).filter(|deadline| *deadline > 0),
            version: Version { hlc: Hlc::new(long(10)?), origin },
            dot: Dot {
                origin,
                incarnation: Incarnation::new(long(26)?),
                partition: PartitionId::new(u16::from_le_bytes([head[34], head[35]])),
                offset: Offset::new(long(36)?),
            },
            error: String::from_utf8(error.to_vec()).ok()?,
            parked_ms: long(2)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Lsn;
    use crate::record::Mutation;
    use crate::sink::MemFeed;
    use crate::tree::ChangeView;

    #[test]
    fn a_letter_survives_being_stored_and_half_of_one_is_refused() {
        let log = MemFeed::sample();
        let expiring = Mutation { deadline_ms: Some(9), ..Mutation::set("a key", vec![7; 20]) };
        log.push(&[expiring, Mutation::delete_range("a", "b")]);
        for change in log.decode(&log.whole(), Lsn::ZERO) {
            let letter = DeadLetter::new(
                log.whole().start(),
                (&change, change.dot.expect("of the log")),
                "no".to_owned(),
                7,
            );
            let bytes = letter.encode();
            assert_eq!(DeadLetter::decode(letter.at, &bytes), Some(letter.clone()));
            for length in 0..bytes.len() {
                assert_eq!(DeadLetter::decode(letter.at, &bytes[..length]), None, "{length}");
            }
        }
    }
}
