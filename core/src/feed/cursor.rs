//! [`Cursor`]: where a consumer of one log reads next.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::id::{Incarnation, Lsn};

/// The next record to read in a log of an incarnation. Opaque text outside this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The incarnation of the log. Cursors of different incarnations do not compare.
    pub incarnation: Incarnation,
    /// The next record.
    pub lsn: Lsn,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c1-{:016x}-{:x}", self.incarnation.get(), self.lsn.get())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.strip_prefix("c1-").and_then(|rest| rest.split_once('-')).and_then(|(log, lsn)| {
            let log = u64::from_str_radix(log, 16).ok()?;
            let lsn = u64::from_str_radix(lsn, 16).ok()?;
            Some(Self { incarnation: Incarnation::new(log), lsn: Lsn::new(lsn) })
        });
        parsed.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format!("{text:?} is no cursor; take one from a change, or start from 'now' or 'beginning'"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_being_text() {
        let cursor = Cursor { incarnation: Incarnation::new(0xfeed), lsn: Lsn::new(12_345) };
        assert_eq!(cursor.to_string().parse::<Cursor>().expect("parses"), cursor);
        for bad in ["", "c1", "c1-x-1", "c2-1-1", "c1-1"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
