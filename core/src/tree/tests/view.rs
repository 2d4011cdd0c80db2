//! [`View`]: what a tree must show, from the records of its log alone, computed in the simplest way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::history::Logged;
use crate::id::{Lsn, Version};
use crate::record::Kind;
use crate::tree::{Row, Tree};

/// The highest write of a key.
#[derive(Clone, Debug)]
struct Top {
    version: Version,
    /// None for a delete.
    value: Option<(Bytes, Option<u64>)>,
}

/// Every key with its highest write, and every deleted range.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    keys: BTreeMap<Bytes, Top>,
    ranges: Vec<(Bytes, Bytes, Version)>,
    /// Where writes lie that lost when they arrived.
    losers: BTreeSet<Lsn>,
}

impl View {
    /// The next record of the log.
    pub(super) fn apply(&mut self, record: &Logged) {
        let (version, key) = (record.version(), record.mutation.key.clone());
        if record.mutation.kind == Kind::DeleteRange {
            let end = record.mutation.end_key.clone().expect("a range has an end");
            // Between two ends of ranges every key has the same fate.
            let ends = self.ranges.iter().flat_map(|(from, to, _)| [from, to]);
            let ends = ends.filter(|at| key <= **at && **at < end);
            if ends.chain([&key]).all(|at| self.is_cut(at, version)) {
                self.losers.insert(record.lsn);
            }
            self.ranges.push((key, end, version));
            return;
        }
        if self.keys.get(&key).is_some_and(|top| top.version > version) || self.is_cut(&key, version) {
            self.losers.insert(record.lsn);
        }
        let value = (record.mutation.kind == Kind::Set)
            .then(|| (record.mutation.value.clone(), record.mutation.deadline_ms));
        match self.keys.get_mut(&key) {
            Some(top) if top.version >= version => {}
            Some(top) => *top = Top { version, value },
            None => drop(self.keys.insert(key, Top { version, value })),
        }
    }

    fn is_cut(&self, key: &Bytes, version: Version) -> bool {
        self.ranges.iter().any(|(from, to, cut)| from <= key && key < to && *cut > version)
    }

    /// The rows that a reader sees whose clock says `now`.
    pub(super) fn rows(&self, now: u64) -> Vec<Row> {
        let live = self.keys.iter().filter_map(|(key, top)| {
            let (value, deadline_ms) = top.value.clone()?;
            let shown = deadline_ms.is_none_or(|deadline| deadline > now) && !self.is_cut(key, top.version);
            shown.then(|| Row { key: key.clone(), value, version: top.version, deadline_ms })
        });
        live.collect()
    }

    /// Fails when the tree shows anything else.
    pub(super) fn demand(&self, tree: &Tree) {
        let now = tree.0.clock.wall_millis();
        let rows = self.rows(now);
        assert_eq!(tree.scan(b"", None, usize::MAX), rows);
        assert_eq!(tree.size().entries, rows.len() as u64);
        let (state, first) = (tree.0.applied.state.read(), tree.bounds().first);
        let lost: Vec<Lsn> = self.losers.range(first..).copied().collect();
        let noted: Vec<Lsn> = state
            .superseded()
            .into_iter()
            .flat_map(|part| part.start.get()..part.end.get())
            .map(Lsn::new)
            .collect();
        let noted: Vec<Lsn> = noted.into_iter().filter(|lsn| *lsn >= first).collect();
        assert_eq!(noted, lost, "what lost on arrival");
    }

    /// Fails when single keys or pages of a scan are not what the whole scan says.
    pub(super) fn demand_parts(&self, tree: &Tree, prefix: &str, after: &str, limit: usize) {
        let rows = self.rows(tree.0.clock.wall_millis());
        let part = rows
            .iter()
            .filter(|row| row.key.starts_with(prefix.as_bytes()) && &row.key[..] > after.as_bytes());
        let part: Vec<Row> = part.take(limit).cloned().collect();
        assert_eq!(tree.scan(prefix.as_bytes(), Some(after.as_bytes()), limit), part);
        let row = rows.iter().find(|row| row.key == after);
        let found = tree.get(after);
        assert_eq!(
            found.map(|found| (found.value, found.version)),
            row.map(|row| (row.value.clone(), row.version))
        );
    }
}
