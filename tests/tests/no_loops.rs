//! A write goes to every site once, and nothing goes round.

use std::time::Duration;

use tidewire_tests::{Workload, World, seeds, virtual_time};

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
                let counted = site.applied();
                for other in world.sites.iter().filter(|other| other.id() != site.id()) {
                    let foreign = history.of_origin(other.id().tag()).count() as u64;
                    let here = counted.get(other.id().as_str()).copied();
                    assert_eq!(here, Some(foreign), "seed {seed}: {} of {}", site.id(), other.id());
                }
            }
            assert_eq!(world.counters("tidewire_own_origin_refused_total"), [0, 0, 0], "seed {seed}");

            repeated += world.counters("tidewire_duplicate_records_total").iter().sum::<u64>();
            world.demand_stillness().await;
        });
    }
    assert!(repeated > 0, "nothing came twice, so nothing was shown");
}
