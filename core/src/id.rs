//! Identities and positions, each a type of its own, so that none can be taken for another.
//!
//! Every position counts: an exclusive end is the position of the next thing. Raw integers appear only in codecs.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::limits::MAX_NAME_BYTES;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $raw:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// The lowest value.
            pub const ZERO: Self = Self(0);

            /// Wraps a raw number; for codecs and tests.
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw number; for codecs.
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! position {
    ($(#[$doc:meta])* $name:ident) => {
        number!($(#[$doc])* $name, u64);

        impl $name {
            /// The position after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The position `count` further on.
            #[must_use]
            pub const fn advanced(self, count: u64) -> Self {
                Self(self.0 + count)
            }

            /// How far this position is after `earlier`; zero if it is not.
            pub const fn since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }
    };
}

position!(
    /// Position in a partition at its origin: dense from 0, never reused.
    Offset
);
position!(
    /// Position in this cluster's log of a tree, over all partitions and origins, in commit order.
    Lsn
);
position!(
    /// Number of a group in this cluster's log of a tree: one more each.
    GroupSequence
);
number!(
    /// A partition of a tree.
    PartitionId,
    u16
);
number!(
    /// The 64-bit xxh3 of a cluster's name: how an origin appears in bytes.
    OriginTag,
    u64
);
number!(
    /// A random id given to a log when it is created. Positions of different incarnations are never compared.
    Incarnation,
    u64
);
number!(
    /// A random id of one run of a cluster's process.
    BootId,
    u64
);
number!(
    /// Number that the receiver gives to one session of a link.
    SessionNumber,
    u64
);
number!(
    /// Number of a grant of a lease: larger with each, never given out twice.
    Epoch,
    u64
);
position!(
    /// Number of a page within a session.
    PageId
);
position!(
    /// Number of the last seed that a tree has taken over: zero before the first one, larger with each.
    SeedNumber
);

/// Hybrid logical clock reading: 48 bits of milliseconds since 1970, 16 bits of counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc(u64);

impl Hlc {
    /// Before every write.
    pub const ZERO: Self = Self(0);
    /// After every write that can exist.
    pub const MAX: Self = Self(u64::MAX);

    /// Wraps a raw reading; for codecs and tests.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw reading; for codecs.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The first reading of a millisecond. Times beyond 48 bits are held at the end of the range.
    pub const fn from_millis(millis: u64) -> Self {
        const LAST: u64 = (1 << 48) - 1;
        Self((if millis > LAST { LAST } else { millis }) << 16)
    }

    /// The millisecond of this reading.
    pub const fn millis(self) -> u64 {
        self.0 >> 16
    }

    /// The next reading; a full counter moves into the next millisecond.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What orders writes of one key everywhere: the HLC, then the origin's tag. The greatest version wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// When the write was committed at its origin.
    pub hlc: Hlc,
    /// Where it was committed.
    pub origin: OriginTag,
}

/// The identity of a write, everywhere and for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// The cluster where the write was first committed.
    pub origin: OriginTag,
    /// The incarnation of that cluster's log.
    pub incarnation: Incarnation,
    /// The partition of the key.
    pub partition: PartitionId,
    /// The position in that partition.
    pub offset: Offset,
}

fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
    if first && rest && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "{what} name {name:?} must match [a-z0-9][a-z0-9_.-]{{0,62}}: lower-case letters, digits, '_', '.' and '-', at most {MAX_NAME_BYTES}"
        ),
    ))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// `Invalid` when the name is empty, too long, or has a character that is not allowed.
            pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
                check_name($what, name.as_ref())?;
                Ok(Self(name.as_ref().into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }
    };
}

name!(
    /// The name of a cluster: one site, with one clock and one data directory.
    ClusterId,
    "cluster"
);
name!(
    /// The name of a tree: a key space, the unit of configuration, replication and retention.
    TreeName,
    "tree"
);
name!(
    /// The name of a sink of a tree: its position is kept under it.
    SinkName,
    "sink"
);

impl ClusterId {
    /// How this cluster appears in bytes.
    pub fn tag(&self) -> OriginTag {
        OriginTag::new(xxhash_rust::xxh3::xxh3_64(self.0.as_bytes()))
    }
}

impl PartitionId {
    /// The partition of a key: FNV-1a of its bytes, modulo the number of partitions.
    pub fn of(key: &[u8], partitions: u16) -> Self {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let index = hash % u64::from(partitions.max(1));
        Self(u16::try_from(index).expect("a remainder of a u16 fits a u16"))
    }

    /// The place of this partition in an array of partitions.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_of_a_key_is_fnv1a_of_its_bytes() {
        // Published test vectors of FNV-1a, 64 bit: "" and "a" and "foobar".
        assert_eq!(PartitionId::of(b"", 64).get(), (0xcbf29ce484222325_u64 % 64) as u16);
        assert_eq!(PartitionId::of(b"a", 61).get(), (0xaf63dc4c8601ec8c_u64 % 61) as u16);
        assert_eq!(PartitionId::of(b"foobar", 59).get(), (0x85944171f73967e8_u64 % 59) as u16);
    }

    #[test]
    fn names_outside_the_contract_are_refused_with_the_rule() {
        for bad in ["", "-a", "A", "a b", "ä", &"x".repeat(64)] {
            let error = ClusterId::new(bad).expect_err(bad);
            assert!(error.to_string().contains("[a-z0-9]"), "{error}");
        }
        assert!(TreeName::new("orders.v2_eu-west").is_ok());
        assert!(TreeName::new("x".repeat(63)).is_ok());
    }

    #[test]
    fn a_full_counter_moves_into_the_next_millisecond() {
        let last = Hlc::new(Hlc::from_millis(7).get() | 0xffff);
        assert_eq!(last.millis(), 7);
        assert_eq!(last.next(), Hlc::from_millis(8));
    }

    #[test]
    fn versions_order_by_clock_then_origin() {
        let v = |h, o| Version { hlc: Hlc::new(h), origin: OriginTag::new(o) };
        assert!(v(2, 0) > v(1, 9));
        assert!(v(2, 1) > v(2, 0));
    }
}
