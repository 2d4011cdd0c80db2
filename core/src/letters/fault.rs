//! [`RecordFault`]: which record it is that a target refuses for its own fault.

use std::fmt;

use crate::error::Error;
use crate::id::Dot;

/// The source of an error that names one record: it is at fault, not the target, and will not be taken next time either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// Which record.
    pub dot: Dot,
    /// What is wrong with it.
    pub reason: String,
}

impl RecordFault {
    /// The record that an error names, if it names one.
    pub fn of(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dot { partition, offset, .. } = self.dot;
        write!(f, "the record at offset {offset} of partition {partition}: {}", self.reason)
    }
}

impl std::error::Error for RecordFault {}
