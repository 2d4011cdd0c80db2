//! [`Change`] and [`ChangeView`]: batches decoded into what was effective, for whoever wants keys and values.
//!
//! A log order is not a version order: what lost on arrival is left out, so that whoever applies changes in the order
//! of a log ends with what the tree holds.

use bytes::Bytes;

use crate::feed::{Batch, Cursor, StateRows};
use crate::id::{Dot, Incarnation, Lsn, Offset, OriginTag, SeedNumber, Version};
use crate::limits::MAX_PARTITIONS;
use crate::record::{FramedBlock, Kind};

/// One effective change: it won when it was applied here. What lost on arrival is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: Kind,
    /// The key, or the first key of a range: a slice of its batch, so copy what you keep.
    pub key: Bytes,
    /// The key after the last one of a range: a slice of its batch.
    pub end_key: Option<Bytes>,
    /// The value: a slice of its batch, so copy what you keep.
    pub value: Bytes,
    /// When the value expires, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Its version.
    pub version: Version,
    /// Its identity; None for a row of the state, of which that is not known.
    pub dot: Option<Dot>,
    /// Where it lies in this log; for a row of the state, before which record it belongs.
    pub lsn: Lsn,
    /// Where reading goes on after it.
    pub cursor: Cursor,
}

/// What a tree knows beyond the bytes of a batch.
pub trait ChangeView: Send + Sync + 'static {
    /// The effective changes of a batch at or after `from`, in log order, of the stretch that the batch means, or its rows of
    /// the state. Maintenance is left out.
    fn decode(&self, batch: &Batch, from: Lsn) -> Vec<Change>;

    /// Keys that a range delete removed here, and that nothing has set since: in key order, after a key, at most
    /// `limit`.
    fn removed(&self, change: &Change, after: Option<&[u8]>, limit: usize) -> Vec<Bytes>;

    /// Whether the key of a change was deleted or expired since, and what says so is forgotten here or may be at any moment:
    /// a range delete that comes later in the log does not name it any more. Whoever asks for
    /// [`removed`](Self::removed) keys takes such a change for a delete.
    fn is_forgotten(&self, change: &Change) -> bool {
        let _ = change;
        false
    }

    /// The last seed that the state has taken over: what came with it is not in the log.
    fn seeded(&self) -> SeedNumber {
        SeedNumber::ZERO
    }

    /// Some of the keys, deleted ones included, that were set or deleted last by something that lies below a position of the
    /// log, or nowhere in it: in key order, after a key.
    fn rows(&self, below: Lsn, after: Option<&[u8]>) -> StateRows {
        let _ = (below, after);
        StateRows::default()
    }

    /// The name of an origin, or a text with its tag if it is not known.
    fn origin_name(&self, origin: OriginTag) -> String;
}

/// The rows of a batch as changes.
pub(crate) fn decode_rows(batch: &Batch, into: &mut Vec<Change>) {
    let changes = batch.rows().iter().map(|row| Change {
        kind: if row.value.is_some() { Kind::Set } else { Kind::Delete },
        key: row.key.clone(),
        end_key: None,
        value: row.value.clone().unwrap_or_default(),
        deadline_ms: row.deadline_ms,
        version: row.version,
        dot: None,
        lsn: batch.end().lsn,
        cursor: batch.end(),
    });
    into.extend(changes);
}

/// Decodes a block; `effective` says of a record's position whether it won when it was applied.
pub(crate) fn decode_block(
    framed: &FramedBlock,
    incarnation: Incarnation,
    batch: &Batch,
    from: Lsn,
    effective: impl Fn(Lsn) -> bool,
    into: &mut Vec<Change>,
) {
    let block = &framed.block;
    let mut offsets = [Offset::ZERO; MAX_PARTITIONS as usize];
    for run in block.runs() {
        offsets[run.partition.index()] = run.first;
    }
    let skip = usize::from(framed.frame.skip);
    let (from, end) = (from.max(batch.start().lsn), batch.end().lsn);
    let mut lsn = framed.frame.first_lsn;
    for (at, record) in block.records().flatten().enumerate() {
        let Some(offset) = offsets.get_mut(record.partition.index()) else { continue };
        let own = record.offset.unwrap_or(*offset);
        let dot = Dot { origin: block.origin(), incarnation, partition: record.partition, offset: own };
        *offset = own.next();
        if at < skip {
            continue;
        }
        let version = Version { hlc: record.hlc, origin: block.origin() };
        if (from..end).contains(&lsn) && record.kind != Kind::Mark && effective(lsn) {
            let slice = |part: &[u8]| block.bytes().slice_ref(part);
            into.push(Change {
                kind: record.kind,
                key: slice(record.key),
                end_key: record.end_key.map(slice),
                value: slice(record.value),
                deadline_ms: record.deadline_ms,
                version,
                dot: Some(dot),
                lsn,
                cursor: Cursor { lsn: lsn.next(), ..batch.end() },
            });
        }
        lsn = lsn.next();
    }
}
