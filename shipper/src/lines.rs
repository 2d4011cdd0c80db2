//! [`Lines`]: where a session stands with each origin that it carries. Pure.

use std::collections::BTreeMap;

use tidewire_core::causal::OriginMarks;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use tidewire_core::record::{Block, Group, Interest, Kept};
use tidewire_core::transport::pages::PageGroup;

use crate::ledger::Covered;
use crate::line::Line;
use crate::sieve::Sieve;

/// Where coverage by a stream of pages ends, by partition.
pub(crate) type Stands = BTreeMap<PartitionId, Offset>;

/// What a peer wants of each block of a group that it lacks. Records are looked at once for it.
#[derive(Debug)]
pub(crate) struct Wanted {
    of: Lsn,
    /// None: everything.
    kept: Option<Vec<Kept>>,
}

impl Wanted {
    /// Whether it is about that group.
    pub(crate) fn is_of(&self, group: &Group) -> bool {
        self.of == group.first_lsn()
    }

    /// What is wanted of a block, by its place in the group.
    pub(crate) fn of(&self, place: usize) -> Kept {
        self.kept.as_ref().map_or(Kept::Whole, |kept| kept[place])
    }
}

#[derive(Debug)]
struct Carried {
    line: Line,
    sieve: Sieve,
}

/// The origins that a session carries.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: BTreeMap<OriginTag, Carried>,
    /// Which keys the peer holds.
    interest: Interest,
}

impl Lines {
    /// For a peer that covers so much of each and holds these keys.
    pub(crate) fn new(carried: &Covered, interest: Interest) -> Self {
        let line = |(origin, marks): (&OriginTag, &OriginMarks)| {
            (*origin, Carried { line: Line::new(marks), sieve: Sieve::new(*origin, marks.incarnation()) })
        };
        Self { lines: carried.iter().map(line).collect(), interest }
    }

    /// The incarnation of an origin's log, if the origin is carried.
    pub(crate) fn incarnation(&self, origin: OriginTag) -> Option<Incarnation> {
        self.lines.get(&origin).map(|carried| carried.line.incarnation)
    }

    /// Looks what the peer wants of a group, of those blocks that it lacks.
    pub(crate) fn look(&self, group: &Group, lacks: impl Fn(&Block) -> bool) -> Wanted {
        let keeps = |block: &Block| if lacks(block) { self.interest.keeps(block) } else { Kept::Nothing };
        let kept = (!self.interest.is_all())
            .then(|| group.blocks().iter().map(|framed| keeps(&framed.block)).collect());
        Wanted { of: group.first_lsn(), kept }
    }

    /// What leaves of blocks of one origin that lie behind `before` in the log, each with what is wanted of it; in order, if
    /// anything does.
    pub(crate) fn take(
        &mut self,
        origin: OriginTag,
        closed: Hlc,
        blocks: Vec<(Block, Kept)>,
        before: Cursor,
    ) -> Vec<PageGroup> {
        let line = self.lines.get_mut(&origin);
        line.map_or_else(Vec::new, |line| line.sieve.take((closed, blocks), &self.interest, before))
    }

    /// How many records were left out for the interest of the peer since this was last asked.
    pub(crate) fn count_left_out(&mut self) -> u64 {
        self.lines.values_mut().map(|line| line.sieve.count()).sum()
    }

    /// A group that covers what was left out of one origin, if there is one.
    pub(crate) fn close(&mut self) -> Option<(OriginTag, PageGroup)> {
        self.lines.iter_mut().find_map(|(origin, line)| Some((*origin, line.sieve.close()?)))
    }

    /// Whether something was left out that is not covered yet.
    pub(crate) fn owe(&self) -> bool {
        self.lines.values().any(|line| line.sieve.before().is_some())
    }

    /// Of a log that was taken over up to `at`: before this position everything is in a page, or of no interest to the peer
    /// and covered.
    pub(crate) fn settled(&self, at: Cursor) -> Cursor {
        let before = self.lines.values().filter_map(|line| line.sieve.before());
        before.min_by_key(|cursor| cursor.lsn).unwrap_or(at)
    }

    /// Where coverage of an origin ends.
    pub(crate) fn stands(&mut self, origin: OriginTag) -> Option<&mut Stands> {
        self.lines.get_mut(&origin).map(|carried| &mut carried.line.stands)
    }

    /// A page of an origin has left that covers up to `through`.
    pub(crate) fn leaves(&mut self, origin: OriginTag, through: &[(PartitionId, Offset)]) {
        self.lines.get_mut(&origin).into_iter().for_each(|carried| carried.line.leaves(through));
    }

    /// Whether everything of an origin before some tails has left, or is covered by the peer, which covers `held` by now.
    pub(crate) fn is_behind(
        &self,
        origin: OriginTag,
        tails: &OriginMarks,
        held: Option<&OriginMarks>,
    ) -> bool {
        self.lines.get(&origin).is_some_and(|carried| carried.line.is_behind(tails, held))
    }
}
