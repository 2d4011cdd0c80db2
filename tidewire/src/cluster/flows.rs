//! [`Flows`]: how fast links to each peer may be, and what they measure; [`Freshness`]: how old what is shown here is.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::metrics::{Labels, Metrics};
use tidewire_core::tree::Tree;
use tidewire_shipper::{RateLimit, Settings};

use crate::config::{Peer, TreeConfig};

/// What the configuration says of the flow on links.
pub(super) struct Flows {
    canaries: Mutex<BTreeMap<String, Duration>>,
    /// One limit for each peer, over the links of all trees.
    rates: Mutex<BTreeMap<ClusterId, RateLimit>>,
}

impl Flows {
    pub(super) fn new(trees: &[TreeConfig]) -> Self {
        let flows = Self { canaries: Mutex::default(), rates: Mutex::default() };
        trees.iter().for_each(|tree| flows.know(tree));
        flows
    }

    /// Takes over what is said of a tree, before its links begin.
    pub(super) fn know(&self, tree: &TreeConfig) {
        let mut canaries = self.canaries.lock();
        match tree.canary.get() {
            every if every.is_zero() => _ = canaries.remove(&tree.name),
            every => _ = canaries.insert(tree.name.clone(), every),
        }
    }

    /// The settings of a link that sends a tree to a peer.
    pub(super) fn settings(&self, id: &ClusterId, peer: &Peer, tree: &TreeName) -> Settings {
        Settings {
            compression: peer.compression,
            rate: self.rate(id, peer.rate_limit.get()),
            canary: self.canaries.lock().get(tree.as_str()).copied(),
            ..Settings::default()
        }
    }

    fn rate(&self, id: &ClusterId, bytes_per_second: u64) -> Option<RateLimit> {
        let mut rates = self.rates.lock();
        if bytes_per_second == 0 {
            rates.remove(id);
            return None;
        }
        let same = rates.get(id).filter(|rate| rate.bytes_per_second() == bytes_per_second).cloned();
        let rate = same.unwrap_or_else(|| RateLimit::new(bytes_per_second));
        rates.insert(id.clone(), rate.clone());
        Some(rate)
    }
}

/// How old the newest moment is up to which each origin is complete here.
pub(super) struct Freshness(Family<Labels, Gauge>);

impl Freshness {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self(metrics.gauges(
            "tidewire_frontier_age_seconds",
            "How long ago, by the clock here, the moment is up to which another origin is complete here",
        ))
    }

    /// Shows a tree as it is now.
    pub(super) fn show(&self, tree: &Tree, wall_millis: u64) {
        // What is written here is visible at once, and promised only when somebody asks.
        let own = tree.identity().origin();
        for (origin, hlc) in tree.frontier().iter().filter(|(origin, _)| *origin != own) {
            let labels =
                vec![("tree", tree.identity().tree.to_string()), ("origin", tree.origin_name(origin))];
            let age = wall_millis.saturating_sub(hlc.millis()) / 1_000;
            self.0.get_or_create(&labels).set(i64::try_from(age).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::units::ByteSize;

    use super::*;

    #[test]
    fn the_links_to_one_peer_share_its_limit_and_a_new_limit_replaces_it() {
        let flows =
            Flows::new(&[TreeConfig { canary: Duration::from_secs(10).into(), ..TreeConfig::new("t") }]);
        let (b, c) = (ClusterId::new("b").unwrap(), ClusterId::new("c").unwrap());
        let (t, u) = (TreeName::new("t").unwrap(), TreeName::new("u").unwrap());
        let peer = |rate| Peer { rate_limit: ByteSize::new(rate), ..Peer::new("b", "http://127.0.0.1:1") };
        let one = flows.settings(&b, &peer(5), &t);
        assert_eq!(
            (one.canary, flows.settings(&b, &peer(5), &u).canary),
            (Some(Duration::from_secs(10)), None)
        );
        let limits = |id, rate, tree| flows.settings(id, &peer(rate), tree).rate;
        let same = |a: Option<RateLimit>, b: Option<RateLimit>| a.unwrap().is(&b.unwrap());
        assert!(same(one.rate.clone(), limits(&b, 5, &u)));
        assert!(!same(one.rate.clone(), limits(&c, 5, &t)), "another peer");
        assert_eq!(limits(&b, 6, &t).unwrap().bytes_per_second(), 6);
        assert!(limits(&b, 0, &t).is_none());
    }
}
