//! [`Sieve`]: what of an origin's blocks a peer wants, and what is still to be covered of the rest. Pure.
//!
//! A block of which the peer wants everything leaves as it is; one of which it wants something is made anew; one of which it
//! wants nothing costs no bytes, but what it covers is said in a block of its own, before the next group that leaves and
//! before a promise is made. So at the end of each group that leaves, everything of its origin before it is covered.

use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, Incarnation, OriginTag};
use tidewire_core::record::{Block, Coverage, Interest, Kept};
use tidewire_core::transport::pages::PageGroup;

/// What was left out of one origin and not covered yet.
#[derive(Debug)]
struct LeftOut {
    coverage: Coverage,
    closed: Hlc,
    /// The log before it was taken over.
    before: Cursor,
}

/// What of one origin's blocks leaves.
#[derive(Debug)]
pub(crate) struct Sieve {
    origin: OriginTag,
    incarnation: Incarnation,
    left_out: Option<LeftOut>,
    /// Records that were left out since this was last asked.
    records: u64,
}

impl Sieve {
    pub(crate) fn new(origin: OriginTag, incarnation: Incarnation) -> Self {
        Self { origin, incarnation, left_out: None, records: 0 }
    }

    /// Takes the blocks of a group that lies behind `before` in the log, each with what an interest keeps of it. Answers what
    /// leaves: nothing, or what covers the groups before it, and what is left of this one. Two groups, never one: what was
    /// left out waits for nothing, and others wait for it.
    pub(crate) fn take(
        &mut self,
        (closed, blocks): (Hlc, Vec<(Block, Kept)>),
        interest: &Interest,
        before: Cursor,
    ) -> Vec<PageGroup> {
        let (mut kept, mut passed) = (Vec::with_capacity(blocks.len()), Coverage::default());
        let cover = |passed: &mut Coverage, kept: &mut Vec<Block>| {
            let passed = std::mem::take(passed);
            kept.extend((!passed.is_empty()).then(|| passed.cover(self.origin, self.incarnation)));
        };
        let mut left_out = 0;
        for (block, keeps) in blocks {
            match keeps {
                Kept::Nothing => {
                    // The mark of a cover stands for no record.
                    left_out += u64::from(block.count()) * u64::from(!block.is_cover());
                    passed.add(&block);
                }
                Kept::Whole => {
                    cover(&mut passed, &mut kept);
                    kept.push(block);
                }
                Kept::Part => {
                    let part = std::mem::take(&mut passed).filter(&block, interest, self.incarnation);
                    left_out += u64::from(block.count() - part.count());
                    kept.push(part);
                }
            }
        }
        self.records += left_out;
        if kept.is_empty() {
            let coverage = Coverage::default();
            let left_out = self.left_out.get_or_insert(LeftOut { coverage, closed, before });
            left_out.coverage.join(&passed);
            left_out.closed = closed;
            return Vec::new();
        }
        cover(&mut passed, &mut kept);
        self.close().into_iter().chain([PageGroup { closed, blocks: kept }]).collect()
    }

    /// How many records were left out since this was last asked.
    pub(crate) fn count(&mut self) -> u64 {
        std::mem::take(&mut self.records)
    }

    /// A group that covers what was left out, if anything was.
    pub(crate) fn close(&mut self) -> Option<PageGroup> {
        let LeftOut { coverage, closed, .. } = self.left_out.take()?;
        Some(PageGroup { closed, blocks: vec![coverage.cover(self.origin, self.incarnation)] })
    }

    /// Before which position everything has left, or is of no interest and covered.
    pub(crate) fn before(&self) -> Option<Cursor> {
        self.left_out.as_ref().map(|left_out| left_out.before)
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::causal::VersionVector;
    use tidewire_core::id::{Lsn, Offset, PartitionId};
    use tidewire_core::record::{BlockBuilder, Mutation};

    use super::*;

    const ORIGIN: OriginTag = OriginTag::new(3);
    const INCARNATION: Incarnation = Incarnation::new(1);

    fn at(lsn: u64) -> Cursor {
        Cursor { incarnation: INCARNATION, lsn: Lsn::new(lsn) }
    }

    /// A group of one block whose keys are named; of one partition, from an offset on, which is its clock as well.
    fn group(first: u64, keys: &[&'static str]) -> PageGroup {
        let mut builder = BlockBuilder::new(ORIGIN, 1, 1, 64);
        for (offset, key) in (first..).zip(keys) {
            builder.push(
                &Mutation::set(*key, "v"),
                PartitionId::ZERO,
                Offset::new(offset),
                Hlc::new(offset * 10),
                false,
            );
        }
        let deps: VersionVector = [(OriginTag::new(9), Hlc::new(first))].into_iter().collect();
        let end = first + keys.len() as u64;
        PageGroup { closed: Hlc::new(end * 10 - 5), blocks: vec![builder.seal(&deps, INCARNATION)] }
    }

    fn take(sieve: &mut Sieve, group: PageGroup, interest: &Interest, before: Cursor) -> Vec<PageGroup> {
        let kept = group.blocks.into_iter().map(|block| {
            let keeps = interest.keeps(&block);
            (block, keeps)
        });
        sieve.take((group.closed, kept.collect()), interest, before)
    }

    fn range(block: &Block) -> (u64, u64) {
        let run = block.run(PartitionId::ZERO).unwrap();
        (run.first.get(), run.end().get())
    }

    #[test]
    fn what_is_wanted_whole_leaves_as_it_is_and_what_is_left_out_is_covered_before_it() {
        let interest = Interest::new(["k"]).unwrap();
        let mut sieve = Sieve::new(ORIGIN, INCARNATION);
        let whole = group(0, &["k1", "k2"]);
        assert_eq!(take(&mut sieve, whole.clone(), &interest, at(0)), [whole]);
        assert!(
            take(&mut sieve, group(2, &["x"]), &interest, at(2)).is_empty() && sieve.before() == Some(at(2))
        );
        assert!(
            take(&mut sieve, group(3, &["x", "y"]), &interest, at(3)).is_empty()
                && sieve.before() == Some(at(2))
        );
        let mixed = group(5, &["x", "k3", "y"]);
        let out = take(&mut sieve, mixed.clone(), &interest, at(5));
        assert!(sieve.before().is_none());
        let [cover, part] = &out[..] else { panic!("{} groups", out.len()) };
        // Apart: what is left out waits for nothing, and ends where its last group did.
        assert!(cover.blocks[0].is_cover() && cover.blocks[0].deps().is_empty());
        assert_eq!((range(&cover.blocks[0]), cover.closed), ((2, 5), Hlc::new(45)));
        assert_eq!((range(&part.blocks[0]), part.closed), ((5, 8), mixed.closed));
        assert_eq!(part.blocks[0].deps(), mixed.blocks[0].deps());
        let offsets: Vec<_> = part.blocks[0].records().flatten().map(|record| record.offset).collect();
        assert_eq!(offsets, [Some(Offset::new(6))]);
        assert!(sieve.close().is_none());
        assert_eq!((sieve.count(), sieve.count()), (5, 0), "records that were left out");
        let empty = [(cover.blocks[0].clone(), Kept::Nothing)];
        assert!(sieve.take((Hlc::new(90), empty.to_vec()), &interest, at(8)).is_empty());
        assert_eq!(sieve.count(), 0, "a cover holds none");
        assert!(sieve.close().is_some());
        take(&mut sieve, group(8, &["z"]), &interest, at(8));
        assert_eq!(sieve.close().map(|group| range(&group.blocks[0])), Some((8, 9)));
    }

    #[test]
    fn within_a_group_everything_is_covered_at_its_end() {
        let interest = Interest::new(["k"]).unwrap();
        let mut sieve = Sieve::new(ORIGIN, INCARNATION);
        let blocks = [group(0, &["x"]), group(1, &["k"]), group(2, &["y"])];
        let all = PageGroup {
            closed: Hlc::new(99),
            blocks: blocks.into_iter().flat_map(|group| group.blocks).collect(),
        };
        let out = take(&mut sieve, all, &interest, at(0));
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].blocks.iter().map(range).collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(out[0].blocks.iter().map(Block::is_cover).collect::<Vec<_>>(), [true, false, true]);
    }
}
