//! [`Taken`]: what a sink has taken over and not made durable yet. Pure.

use std::collections::VecDeque;

use crate::feed::Cursor;
use crate::id::Lsn;

/// A batch that was taken over and is not durable.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    end: Lsn,
    bytes: u64,
    millis: Option<u64>,
}

/// The way of one run: `durable <= written`, and the bytes between the two are bounded.
#[derive(Debug)]
pub(super) struct Taken {
    durable: Cursor,
    written: Cursor,
    batches: VecDeque<Outstanding>,
    bytes: u64,
    window: u64,
}

impl Taken {
    pub(super) fn new(from: Cursor, window: u64) -> Self {
        Self { durable: from, written: from, batches: VecDeque::new(), bytes: 0, window }
    }

    /// Whether another batch may be taken over. A single one always may.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.window
    }

    /// Up to where everything is durable.
    pub(super) fn durable(&self) -> Cursor {
        self.durable
    }

    /// Bytes that are not durable yet.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is outstanding.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The clock reading of the oldest record that is not durable yet.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.batches.front()?.millis
    }

    /// Counts a batch that was taken over, with the clock reading of its first record.
    pub(super) fn take(&mut self, end: Cursor, bytes: u64, millis: Option<u64>) {
        self.written = end;
        self.bytes += bytes;
        if bytes > 0 {
            self.batches.push_back(Outstanding { end: end.lsn, bytes, millis });
        }
    }

    /// Takes an answer of the sink over: whether it moved the durable position, or None if it claims what was never
    /// written.
    pub(super) fn advance(&mut self, cursor: Cursor) -> Option<bool> {
        if cursor.incarnation != self.written.incarnation || cursor.lsn > self.written.lsn {
            return None;
        }
        let moved = cursor.lsn > self.durable.lsn;
        if moved {
            self.durable = cursor;
        }
        while let Some(done) = self.batches.front().copied().filter(|batch| batch.end <= cursor.lsn) {
            self.bytes -= done.bytes;
            self.batches.pop_front();
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Incarnation;

    fn at(lsn: u64) -> Cursor {
        Cursor { incarnation: Incarnation::new(1), lsn: Lsn::new(lsn) }
    }

    proptest! {
        #[test]
        fn the_bytes_counted_are_those_of_the_batches_not_yet_durable(
            steps in proptest::collection::vec((0_u64..5, 0_u64..50), 1..40),
            acks in proptest::collection::vec(any::<prop::sample::Index>(), 1..40),
        ) {
            let mut taken = Taken::new(at(0), 100);
            let (mut end, mut durable) = (0, 0);
            let mut all: Vec<(u64, u64)> = Vec::new();
            for ((records, bytes), ack) in steps.into_iter().zip(acks) {
                end += records;
                taken.take(at(end), bytes * records, None);
                all.push((end, bytes * records));
                let ack = ack.index(usize::try_from(end).unwrap() + 1) as u64;
                prop_assert_eq!(taken.advance(at(ack)), Some(ack > durable));
                durable = durable.max(ack);
                let expected: u64 = all.iter().filter(|(end, _)| *end > durable).map(|(_, bytes)| bytes).sum();
                prop_assert_eq!(taken.has_room(), expected < 100);
                prop_assert_eq!(taken.advance(at(end + 1)), None, "nobody makes durable what was not written");
            }
        }
    }
}
