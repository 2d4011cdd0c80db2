//! [`Ledger`]: which pages are in flight, and what an acknowledgement makes durable. Pure.
//!
//! Only a contiguous prefix counts: a page is durable when the peer covers its range and that of every page before it.

use std::collections::{BTreeMap, VecDeque};

use tidewire_core::causal::OriginMarks;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, Offset, OriginTag, PartitionId};
use tidewire_core::record::Block;
use tokio::time::Instant;

/// A page that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Whose records it holds.
    pub(crate) origin: OriginTag,
    /// Bytes of its blocks.
    pub(crate) bytes: u64,
    /// Whether it counts as small: the last page of a small wave.
    pub(crate) small: bool,
    /// What the peer covers once it has the page.
    pub(crate) through: Vec<(PartitionId, Offset)>,
    /// Where the log goes on after everything that is whole with it, and after everything behind it that is not sent.
    pub(crate) cursor_after: Cursor,
    /// The HLC of its first record.
    pub(crate) first_hlc: Hlc,
    /// When it left.
    pub(crate) at: Instant,
}

/// What the peer covers of each origin that a link carries.
pub(crate) type Covered = BTreeMap<OriginTag, OriginMarks>;

/// Pages in flight, over what the peer covers.
#[derive(Debug)]
pub(crate) struct Ledger {
    sent: VecDeque<Sent>,
    bytes: u64,
    peer: Covered,
    durable: Cursor,
    /// When the page left that became durable last.
    settled: Option<Instant>,
}

impl Ledger {
    /// Nothing in flight to a peer that covers `peer`, which is everything before `durable`.
    pub(crate) fn new(peer: Covered, durable: Cursor) -> Self {
        Self { sent: VecDeque::new(), bytes: 0, peer, durable, settled: None }
    }

    /// Notes a page that is sent now.
    pub(crate) fn push(&mut self, page: Sent) {
        self.bytes += page.bytes;
        self.sent.push_back(page);
        self.settle();
    }

    /// Notes a stretch of the log up to `cursor` of which nothing is sent.
    pub(crate) fn pass(&mut self, cursor: Cursor) {
        match self.sent.back_mut() {
            Some(last) => last.cursor_after = cursor,
            None => self.durable = cursor,
        }
    }

    /// Takes over what the peer says it covers of an origin that is carried.
    pub(crate) fn advance(&mut self, origin: OriginTag, said: &OriginMarks) {
        let Some(peer) = self.peer.get_mut(&origin) else { return };
        for (partition, mark) in said.iter() {
            peer.advance(partition, mark.next, mark.hlc);
        }
        self.settle();
    }

    /// Whether the link carries a block's origin, and the peer lacks something of the block.
    pub(crate) fn lacks(&self, block: &Block) -> bool {
        let lacks = |peer: &OriginMarks| block.runs().any(|run| peer.get(run.partition).next < run.end());
        self.peer.get(&block.origin()).is_some_and(lacks)
    }

    fn settle(&mut self) {
        let Self { sent, bytes, peer, durable, settled } = self;
        let covered = |page: &Sent| {
            let peer = peer.get(&page.origin);
            peer.is_some_and(|peer| {
                page.through.iter().all(|(partition, end)| peer.get(*partition).next >= *end)
            })
        };
        while let Some(page) = sent.front().filter(|page| covered(page)) {
            *durable = page.cursor_after;
            *settled = Some(page.at);
            *bytes -= page.bytes;
            sent.pop_front();
        }
    }

    /// Everything before this is durable at the peer, or of no interest to it.
    pub(crate) fn durable(&self) -> Cursor {
        self.durable
    }

    /// When the page left that has become durable since this was last asked, if one has.
    pub(crate) fn take_settled(&mut self) -> Option<Instant> {
        self.settled.take()
    }

    /// What the peer covers.
    pub(crate) fn peer(&self) -> &Covered {
        &self.peer
    }

    /// Bytes in flight.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// How many small waves are in flight.
    pub(crate) fn small(&self) -> usize {
        self.sent.iter().filter(|page| page.small).count()
    }

    /// The HLC of the oldest record in flight.
    pub(crate) fn oldest(&self) -> Option<Hlc> {
        self.sent.front().map(|page| page.first_hlc)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidewire_core::id::{Incarnation, Lsn};

    use super::*;

    const PARTITIONS: u16 = 3;

    fn at(lsn: u64) -> Cursor {
        Cursor { incarnation: Incarnation::new(1), lsn: Lsn::new(lsn) }
    }

    const ORIGIN: OriginTag = OriginTag::new(3);

    fn ledger(ends: [u64; PARTITIONS as usize]) -> Ledger {
        Ledger::new([(ORIGIN, marks(ends))].into(), at(0))
    }

    fn marks(ends: [u64; PARTITIONS as usize]) -> OriginMarks {
        let mut marks = OriginMarks::new(Incarnation::new(1), PARTITIONS);
        for (partition, end) in (0..).zip(ends) {
            marks.advance(PartitionId::new(partition), Offset::new(end), Hlc::ZERO);
        }
        marks
    }

    proptest! {
        /// Pages of random partitions; acknowledgements that are early, late, repeated and out of order.
        #[test]
        fn f09_durable_is_the_end_of_the_pages_before_the_first_hole(
            steps in proptest::collection::vec((0..PARTITIONS, 1_u64..4, any::<[u64; 3]>(), any::<bool>()), 1..60),
        ) {
            let mut ledger = ledger([0; 3]);
            let (mut ends, mut covered, mut lsn) = ([0_u64; 3], [0_u64; 3], 0);
            // What each page needs covered, and where the log goes on after it.
            let mut pages: Vec<(usize, u64, u64)> = Vec::new();
            for (partition, records, ack, passes) in steps {
                let index = usize::from(partition);
                ends[index] += records;
                lsn += records;
                ledger.push(Sent {
                    origin: ORIGIN,
                    bytes: records,
                    small: true,
                    through: vec![(PartitionId::new(partition), Offset::new(ends[index]))],
                    cursor_after: at(lsn),
                    first_hlc: Hlc::new(lsn),
                    at: Instant::now(),
                });
                pages.push((index, ends[index], lsn));
                if passes {
                    lsn += 1;
                    ledger.pass(at(lsn));
                    pages.last_mut().unwrap().2 = lsn;
                }
                let said = std::array::from_fn(|i| ack[i] % (ends[i] + 2));
                ledger.advance(ORIGIN, &marks(said));
                covered = std::array::from_fn(|i| covered[i].max(said[i]));
                let hole = pages.iter().position(|(index, end, _)| covered[*index] < *end).unwrap_or(pages.len());
                let durable = hole.checked_sub(1).map_or(0, |last| pages[last].2);
                prop_assert_eq!(ledger.durable(), at(durable));
                prop_assert_eq!(ledger.is_empty(), hole == pages.len());
                prop_assert_eq!(ledger.small(), pages.len() - hole);
            }
            ledger.advance(ORIGIN, &marks(ends));
            prop_assert_eq!((ledger.durable(), ledger.bytes()), (at(lsn), 0));
        }
    }

    #[test]
    fn f06_a_stretch_of_which_nothing_is_sent_moves_the_cursor() {
        let mut ledger = ledger([0; 3]);
        ledger.pass(at(500));
        assert_eq!(ledger.durable(), at(500));
    }

    #[test]
    fn a_page_that_the_peer_covers_already_is_durable_when_it_is_sent() {
        let mut ledger = ledger([9, 0, 0]);
        let through = vec![(PartitionId::new(0), Offset::new(9))];
        ledger.push(Sent {
            origin: ORIGIN,
            bytes: 5,
            small: true,
            through,
            cursor_after: at(7),
            first_hlc: Hlc::ZERO,
            at: Instant::now(),
        });
        assert_eq!((ledger.durable(), ledger.is_empty()), (at(7), true));
    }

    #[test]
    fn f09_the_pages_of_one_origin_do_not_make_those_of_another_durable() {
        let other = OriginTag::new(4);
        let mut ledger = Ledger::new([(ORIGIN, marks([0; 3])), (other, marks([0; 3]))].into(), at(0));
        for (lsn, origin) in [(1, ORIGIN), (2, other), (3, ORIGIN)] {
            let through = vec![(PartitionId::new(0), Offset::new(lsn))];
            let (small, first_hlc, left) = (true, Hlc::new(lsn), Instant::now());
            ledger.push(Sent {
                origin,
                bytes: 1,
                small,
                through,
                cursor_after: at(lsn),
                first_hlc,
                at: left,
            });
        }
        ledger.advance(ORIGIN, &marks([3, 0, 0]));
        assert_eq!((ledger.durable(), ledger.bytes()), (at(1), 2), "the second page is not covered");
        ledger.advance(OriginTag::new(5), &marks([9, 9, 9]));
        assert_eq!(ledger.durable(), at(1), "nobody asked about a third origin");
        ledger.advance(other, &marks([2, 0, 0]));
        assert_eq!((ledger.durable(), ledger.bytes()), (at(3), 0));
    }
}
