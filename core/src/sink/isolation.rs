//! [`Isolation`]: finds the record that a destination does not take, by handing over ever smaller pieces. Pure.

use crate::feed::Batch;
use crate::id::Lsn;

/// A stretch of the log with a record in it that is not taken. Pieces of it are handed over one at a time, each made
/// durable before the next; one that is refused is halved, so a stretch of n records takes about log2(n) runs.
#[derive(Debug)]
pub(super) struct Isolation {
    until: Lsn,
    size: u64,
    offered: Option<(Lsn, u64)>,
}

/// What a refusal has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is one of the records of a piece; smaller ones come next.
    Narrowed,
    /// It is this record.
    Found(Lsn),
    /// Nothing was offered: no record is to blame.
    Nothing,
}

impl Isolation {
    /// A stretch that ends before `until`, of `records` at most.
    pub(super) fn new(until: Lsn, records: u64) -> Self {
        Self { until, size: (records / 2).max(1), offered: None }
    }

    /// Where the stretch ends; from there on everything goes its usual way.
    pub(super) fn until(&self) -> Lsn {
        self.until
    }

    /// The next piece of a batch, from a position: as many records as may be offered at once.
    pub(super) fn piece(&self, batch: &Batch, from: Lsn) -> Batch {
        let rest = batch.slice(from, batch.end().lsn);
        rest.slice(from, rest.lsn_of(self.size))
    }

    /// A piece is handed over.
    pub(super) fn offer(&mut self, piece: &Batch) {
        self.offered = Some((piece.lsn_of(0), piece.records()));
    }

    /// It was taken, and is durable.
    pub(super) fn taken(&mut self) {
        self.offered = None;
    }

    /// It was not taken.
    pub(super) fn refused(&mut self) -> Refused {
        match self.offered.take() {
            None => Refused::Nothing,
            Some((lsn, 0 | 1)) => {
                self.size = 1;
                Refused::Found(lsn)
            }
            Some((_, records)) => {
                self.size = records / 2;
                Refused::Narrowed
            }
        }
    }

    /// The record that was found is left out: what is behind it may all be good, so pieces are large again.
    pub(super) fn passed(&mut self, lsn: Lsn) {
        self.size = self.until.since(lsn).max(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::sink::MemFeed;

    proptest! {
        #[test]
        fn exactly_the_bad_records_are_found_each_in_few_runs(
            records in 1_u64..200,
            bad in proptest::collection::btree_set(0_u64..200, 1..5),
        ) {
            let bad: BTreeSet<u64> = bad.into_iter().filter(|lsn| *lsn < records).collect();
            let log = MemFeed::sample();
            (0..records).for_each(|n| log.put(&format!("k{n}"), 1));
            let batch = log.whole();
            let mut isolation = Isolation::new(batch.end().lsn, records);
            let (mut at, mut found, mut runs) = (Lsn::ZERO, BTreeSet::new(), 0);
            while at < isolation.until() {
                if found.contains(&at.get()) {
                    at = at.next();
                    continue;
                }
                let piece = isolation.piece(&batch, at);
                isolation.offer(&piece);
                if (piece.start().lsn.get()..piece.end().lsn.get()).any(|lsn| bad.contains(&lsn)) {
                    runs += 1;
                    if let Refused::Found(lsn) = isolation.refused() {
                        found.insert(lsn.get());
                        isolation.passed(lsn);
                    }
                } else {
                    isolation.taken();
                    at = piece.end().lsn;
                }
            }
            prop_assert!(runs <= bad.len() * 10, "{runs} runs");
            prop_assert_eq!(found, bad);
        }
    }
}
