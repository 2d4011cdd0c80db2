//! What was acknowledged is in the log of every site, whoever loses power when.

use std::time::Duration;

use tidewire_tests::{Workload, World, seeds, virtual_time};

#[test]
fn no_loss_of_power_takes_back_what_was_acknowledged() {
    let mut total = 0;
    for seed in seeds(25) {
        virtual_time(async {
            let mut world = World::new(seed, 2 + usize::try_from(seed % 2).expect("0 or 1"));
            world.start_all().await;
            let workload = Workload::start(&world.sites, 3, 6, &world.random);
            for round in 0..12 {
                tokio::time::sleep(Duration::from_micros(world.random.below(200_000))).await;
                // Now and then all of them at once: then nobody can be fed by a neighbour.
                let all = round % 4 == 3;
                let one = usize::try_from(world.random.below(world.sites.len() as u64)).expect("few sites");
                for at in (0..world.sites.len()).filter(|at| all || *at == one) {
                    world.sites[at].crash().await;
                }
                world.start_all().await;
            }
            let (acknowledged, writes) = workload.stop().await;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            world.demand_acknowledged(&acknowledged).await;
            assert!(acknowledged.iter().any(|write| write.value.is_none()), "seed {seed}: no delete");
            total += writes;
        });
    }
    assert!(total > 0, "nothing was acknowledged");
}
