//! Logs that are collected all the time, under faults, keep what a peer or a restart still needs.

use std::time::Duration;

use tidewire::status::PeerState;
use tidewire_core::id::Lsn;
use tidewire_tests::{Site, Workload, World, seeds, virtual_time};

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
