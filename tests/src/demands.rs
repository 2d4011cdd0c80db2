//! What a [`World`] must hold once every fault is off: demands on the logs, not only on the states.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::clock::WallClock;
use tidewire_core::id::{Hlc, OriginTag, Version};

use crate::history::{Entry, History};
use crate::site::Site;
use crate::workload::{Acknowledged, Unanswered};
use crate::world::World;

impl World {
    /// The log of every site.
    pub async fn histories(&self) -> Vec<History> {
        let mut histories = Vec::new();
        for site in &self.sites {
            histories.push(History::of(&site.tree().expect("everything runs")).await);
        }
        histories
    }

    /// Fails when a write that was acknowledged is missing in a log, or a site shows something else than the greatest
    /// version of each key in its log.
    pub async fn demand_acknowledged(&self, acknowledged: &Acknowledged) {
        for (site, history) in self.sites.iter().zip(self.histories().await) {
            let logged: BTreeMap<(Version, &[u8]), &Entry> =
                history.entries.iter().map(|entry| ((entry.version, &entry.key[..]), entry)).collect();
            for write in acknowledged {
                let found = logged.get(&(write.version, write.key.as_bytes()));
                let same = found.is_some_and(|found| {
                    found.value.as_deref() == write.value.as_ref().map(String::as_bytes)
                        && found.end_key.as_deref() == write.end_key.as_ref().map(String::as_bytes)
                        && found.deadline_ms.is_some() == write.expires
                });
                assert!(
                    same,
                    "seed {}: the log of {} has {found:?} for {write:?}, which was acknowledged",
                    self.seed,
                    site.id()
                );
            }
            self.demand_state_of_log(site, &history);
        }
    }

    /// Fails when a site does not show the newest version of each key that was ever acknowledged, or something newer.
    pub fn demand_winners(&self, acknowledged: &Acknowledged, unanswered: &Unanswered) {
        let mut newest: BTreeMap<&str, (Version, Option<&str>, bool)> = BTreeMap::new();
        for write in acknowledged.iter().filter(|write| write.end_key.is_none()) {
            let entry = (write.version, write.value.as_deref(), write.expires);
            let best = newest.entry(&write.key).or_insert(entry);
            if entry.0 > best.0 {
                *best = entry;
            }
        }
        for (key, (version, value, expires)) in &mut newest {
            let ranges = acknowledged.iter().filter(|write| {
                write.key.as_str() <= *key && write.end_key.as_deref().is_some_and(|end| *key < end)
            });
            if let Some(range) =
                ranges.max_by_key(|range| range.version).filter(|range| range.version > *version)
            {
                (*version, *value, *expires) = (range.version, None, false);
            }
            for site in &self.sites {
                let here = site.tree().expect("everything runs").get(&**key);
                let newer = here.as_ref().is_some_and(|here| here.version > *version);
                let same = here.as_ref().map(|here| (here.version, &here.value[..]))
                    == value.map(|value| (*version, value.as_bytes()));
                // Whoever wrote and was not told may have written last; a value may have expired.
                let gone = here.is_none();
                assert!(
                    newer
                        || same
                        || gone && (*expires || value.is_none())
                        || gone && unanswered.may_have_taken(key),
                    "seed {}: {} shows {here:?} for {key}, and {value:?} was acknowledged as {version:?}",
                    self.seed,
                    site.id()
                );
            }
        }
    }

    fn demand_state_of_log(&self, site: &Site, history: &History) {
        let now = site.clock.now_millis();
        let newest = newest(history.entries.iter());
        let rows = site.tree().expect("everything runs").scan(b"", None, usize::MAX);
        let shown: BTreeSet<(&[u8], Version, &[u8])> =
            rows.iter().map(|row| (&row.key[..], row.version, &row.value[..])).collect();
        let live = |entry: &&Entry| entry.deadline_ms.is_none_or(|deadline| deadline > now);
        let wanted: BTreeSet<(&[u8], Version, &[u8])> = newest
            .iter()
            .filter(|(_, entry)| live(entry))
            .filter_map(|(key, entry)| Some((*key, entry.version, entry.value.as_deref()?)))
            .collect();
        assert_eq!(shown, wanted, "seed {}: the state of {} is not that of its log", self.seed, site.id());
    }

    /// Fails when a block of an origin is not, byte for byte and in the same order, in every log, or a dot occurs twice.
    pub async fn demand_verbatim(&self) {
        let histories = self.histories().await;
        for (site, own) in self.sites.iter().zip(&histories) {
            let origin = site.id().tag();
            let blocks = own.blocks_of(origin);
            for (other, history) in self.sites.iter().zip(&histories) {
                assert!(
                    history.blocks_of(origin) == blocks,
                    "seed {}: the blocks of {} on {} are not those of its own log",
                    self.seed,
                    site.id(),
                    other.id()
                );
                let mut dots = BTreeSet::new();
                let twice = history
                    .of_origin(origin)
                    .find(|entry| !dots.insert((entry.dot.partition, entry.dot.offset)));
                assert!(twice.is_none(), "seed {}: twice on {}: {twice:?}", self.seed, other.id());
            }
        }
    }

    /// Fails when a log has a block before a write that its writer may have seen. Not for what a site wrote itself: what it
    /// takes over counts as seen once it is on its way into the log, also if it does not get there. Others wait for it
    /// then, which is more than they need, and the site gets it again.
    pub async fn demand_causal_order(&self) {
        let histories = self.histories().await;
        let mut written: BTreeMap<OriginTag, Vec<Hlc>> = BTreeMap::new();
        for (site, own) in self.sites.iter().zip(&histories) {
            let origin = site.id().tag();
            written.insert(origin, own.of_origin(origin).map(|entry| entry.version.hlc).collect());
        }
        for (site, history) in self.sites.iter().zip(&histories) {
            let mut seen: BTreeMap<OriginTag, usize> = BTreeMap::new();
            let mut entries = history.entries.iter().enumerate().peekable();
            for (before, origin, deps) in history.deps() {
                if *origin == site.id().tag() {
                    continue;
                }
                while let Some((_, entry)) = entries.next_if(|(at, _)| at < before) {
                    *seen.entry(entry.version.origin).or_default() += 1;
                }
                for (on, until) in deps.iter().filter(|(on, _)| on != origin) {
                    let wanted = written.get(&on).map_or(0, |all| all.partition_point(|hlc| *hlc <= until));
                    let here = seen.get(&on).copied().unwrap_or_default();
                    assert!(
                        here >= wanted,
                        "seed {}: {} shows a block of {origin} at {before} with {here} of {wanted} writes of {on} before it",
                        self.seed,
                        site.id()
                    );
                }
            }
        }
    }
}

/// The greatest version of each key that some records are about by its name.
pub(crate) fn newest<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<&'a [u8], &'a Entry> {
    let (ranges, others): (Vec<&Entry>, Vec<&Entry>) = entries.partition(|entry| entry.end_key.is_some());
    let mut newest: BTreeMap<&[u8], &Entry> = BTreeMap::new();
    for entry in others {
        let best = newest.entry(&entry.key).or_insert(entry);
        if entry.version > best.version {
            *best = entry;
        }
    }
    for (key, best) in &mut newest {
        for range in ranges.iter().filter(|range| range.is_about(key)) {
            if range.version > best.version {
                *best = range;
            }
        }
    }
    newest
}
