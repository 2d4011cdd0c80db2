//! A write goes to every site once, and nothing goes round.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire_tests::{Site, Workload, World, seeds, virtual_time};

/// The sum of a counter over all its series.
fn counter(site: &Site, name: &str) -> u64 {
    let text = site.cluster().expect("it runs").metrics().render();
    let series = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let values: Vec<f64> = series.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(!values.is_empty(), "{name} has no series:\n{text}");
    values.iter().sum::<f64>() as u64
}

fn counters(world: &World, name: &str) -> Vec<u64> {
    world.sites.iter().map(|site| counter(site, name)).collect()
}

/// What the applier counted, by origin.
fn applied(site: &Site) -> BTreeMap<String, u64> {
    let text = site.cluster().expect("it runs").metrics().render();
    let of = |line: &str| {
        let origin = line.split_once("origin=\"")?.1.split_once('"')?.0.to_owned();
        Some((origin, line.rsplit(' ').next()?.parse().ok()?))
    };
    let lines = text.lines().filter(|line| line.starts_with("tidewire_applied_records_total{"));
    lines.filter_map(of).collect()
}

#[test]
fn every_write_is_applied_once_and_nothing_goes_round() {
    let mut repeated = 0;
    for seed in seeds(12) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            let workload = Workload::start(&world.sites, 3, 12, &world.random);
            for _ in 0..12 {
                tokio::time::sleep(Duration::from_micros(world.random.below(250_000))).await;
                let at = usize::try_from(world.random.below(3)).expect("three sites");
                let (a, b) = (world.sites[at].id(), world.sites[(at + 1) % 3].id());
                match world.random.below(4) {
                    0 => world.network.cut(a, b),
                    1 => world.network.heal(a, b),
                    2 => world.network.break_links(a, b),
                    _ => world.disturb(at, (at + 1) % 3),
                }
            }
            let (_, writes) = workload.stop().await;
            assert!(writes > 100, "seed {seed}: {writes} writes");
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;

            let histories = world.histories().await;
            for (site, history) in world.sites.iter().zip(&histories) {
                let counted = applied(site);
                for other in world.sites.iter().filter(|other| other.id() != site.id()) {
                    let foreign = history.of_origin(other.id().tag()).count() as u64;
                    let here = counted.get(other.id().as_str()).copied();
                    assert_eq!(here, Some(foreign), "seed {seed}: {} of {}", site.id(), other.id());
                }
            }
            assert_eq!(counters(&world, "tidewire_own_origin_refused_total"), [0, 0, 0], "seed {seed}");

            repeated += counters(&world, "tidewire_duplicate_records_total").iter().sum::<u64>();
            let still = ["tidewire_shipped_records_total", "tidewire_applied_records_total"];
            let before = still.map(|name| counters(&world, name));
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(before, still.map(|name| counters(&world, name)), "seed {seed}: something goes round");
        });
    }
    assert!(repeated > 0, "nothing came twice, so nothing was shown");
}
