//! [`Filter`]: which records a reading wants. It looks at the headers of blocks and records, and at keys; never at values.

use bytes::Bytes;

use crate::id::{OriginTag, PartitionId};
use crate::record::{Kind, RecordView};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Keys {
    #[default]
    All,
    /// From a key up to, and without, another.
    Range(Bytes, Option<Bytes>),
}

/// Which records a reading wants: those that meet every condition that was set. Maintenance is left out unless its kind is
/// asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    kinds: Option<Vec<Kind>>,
    origins: Option<Vec<OriginTag>>,
    partitions: Option<Vec<PartitionId>>,
    keys: Keys,
}

impl Filter {
    /// Every record but maintenance.
    pub fn all() -> Self {
        Self::default()
    }

    /// Maintenance too.
    #[must_use]
    pub fn maintenance(self) -> Self {
        self.kinds([Kind::Set, Kind::Delete, Kind::DeleteRange, Kind::Mark])
    }

    /// Only records of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Only records that were first committed at these clusters.
    #[must_use]
    pub fn origins(mut self, origins: impl IntoIterator<Item = OriginTag>) -> Self {
        self.origins = Some(origins.into_iter().collect());
        self
    }

    /// Only records of these partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = PartitionId>) -> Self {
        self.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// Only keys that begin so, and deletes of ranges that reach such keys.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        let end = behind(&prefix);
        self.keys = Keys::Range(prefix, end);
        self
    }

    /// Only keys from `from` up to, and without, `to` (None: all from there on), and deletes of ranges that reach such
    /// keys.
    #[must_use]
    pub fn keys(mut self, from: impl Into<Bytes>, to: Option<Bytes>) -> Self {
        self.keys = Keys::Range(from.into(), to);
        self
    }

    /// Whether records of a partition of an origin can be wanted.
    pub(super) fn may_want(&self, origin: OriginTag, partition: PartitionId) -> bool {
        self.origins.as_ref().is_none_or(|origins| origins.contains(&origin))
            && self.partitions.as_ref().is_none_or(|partitions| partitions.contains(&partition))
    }

    /// Whether it leaves out whole partitions or origins, so that an index may help.
    pub(super) fn is_narrow(&self) -> bool {
        self.origins.is_some() || self.partitions.is_some()
    }

    /// Whether a record is wanted of a block of which some partition can be.
    #[inline]
    pub(super) fn wants(&self, record: &RecordView<'_>) -> bool {
        let kind = match &self.kinds {
            Some(kinds) => kinds.contains(&record.kind),
            None => record.kind != Kind::Mark,
        };
        let partition =
            || self.partitions.as_ref().is_none_or(|partitions| partitions.contains(&record.partition));
        kind && self.wants_key(record) && partition()
    }

    #[inline]
    fn wants_key(&self, record: &RecordView<'_>) -> bool {
        let Keys::Range(from, to) = &self.keys else { return true };
        if to.as_ref().is_some_and(|to| record.key >= &to[..]) {
            return false;
        }
        match record.end_key {
            Some(end) => end > &from[..],
            None => record.key >= &from[..],
        }
    }
}

/// The first key behind all that begin with a prefix.
fn behind(prefix: &[u8]) -> Option<Bytes> {
    let kept = prefix.len() - prefix.iter().rev().take_while(|byte| **byte == 0xff).count();
    let (last, head) = prefix[..kept].split_last()?;
    Some([head, &[last + 1]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_range_of_keys_that_begin_so() {
        assert_eq!(behind(b"ab"), Some(Bytes::from_static(b"ac")));
        assert_eq!(behind(b"a\xff\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!(behind(b"\xff"), None);
        assert_eq!(behind(b""), None);
    }
}
