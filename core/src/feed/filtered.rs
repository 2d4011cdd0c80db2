//! [`FeedOptions`] and [`FilteredBatch`]: a reading that wants some of the records, chosen by their headers.

use super::cursor::Cursor;
use crate::wal::{Filter, Selection};

/// What a reading wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedOptions {
    /// Which records. Looked at are headers and keys; values are not, and what is left out costs no memory.
    pub filter: Filter,
}

/// A stretch of a log, and those of its records that were wanted: none, maybe. The cursor moves either way.
#[derive(Clone, Debug)]
pub struct FilteredBatch {
    selection: Selection,
    start: Cursor,
    end: Cursor,
}

impl FilteredBatch {
    /// What was wanted of the stretch from `start`; reading goes on at `end`.
    pub fn new(selection: Selection, start: Cursor, end: Cursor) -> Self {
        Self { selection, start, end }
    }

    /// The records that were wanted, in log order.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Where it starts.
    pub fn start(&self) -> Cursor {
        self.start
    }

    /// Where reading goes on after it.
    pub fn end(&self) -> Cursor {
        self.end
    }
}
