//! [`Ledger`]: where groups end among the numbered messages of a run, and which end was answered as durable. Pure.

use std::collections::VecDeque;

use tidewire_core::feed::Cursor;

/// The ends of groups that were handed to the client: a group is durable when every message below its end arrived.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    ends: VecDeque<(u64, Cursor)>,
    durable: Option<Cursor>,
    answered: Option<Cursor>,
}

impl Ledger {
    /// Notes that everything before `cursor` lies in messages below `number`. Both never go back.
    pub(super) fn end(&mut self, number: u64, cursor: Cursor) {
        match self.ends.back_mut() {
            // Groups without messages need no end of their own.
            Some((last, end)) if *last == number => *end = cursor,
            _ => self.ends.push_back((number, cursor)),
        }
    }

    /// Takes over how far messages have arrived, and says what is durable then.
    pub(super) fn advance(&mut self, prefix: u64) -> Option<Cursor> {
        while let Some((_, cursor)) = self.ends.pop_front_if(|(number, _)| *number <= prefix) {
            self.durable = Some(cursor);
        }
        self.durable
    }

    /// Does the same, and says what is durable if that was not said before.
    pub(super) fn news(&mut self, prefix: u64) -> Option<Cursor> {
        self.advance(prefix);
        let news = self.durable.filter(|durable| self.answered.is_none_or(|said| said.lsn < durable.lsn))?;
        self.answered = Some(news);
        Some(news)
    }

    /// Notes that this was said otherwise.
    pub(super) fn answer(&mut self, durable: Cursor) {
        self.answered = Some(durable);
    }

    /// The message that has to arrive before there is news.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.ends.front().map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::id::{Incarnation, Lsn};

    use super::*;

    fn at(lsn: u64) -> Cursor {
        Cursor { incarnation: Incarnation::new(1), lsn: Lsn::new(lsn) }
    }

    #[test]
    fn f36_a_group_is_durable_when_its_last_message_has_arrived_and_not_before() {
        let mut ledger = Ledger::default();
        ledger.end(2, at(10));
        ledger.end(5, at(20));
        assert_eq!((ledger.news(0), ledger.news(1)), (None, None));
        assert_eq!(ledger.awaited(), Some(2));
        assert_eq!((ledger.news(2), ledger.news(4)), (Some(at(10)), None));
        assert_eq!((ledger.news(5), ledger.advance(5), ledger.awaited()), (Some(at(20)), Some(at(20)), None));
    }

    #[test]
    fn groups_without_messages_move_the_cursor_with_what_stands_before_them() {
        let mut ledger = Ledger::default();
        ledger.end(0, at(4));
        assert_eq!(ledger.news(0), Some(at(4)));
        ledger.end(3, at(8));
        ledger.end(3, at(9));
        assert_eq!(ledger.news(2), None);
        assert_eq!(ledger.news(3), Some(at(9)));
        assert_eq!(ledger.news(3), None, "no news");
        ledger.end(3, at(12));
        assert_eq!(ledger.news(3), Some(at(12)));
    }
}
