//! Logs that are collected all the time, under faults, keep what a peer or a restart still needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidewire::config::TreeConfig;
use tidewire::status::PeerState;
use tidewire::{Cluster, ClusterConfig};
use tidewire_core::disk::MemDisk;
use tidewire_core::error::MetaError;
use tidewire_core::id::{ClusterId, Lsn};
use tidewire_core::limits::Limits;
use tidewire_core::meta::{MemMeta, MetaChange, MetaStore};
use tidewire_core::random::Random;
use tidewire_core::sink::MemDestination;
use tidewire_core::transport::MemNetwork;
use tidewire_tests::{Site, Workload, World, seeds, virtual_time};
use tokio::time::sleep;

#[test]
fn f11_no_collector_takes_what_a_peer_or_a_restart_still_needs() {
    let (mut trimmed, mut collected) = (0, 0);
    for seed in seeds(40) {
        virtual_time(async {
            let mut world = World::new(seed, 2 + usize::try_from(seed % 2).expect("0 or 1"));
            world.start_all().await;
            let workload = Workload::start(&world.sites, 3, 12, &world.random);
            for _ in 0..16 {
                tokio::time::sleep(Duration::from_micros(world.random.below(300_000))).await;
                world.fault().await;
                for cluster in world.sites.iter().filter_map(Site::cluster) {
                    // Of two hundred faults one or the other is of the disk: then nothing is taken.
                    collected += u64::from(cluster.gc("t", false).await.is_ok());
                }
            }
            workload.stop().await;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            for site in &world.sites {
                let status = site.cluster().expect("it runs").status();
                let fell_off = status.peers.iter().find(|peer| peer.state == PeerState::FellOff);
                assert!(fell_off.is_none(), "seed {seed}: {fell_off:?}");
                trimmed += u64::from(site.tree().expect("it runs").bounds().first > Lsn::ZERO);
            }
            for at in 0..world.sites.len() {
                let before = world.sites[at].tree().expect("it runs").digest();
                world.sites[at].crash().await;
                world.start(at).await;
                let after = world.sites[at].tree().expect("it runs").digest();
                assert_eq!(after.digest, before.digest, "seed {seed}, site {at}");
            }
        });
    }
    println!("{collected} passes, {trimmed} logs trimmed at the end");
    assert!(trimmed > 0 && collected > 0, "{collected} passes, {trimmed} logs trimmed");
}

/// A store whose next look at the consumers of a log is held up by a second.
#[derive(Clone, Default)]
struct Slow {
    inner: MemMeta,
    armed: Arc<AtomicU64>,
}

#[async_trait]
impl MetaStore for Slow {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError> {
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError> {
        let listed = self.inner.list(prefix).await;
        let armed = self.armed.load(Ordering::Relaxed);
        if prefix.starts_with("cursor/") && armed > 0 {
            self.armed.store(armed - 1, Ordering::Relaxed);
            sleep(Duration::from_secs(1)).await;
        }
        listed
    }

    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError> {
        self.inner.commit(changes).await
    }
}

#[test]
fn f33_a_sink_that_is_added_within_a_pass_finds_what_it_begins_with() {
    // The pass looks at the consumers once or twice; the sink comes between each look and what follows from it.
    for millis in [500, 1_500] {
        virtual_time(async {
            let (meta, network) = (Slow::default(), MemNetwork::new(&Random::from_seed(millis)));
            let mut config = ClusterConfig::new("a", "/data/a");
            config.trees = vec![TreeConfig::new("t")];
            let cluster = Cluster::builder(config)
                .disk(Arc::new(MemDisk::new()))
                .meta(Arc::new(meta.clone()))
                .transport(Arc::new(network.endpoint(&ClusterId::new("a").expect("a name"))))
                .random(Random::from_seed(millis))
                .limits(Limits::tiny())
                .simulated(Duration::from_millis(1))
                .open()
                .await
                .expect("opens");
            let tree = cluster.tree("t").await.expect("open");
            for key in 0..200 {
                tree.put(format!("key {key:03}"), vec![7; 100]).await.expect("written");
            }
            meta.armed.store(2, Ordering::Relaxed);
            let destination = MemDestination::new();
            let adding = async {
                sleep(Duration::from_millis(millis)).await;
                cluster.add_sink("t", "out", destination.sink()).await.expect("a new sink");
            };
            let (report, ()) = tokio::join!(cluster.gc("t", false), adding);
            assert!(report.expect("a pass").trimmed_records > 0, "it took what a sink might begin with");
            sleep(Duration::from_secs(30)).await;
            let sinks = cluster.status().sinks;
            assert_eq!(sinks[0].state, "caught_up", "{sinks:?}");
            assert_eq!(destination.held().len(), 200);
            cluster.shutdown().await.expect("stops");
        });
    }
}
