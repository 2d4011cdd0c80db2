//! The end of the demo: are the three equal, and what are the figures.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidewire_core::id::Version;

use crate::local::LocalSite;

/// Whether all sites hold the same state and nothing is left to send.
pub(super) fn settled(sites: &[LocalSite]) -> bool {
    let quiet = sites.iter().filter_map(LocalSite::cluster).all(|cluster| {
        let status = cluster.status();
        status.peers.iter().all(|peer| peer.lag.entries == 0)
            && status.sinks.iter().all(|sink| sink.lag.entries == 0)
    });
    quiet && digests(sites).windows(2).all(|pair| pair[0] == pair[1])
}

/// The digest of every site.
pub(super) fn digests(sites: &[LocalSite]) -> Vec<(u128, u64)> {
    let digests = sites.iter().filter_map(LocalSite::tree).map(crate::Tree::digest);
    digests.map(|digest| (digest.digest, digest.entries)).collect()
}

/// The first key, in key order, on which two sites differ.
pub(super) fn first_difference(sites: &[LocalSite]) -> Option<String> {
    let rows = |site: &LocalSite| -> BTreeMap<Bytes, (Bytes, Version)> {
        let rows = site.tree().map(|tree| tree.scan(b"", None, usize::MAX)).unwrap_or_default();
        rows.into_iter().map(|row| (row.key, (row.value, row.version))).collect()
    };
    let (first, rest) = sites.split_first()?;
    let here = rows(first);
    for other in rest {
        let there = rows(other);
        let keys: std::collections::BTreeSet<_> = here.keys().chain(there.keys()).collect();
        let differs = keys.into_iter().find(|key| here.get(*key) != there.get(*key));
        if let Some(key) = differs {
            let key = String::from_utf8_lossy(key);
            return Some(format!("{key:?} differs between {} and {}", first.name(), other.name()));
        }
    }
    None
}

/// The sum of a counter over all trees and peers of every site.
pub(super) fn counted(sites: &[LocalSite], name: &str) -> u64 {
    let texts = sites.iter().filter_map(LocalSite::cluster).map(|cluster| cluster.metrics().render());
    texts.map(|text| sum(&text, name)).sum()
}

fn sum(text: &str, name: &str) -> u64 {
    let series =
        text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Entries per second.
pub(super) fn rate(entries: u64, took: Duration) -> f64 {
    entries as f64 / took.as_secs_f64().max(0.001)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_series_and_no_other() {
        let text = "a_total{tree=\"x\"} 3\na_total{tree=\"y\"} 4\na_total_more 9\nb_total 1\n";
        assert_eq!(sum(text, "a_total"), 7);
    }
}
