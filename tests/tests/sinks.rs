//! Destinations end with what the tree holds, whatever concurrent writes, crashes and restarts did on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire::Tree;
use tidewire_core::error::SinkErrorKind;
use tidewire_core::id::{Dot, Version};
use tidewire_core::record::Kind;
use tidewire_core::sink::{MemDestination, SinkCall, SinkFault, SinkFaults};
use tidewire_tests::{Site, Workload, World, seeds, virtual_time};
use tokio::time::Instant;

const SINK: &str = "out";

/// Every site feeds a destination of its own, through a sink that fails now and then.
async fn feed(site: &Site, tree: &str, destination: &MemDestination, faults: &SinkFaults) {
    let cluster = site.cluster().expect("it runs");
    cluster.add_sink(tree, SINK, faults.wrap(destination.sink())).await.expect("a new sink");
}

async fn caught_up(site: &Site) {
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        let sinks = site.cluster().expect("it runs").status().sinks;
        if sinks.iter().all(|sink| sink.state == "caught_up") {
            return;
        }
        assert!(Instant::now() < end, "{sinks:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Without what came again: the versions of each key rise, and its last change is what the tree holds.
fn demand(seed: u64, tree: &Tree, destination: &MemDestination) -> u64 {
    let mut last: BTreeMap<Vec<u8>, (Version, Option<Vec<u8>>)> = BTreeMap::new();
    let mut seen: BTreeMap<Dot, Vec<u8>> = BTreeMap::new();
    let mut again = 0;
    for change in destination.changes() {
        let dot = change.dot.expect("nothing was seeded");
        if seen.insert(dot, change.key.to_vec()).is_some() {
            again += 1;
            continue;
        }
        let value = (change.kind == Kind::Set).then(|| change.value.to_vec());
        if let Some((before, _)) = last.insert(change.key.to_vec(), (change.version, value)) {
            assert!(before < change.version, "seed {seed}: {change:?} comes after {before:?}");
        }
    }
    let held = tree.scan(b"", None, usize::MAX).into_iter();
    let held: BTreeMap<Vec<u8>, Vec<u8>> = held.map(|row| (row.key.to_vec(), row.value.to_vec())).collect();
    let ended: BTreeMap<Vec<u8>, Vec<u8>> =
        last.into_iter().filter_map(|(key, (_, value))| Some((key, value?))).collect();
    assert_eq!(ended, held, "seed {seed}");
    again
}

#[test]
fn f61_a_destination_ends_with_what_the_tree_holds_and_the_versions_of_a_key_rise() {
    let (mut again, mut conflicts) = (0, 0);
    for seed in seeds(12) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            let tree = world.sites[0].tree().expect("it runs").identity().tree.to_string();
            let destinations: Vec<MemDestination> =
                world.sites.iter().map(|_| MemDestination::new()).collect();
            let faults: Vec<SinkFaults> = world.sites.iter().map(|_| SinkFaults::new()).collect();
            for at in 0..3 {
                feed(&world.sites[at], &tree, &destinations[at], &faults[at]).await;
            }
            // Two keys and many writers: most writes lose to another one somewhere.
            let workload = Workload::start(&world.sites, 2, 2, &world.random);
            for round in 0..8_u64 {
                tokio::time::sleep(Duration::from_micros(world.random.below(300_000))).await;
                let at = usize::try_from(world.random.below(3)).expect("small");
                match round % 4 {
                    0 => faults[at].order(SinkCall::Write, 2, SinkFault::Fail(SinkErrorKind::Transient)),
                    1 => faults[at].order(SinkCall::Write, 1, SinkFault::Panic),
                    2 => {
                        world.sites[at].crash().await;
                        world.start_all().await;
                        feed(&world.sites[at], &tree, &destinations[at], &faults[at]).await;
                    }
                    _ => world.disturb(at, (at + 1) % 3),
                }
            }
            workload.stop().await;
            faults.iter().for_each(SinkFaults::heal);
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            for (site, destination) in world.sites.iter().zip(&destinations) {
                caught_up(site).await;
                let tree = site.tree().expect("it runs");
                again += demand(seed, &tree, destination);
                let records = tree.size().log.next.get();
                let kinds = destination
                    .changes()
                    .iter()
                    .filter_map(|change| change.dot)
                    .collect::<std::collections::BTreeSet<_>>();
                conflicts += records.saturating_sub(kinds.len() as u64);
            }
        });
    }
    assert!(again > 0, "no sink delivered anything twice, so no fault met one");
    assert!(conflicts > 0, "no write lost on arrival");
}

#[test]
fn a_cluster_that_stops_in_order_delivers_first_and_goes_on_where_it_was() {
    virtual_time(async {
        let mut world = World::new(3, 1);
        world.start_all().await;
        let tree = world.sites[0].tree().expect("it runs");
        let name = tree.identity().tree.to_string();
        let (destination, faults) = (MemDestination::new(), SinkFaults::new());
        feed(&world.sites[0], &name, &destination, &faults).await;
        for n in 0..200 {
            tree.put(format!("k{n}"), "v").await.expect("written");
        }
        drop(tree);
        world.sites[0].stop().await;
        assert_eq!(destination.changes().len(), 200, "everything was delivered before the stop");
        world.start_all().await;
        feed(&world.sites[0], &name, &destination, &faults).await;
        world.sites[0].tree().expect("it runs").put("last", "v").await.expect("written");
        caught_up(&world.sites[0]).await;
        assert_eq!(destination.changes().len(), 201, "nothing came again");
        let cluster = world.sites[0].cluster().expect("it runs").clone();
        cluster.remove_sink(&name, SINK).await.expect("removed");
        assert!(cluster.status().sinks.is_empty());
        cluster.remove_sink(&name, SINK).await.expect_err("it is gone");
        world.sites[0].stop().await;
    });
}
