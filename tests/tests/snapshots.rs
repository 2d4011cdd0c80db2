//! Sites that write snapshots all the time and lose power in the middle hold what sites without snapshots hold.

use std::time::Duration;

use futures::future::join_all;
use tidewire_tests::{Site, Workload, World, seeds, virtual_time};

#[test]
fn no_loss_of_power_while_snapshots_are_written_takes_back_what_was_acknowledged() {
    let (mut finished, mut opened_by_one) = (0, 0);
    for seed in seeds(25) {
        virtual_time(async {
            let mut world = World::new(seed, 2 + usize::try_from(seed % 2).expect("0 or 1"));
            world.start_all().await;
            let workload = Workload::start(&world.sites, 3, 12, &world.random);
            for round in 0..12 {
                tokio::time::sleep(Duration::from_micros(world.random.below(100_000))).await;
                let patience = Duration::from_micros(world.random.below(60_000));
                let trees: Vec<_> = world.sites.iter().filter_map(Site::tree).collect();
                let snapshots = trees.iter().map(|tree| tokio::time::timeout(patience, tree.snapshot()));
                finished +=
                    join_all(snapshots).await.iter().filter(|taken| matches!(taken, Ok(Ok(_)))).count();
                let all = round % 4 == 3;
                let one = usize::try_from(world.random.below(world.sites.len() as u64)).expect("few sites");
                for at in (0..world.sites.len()).filter(|at| all || *at == one) {
                    world.sites[at].crash().await;
                    world.start(at).await;
                    let by = world.sites[at].tree().expect("started").last_snapshot();
                    opened_by_one += usize::from(by.is_some());
                }
            }
            let (acknowledged, _) = workload.stop().await;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            world.demand_acknowledged(&acknowledged).await;
            world.demand_verbatim().await;
        });
    }
    println!("{finished} snapshots, {opened_by_one} openings by one");
    assert!(finished > 100 && opened_by_one > 100, "{finished} snapshots, {opened_by_one} openings by one");
}
