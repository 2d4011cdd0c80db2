//! What a [`World`] must hold whose sites hold different keys: each what all of them together say of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tidewire::Tree;
use tidewire_core::clock::WallClock;
use tidewire_core::error::Error;
use tidewire_core::id::Version;
use tidewire_core::record::Interest;
use tokio::time::Instant;

use crate::demands::newest;
use crate::history::History;
use crate::site::Site;
use crate::workload::{Acknowledged, Mix, Workload};
use crate::world::{Plan, World};

/// Rows as a tree shows them.
type Rows = BTreeMap<Bytes, (Version, Bytes)>;

fn rows(tree: &Tree) -> Rows {
    let all = tree.scan(b"", None, usize::MAX).into_iter();
    all.map(|row| (row.key, (row.version, row.value))).collect()
}

fn of_interest(rows: &Rows, interest: &Interest) -> Rows {
    let held = rows.iter().filter(|(key, _)| interest.contains(key));
    held.map(|(key, row)| (key.clone(), row.clone())).collect()
}

impl World {
    /// From the next start on, a site holds the keys with these prefixes; all keys if there are none.
    pub fn hold(&mut self, at: usize, prefixes: &[&str]) {
        let prefixes = prefixes.iter().map(ToString::to_string).collect();
        self.sites[at].configure(|tree| tree.interest = prefixes);
    }

    /// From now on, too, while the site runs.
    ///
    /// # Errors
    /// When it cannot, at this moment; from the next start it does in any case.
    pub async fn hold_now(&mut self, at: usize, prefixes: &[&str]) -> Result<(), Error> {
        self.hold(at, prefixes);
        self.sites[at].reload().await.map(drop)
    }

    /// Runs a plan whose writers do everything there is, as far as their site holds the keys; then everything is healed.
    pub async fn run_held(&mut self, plan: &Plan) -> Acknowledged {
        self.start_all().await;
        let workload =
            Workload::start_mixed(&self.sites, plan.writers, plan.keys, Mix::Everything, &self.random);
        self.run_faults(plan).await;
        let (acknowledged, _) = workload.stop().await;
        self.heal().await;
        acknowledged
    }

    /// Whether every link says that nothing is left to send.
    fn is_quiet(&self) -> bool {
        let clusters = self.sites.iter().filter_map(Site::cluster);
        clusters
            .map(|cluster| cluster.status())
            .all(|status| status.peers.iter().all(|peer| peer.lag.entries == 0))
    }

    /// Waits until nothing is left to send and every site shows what the first one does of the keys that it holds.
    pub async fn demand_held(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let trees: Vec<Tree> = self.sites.iter().filter_map(Site::tree).collect();
            let all = rows(&trees[0]);
            let differs = trees.iter().find(|tree| rows(tree) != of_interest(&all, &tree.interest()));
            if self.is_quiet() && differs.is_none() {
                self.observe();
                return;
            }
            assert!(
                Instant::now() < end,
                "seed {}: {:?} does not hold what it is to: {}",
                self.seed,
                differs.map(|tree| (&tree.identity().cluster, tree.interest())),
                self.account()
            );
        }
    }

    /// Fails when a site does not show exactly what the writes of all sites make of the keys that it holds, whatever is in
    /// its own log; or a dot is twice in its log. For logs that have forgotten nothing.
    pub async fn demand_reference(&self) {
        let histories = self.histories().await;
        let own = |(site, history): (&Site, &History)| {
            history.of_origin(site.id().tag()).cloned().collect::<Vec<_>>()
        };
        let written: Vec<_> = self.sites.iter().zip(&histories).flat_map(own).collect();
        let newest = newest(written.iter());
        for (site, history) in self.sites.iter().zip(&histories) {
            let tree = site.tree().expect("everything runs");
            let now = site.clock.now_millis();
            let live = newest.iter().filter(|(key, entry)| {
                tree.interest().contains(key) && entry.deadline_ms.is_none_or(|deadline| deadline > now)
            });
            let wanted: Rows = live
                .filter_map(|(key, entry)| {
                    Some((Bytes::copy_from_slice(key), (entry.version, entry.value.clone()?)))
                })
                .collect();
            assert_eq!(rows(&tree), wanted, "seed {}: {} is not the reference", self.seed, site.id());
            let mut dots = BTreeSet::new();
            let twice = history.entries.iter().find(|entry| {
                let dot = &entry.dot;
                !dots.insert((dot.origin, dot.partition, dot.offset))
            });
            assert!(twice.is_none(), "seed {}: twice on {}: {twice:?}", self.seed, site.id());
        }
    }
}
