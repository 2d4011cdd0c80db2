//! A site that comes back with an older log, or with none, harms nobody.

use std::time::Duration;

use tidewire::status::{Direction, PeerState};
use tidewire_core::disk::MemDisk;
use tidewire_core::meta::MemMeta;
use tidewire_tests::{Acknowledged, Workload, World, seeds, virtual_time};

/// What the first site says of its sending to each peer.
fn sending(world: &World) -> Vec<(PeerState, String)> {
    let status = world.sites[0].cluster().expect("it runs").status();
    let peers = status.peers.into_iter().filter(|peer| peer.direction == Direction::Send);
    peers.map(|peer| (peer.state, peer.reason.unwrap_or_default())).collect()
}

async fn write_for(world: &World, time: Duration) -> Acknowledged {
    let workload = Workload::start(&world.sites, 2, 10, &world.random);
    tokio::time::sleep(time).await;
    workload.stop().await.0
}

/// Three sites that agree, with the first one's files from half way, and what was acknowledged.
async fn old_friends(seed: u64) -> (World, (MemDisk, MemMeta), Acknowledged) {
    let mut world = World::new(seed, 3);
    world.start_all().await;
    let mut acknowledged = write_for(&world, Duration::from_secs(1)).await;
    world.sites[0].stop().await;
    let backup = world.sites[0].backup();
    world.start_all().await;
    acknowledged.extend(write_for(&world, Duration::from_secs(1)).await);
    world.demand_convergence(Duration::from_secs(60)).await;
    world.sites[0].crash().await;
    (world, backup, acknowledged)
}

/// The logs of the other sites still hold everything, and their states are what they were.
async fn demand_unharmed(world: &World, before: &[tidewire_core::tree::Digest], acknowledged: &Acknowledged) {
    for (site, before) in world.sites[1..].iter().zip(before) {
        let tree = site.tree().expect("it runs");
        let now = tree.digest();
        assert_eq!((now.digest, now.entries), (before.digest, before.entries), "{} changed", site.id());
        let history = tidewire_tests::History::of(&tree).await;
        for write in acknowledged {
            let there = history
                .entries
                .iter()
                .any(|entry| entry.version == write.version && entry.key == write.key.as_bytes());
            assert!(there, "seed {}: {} lost {write:?}", world.seed, site.id());
        }
    }
}

#[test]
fn f55_a_restored_site_is_stopped_by_name_and_costs_the_others_nothing() {
    for seed in seeds(6) {
        virtual_time(async {
            let (mut world, backup, acknowledged) = old_friends(seed).await;
            let before: Vec<_> =
                world.sites[1..].iter().map(|site| site.tree().expect("it runs").digest()).collect();
            world.sites[0].restore(backup);
            world.start(0).await;
            let restored = world.sites[0].tree().expect("it runs");
            for number in 0..50 {
                restored.put(format!("k{}", number % 10), "from an old copy").await.expect("a takes writes");
            }
            tokio::time::sleep(Duration::from_secs(40)).await;
            let shown = sending(&world);
            assert_eq!(shown.len(), 2);
            for (state, reason) in shown {
                assert_eq!(state, PeerState::Refused, "{reason}");
                assert!(
                    reason.contains("LogWentBack") && reason.contains("put back the newest copy"),
                    "{reason}"
                );
            }
            demand_unharmed(&world, &before, &acknowledged).await;

            let [b, c] = [1, 2].map(|at: usize| world.sites[at].tree().expect("it runs"));
            b.put("after", "b").await.expect("b takes writes");
            tokio::time::sleep(Duration::from_secs(2)).await;
            let value = |tree: &tidewire::Tree| tree.get("after").map(|value| value.value);
            assert_eq!(value(&c), Some("b".into()));
            assert_eq!(
                value(&restored),
                Some("b".into()),
                "the others' writes reach it: {}",
                world.account()
            );
        });
    }
}

#[test]
fn f04_a_site_whose_log_was_created_anew_is_refused_by_name() {
    for seed in seeds(6) {
        virtual_time(async {
            let (mut world, _, acknowledged) = old_friends(seed).await;
            let before: Vec<_> =
                world.sites[1..].iter().map(|site| site.tree().expect("it runs").digest()).collect();
            world.sites[0].restore((MemDisk::new(), MemMeta::new()));
            world.start(0).await;
            let wiped = world.sites[0].tree().expect("it runs");
            wiped.put("k1", "from an empty log").await.expect("a takes writes");
            tokio::time::sleep(Duration::from_secs(40)).await;
            for (state, reason) in sending(&world) {
                assert_eq!(state, PeerState::Refused, "{reason}");
                assert!(reason.contains("incarnation"), "{reason}");
            }
            for site in &world.sites[1..] {
                let peers = site.cluster().expect("it runs").status().peers;
                let from = |direction| {
                    peers
                        .iter()
                        .find(|peer| peer.id == "a" && peer.direction == direction)
                        .expect("a is a peer")
                };
                let receiving = from(Direction::Receive);
                assert_eq!(receiving.state, PeerState::Refused, "{receiving:?}");
                assert!(receiving.reason.as_deref().is_some_and(|why| why.contains("incarnation")));
            }
            demand_unharmed(&world, &before, &acknowledged).await;
        });
    }
}
