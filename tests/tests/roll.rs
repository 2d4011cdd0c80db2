//! Who is a peer: known before anything is decided, checked wherever it comes from, and gone from everything that is shown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidewire::config::TreeConfig;
use tidewire::{Cluster, ClusterConfig, ErrorKind, Peer};
use tidewire_core::disk::MemDisk;
use tidewire_core::error::MetaError;
use tidewire_core::gc::Holder;
use tidewire_core::id::ClusterId;
use tidewire_core::limits::Limits;
use tidewire_core::meta::{MemMeta, MetaChange, MetaStore};
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;
use tidewire_tests::{SimClock, virtual_time};
use tokio::time::{Instant, sleep};

/// Metadata that takes its time to say who was a peer.
struct SlowMeta(MemMeta, Duration);

#[async_trait]
impl MetaStore for SlowMeta {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError> {
        self.0.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError> {
        if prefix == "peer/" {
            sleep(self.1).await;
        }
        self.0.list(prefix).await
    }

    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError> {
        self.0.commit(changes).await
    }
}

/// A cluster whose files outlive it.
struct Home {
    name: &'static str,
    random: Random,
    network: MemNetwork,
    began: Instant,
    disk: MemDisk,
    meta: MemMeta,
}

impl Home {
    fn new(name: &'static str, network: &MemNetwork, random: &Random) -> Self {
        let (disk, meta) = (MemDisk::new(), MemMeta::new());
        let (random, network) = (random.fork(), network.clone());
        Self { name, random, network, began: Instant::now(), disk, meta }
    }

    fn two(seed: u64) -> (Self, Self) {
        let random = Random::from_seed(seed);
        let network = MemNetwork::new(&random);
        (Self::new("a", &network, &random), Self::new("b", &network, &random))
    }

    fn config(&self) -> ClusterConfig {
        let mut config = ClusterConfig::new(self.name, format!("/data/{}", self.name));
        config.trees = vec![TreeConfig::new("t")];
        config
    }

    /// Starts it; who was a peer is known after a while.
    async fn open(&self, after: Duration) -> Cluster {
        let id = ClusterId::new(self.name).expect("a name");
        let limits = Limits {
            gc_floor: Duration::from_millis(150),
            gc_ceiling: Duration::from_millis(600),
            ..Limits::tiny()
        };
        let builder = Cluster::builder(self.config())
            .disk(Arc::new(self.disk.clone()))
            .meta(Arc::new(SlowMeta(self.meta.clone(), after)))
            .wall(Arc::new(SimClock::new(self.began, 0)))
            .transport(Arc::new(self.network.endpoint(&id)))
            .random(self.random.fork())
            .limits(limits)
            .simulated(Duration::from_millis(3));
        builder.open().await.expect("opens")
    }
}

async fn settle() {
    sleep(Duration::from_secs(10)).await;
}

async fn stop(cluster: Cluster) {
    cluster.shutdown().await.expect("stops");
}

fn tombstones(cluster: &Cluster) -> u64 {
    cluster.find_tree("t").expect("open").size().graves.tombstones
}

fn from(name: &str) -> Peer {
    Peer { url: None, send: false, ..Peer::new(name, "") }
}

#[test]
fn f18_nothing_is_forgotten_before_everybody_is_on_the_roll() {
    virtual_time(async {
        let (home, _) = Home::two(1);
        let a = home.open(Duration::ZERO).await;
        a.keep_peer(from("c")).await.expect("kept");
        let tree = a.tree("t").await.expect("open");
        tree.put("k", "v").await.expect("written");
        tree.delete("k").await.expect("deleted");
        settle().await;
        assert_eq!(tombstones(&a), 1, "c may still write against it");
        drop(tree);
        stop(a).await;
        let a = home.open(Duration::from_secs(5)).await;
        assert_eq!(tombstones(&a), 1, "nor while the cluster was starting");
        settle().await;
        assert_eq!(tombstones(&a), 1);
        a.remove_peer("c").await.expect("removed");
        settle().await;
        assert_eq!(tombstones(&a), 0, "c never wrote");
    });
}

#[test]
fn a_peer_that_cannot_be_is_refused_by_the_library_with_all_that_is_wrong() {
    virtual_time(async {
        let (home, _) = Home::two(2);
        let a = home.open(Duration::ZERO).await;
        let good = Peer::new("b", "mem://b");
        for (peer, said) in [
            (Peer { url: None, ..good.clone() }, "url"),
            (Peer { send: false, ..good.clone() }.forward(true), "forward"),
            (Peer { send: false, receive: false, ..good.clone() }, "receive"),
            (Peer { trees: vec!["No Name".into()], ..good.clone() }, "No Name"),
            (Peer::new("a", "mem://a"), "this cluster itself"),
            (Peer::new("B!", "mem://b"), "B!"),
        ] {
            for error in [a.add_peer(peer.clone()).await, a.keep_peer(peer.clone()).await] {
                let error = error.expect_err("it cannot be");
                assert!(
                    error.kind() == ErrorKind::Invalid && error.to_string().contains(said),
                    "{said}: {error}"
                );
            }
        }
        assert!(a.peers().is_empty());
        a.add_peer(good).await.expect("added");
    });
}

#[test]
fn a_remembered_peer_that_cannot_be_stops_nothing_keeps_its_hold_and_is_told_of() {
    virtual_time(async {
        let (home, other) = Home::two(3);
        let a = home.open(Duration::ZERO).await;
        a.keep_peer(Peer::new("b", "mem://b")).await.expect("kept");
        let tree = a.tree("t").await.expect("open");
        for key in 0..100 {
            tree.put(format!("k{key}"), vec![7; 300]).await.expect("written");
        }
        drop(tree);
        stop(a).await;
        for stored in ["kept = { id = \"b\", send = true }", "no = [ TOML"] {
            let garbage = vec![MetaChange::put("peer/b", stored.as_bytes().to_vec())];
            home.meta.commit(garbage).await.expect("stored");
            let a = home.open(Duration::ZERO).await;
            let said = a.status().health.reasons.join("\n");
            assert!(said.contains("peers remove b"), "{stored}: {said}");
            assert_eq!(a.release_unlisted_peers().await.expect("stored"), 0, "its hold stays");
            let pass = a.gc("t", false).await.expect("a pass");
            assert_eq!(pass.holder, Holder::Consumer("peer b".into()));
            let members = a.find_tree("t").expect("open").members().expect("declared");
            assert!(members.values().any(|name| name.as_str() == "b"), "it may still write");
            stop(a).await;
        }
        let a = home.open(Duration::ZERO).await;
        let b = other.open(Duration::ZERO).await;
        b.add_peer(from("a")).await.expect("added");
        let freed = a.remove_peer("b").await.expect("removed");
        assert!(freed > 100 * 300, "{freed}");
        a.keep_peer(Peer::new("b", "mem://b")).await.expect("kept again");
        settle().await;
        assert!(b.find_tree("t").expect("open").get("k99").is_some());
        stop(a).await;
        let a = home.open(Duration::ZERO).await;
        assert_eq!((a.peers().len(), a.status().health.reasons), (1, Vec::new()));
    });
}

/// The lines of a cluster's metrics that begin with a name and hold a label.
fn series(cluster: &Cluster, name: &str, label: &str) -> Vec<String> {
    let text = cluster.metrics().render();
    text.lines().filter(|line| line.starts_with(name) && line.contains(label)).map(str::to_owned).collect()
}

#[test]
fn nothing_is_shown_any_more_of_a_peer_that_was_removed_but_what_was_counted() {
    virtual_time(async {
        let (home, other) = Home::two(4);
        let (a, b) = (home.open(Duration::ZERO).await, other.open(Duration::ZERO).await);
        a.add_peer(Peer::new("b", "mem://b")).await.expect("added");
        b.add_peer(Peer::new("a", "mem://a")).await.expect("added");
        a.tree("t").await.expect("open").put("k", "v").await.expect("written");
        settle().await;
        let gauges =
            ["tidewire_lag_", "tidewire_receive_lag_", "tidewire_link_paused", "tidewire_rate_limited"];
        assert!(gauges.iter().all(|name| !series(&a, name, "peer=\"b\"").is_empty()));
        a.remove_peer("b").await.expect("removed");
        settle().await;
        for name in gauges {
            assert_eq!(series(&a, name, "peer=\"b\""), Vec::<String>::new());
        }
        assert_eq!(series(&a, "tidewire_shipped_records_total", "peer=\"b\"").len(), 1);
    });
}

#[test]
fn a_tree_that_a_reload_adds_is_measured_as_its_settings_say() {
    virtual_time(async {
        let (home, other) = Home::two(5);
        let (a, b) = (home.open(Duration::ZERO).await, other.open(Duration::ZERO).await);
        a.add_peer(Peer::new("b", "mem://b")).await.expect("added");
        b.add_peer(from("a")).await.expect("added");
        for (cluster, home) in [(&a, &home), (&b, &other)] {
            let mut wanted = home.config();
            wanted.trees.push(TreeConfig { canary: Duration::from_secs(1).into(), ..TreeConfig::new("u") });
            assert_eq!(cluster.reload(wanted).await.expect("taken over").trees, ["u"]);
        }
        settle().await;
        let counted = |tree: &str| {
            let lines = series(&b, "tidewire_end_to_end_seconds_count", &format!("tree=\"{tree}\""));
            let of_a = lines.iter().filter(|line| line.contains("origin=\"a\""));
            of_a.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        };
        assert_eq!(counted("t"), 0.0, "without canaries nothing is measured that nobody writes");
        assert!(counted("u") >= 3.0, "{}", counted("u"));
    });
}

#[test]
fn a_reload_that_fails_half_way_names_what_failed_and_the_next_one_goes_on() {
    virtual_time(async {
        let (home, _) = Home::two(6);
        let a = home.open(Duration::ZERO).await;
        let mut wanted = home.config();
        let pinned = |partitions| TreeConfig { partitions, ..TreeConfig::new("u") };
        wanted.trees.push(pinned(4));
        a.reload(wanted.clone()).await.expect("taken over");
        stop(a).await;
        // The file says something else about the tree than its log, and knows a peer.
        let a = home.open(Duration::ZERO).await;
        wanted.trees[1] = pinned(8);
        wanted.peers = vec![from("b")];
        let error = a.reload(wanted.clone()).await.expect_err("it is pinned");
        assert!(error.to_string().contains("partitions"), "{error}");
        assert!(a.find_tree("u").is_none() && a.peers().is_empty(), "what comes behind it waits");
        assert!(a.find_tree("t").is_some());
        wanted.trees[1] = pinned(4);
        let done = a.reload(wanted).await.expect("mended");
        assert_eq!((done.trees, done.added), (vec!["u".to_owned()], vec!["b".to_owned()]));
    });
}
