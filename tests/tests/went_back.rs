//! A site that comes back with an older log, or with none, harms nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tidewire::status::{Direction, PeerState};
use tidewire_core::disk::MemDisk;
use tidewire_core::id::{Offset, OriginTag, PartitionId, Version};
use tidewire_core::meta::MemMeta;
use tidewire_tests::{Acknowledged, History, Workload, World, seeds, virtual_time};

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
        let history = History::of(&tree).await;
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

/// What each log says of every write, by its name: where and when it was committed, and what it does.
async fn names(world: &World) -> BTreeMap<(OriginTag, PartitionId, Offset), (Version, Bytes, Option<Bytes>)> {
    let mut names = BTreeMap::new();
    for site in &world.sites {
        for entry in History::of(&site.tree().expect("it runs")).await.entries {
            let name = (entry.dot.origin, entry.dot.partition, entry.dot.offset);
            let write = (entry.version, entry.key, entry.value);
            let said = names.entry(name).or_insert_with(|| write.clone());
            assert_eq!(*said, write, "seed {}: {name:?} is two writes", world.seed);
        }
    }
    names
}

#[test]
fn f23_a_restored_site_gives_no_write_a_second_name_and_no_name_to_two_writes() {
    for seed in seeds(6) {
        virtual_time(async {
            let (mut world, backup, acknowledged) = old_friends(seed).await;
            world.sites[0].restore(backup);
            world.start(0).await;
            // It has time to send all that it holds once more, if it were to.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let known = names(&world).await;
            world.sites[0].cluster().expect("it runs").reseed("b", None).await.expect("asked");
            world.demand_convergence(Duration::from_secs(60)).await;
            assert_eq!(names(&world).await, known, "seed {seed}: old writes came anew");
            let more = write_for(&world, Duration::from_secs(1)).await;
            world.demand_convergence(Duration::from_secs(60)).await;
            let after = names(&world).await;
            assert!(known.iter().all(|(name, write)| after.get(name) == Some(write)), "seed {seed}");
            let names_of_writes: BTreeSet<_> =
                after.values().map(|(version, key, _)| (version, key)).collect();
            assert_eq!(names_of_writes.len(), after.len(), "seed {seed}: a write has two names");
            let new: Vec<_> = after.iter().filter(|(name, _)| !known.contains_key(name)).collect();
            let newest = known.values().map(|(version, ..)| version.hlc).max().expect("there are writes");
            assert!(
                new.iter().all(|(_, (version, ..))| version.hlc > newest),
                "seed {seed}: old writes came anew"
            );
            let come: BTreeSet<_> = new.iter().map(|(_, (version, ..))| *version).collect();
            assert!(
                more.iter().all(|write| come.contains(&write.version)),
                "seed {seed}: what is new has come"
            );
            let own = world.sites[0].tree().expect("it runs").identity().origin();
            assert!(new.iter().any(|((origin, ..), _)| *origin == own), "the restored site writes again");
            assert!(
                acknowledged
                    .iter()
                    .all(|write| known.values().any(|(version, ..)| *version == write.version))
            );
        });
    }
}
