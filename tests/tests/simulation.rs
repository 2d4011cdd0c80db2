//! The whole under faults, on virtual time: determinism first, then convergence.

use std::time::Duration;

use tidewire_tests::{Plan, World, seeds, virtual_time};

const SHORT: Plan = Plan {
    sites: 2,
    writers: 2,
    keys: 8,
    duration: Duration::from_secs(1),
    fault_every: Duration::from_millis(300),
};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..8 {
        let run = || {
            virtual_time(async {
                let mut world = World::new(seed, SHORT.sites + usize::try_from(seed % 2).expect("0 or 1"));
                let writes = world.run(&SHORT).await;
                (writes, world.trace)
            })
        };
        let (first, second) = (run(), run());
        assert!(first.0 >= 50, "{} writes", first.0);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn clusters_converge_whatever_was_cut_killed_or_lost() {
    let (mut writes, mut faults, mut snapshots) = (0, [0; 5], 0);
    for seed in seeds(200) {
        let sites = 2 + usize::try_from(seed % 2).expect("0 or 1");
        let plan = Plan {
            sites,
            writers: 2,
            keys: 2 + seed % 17,
            duration: Duration::from_secs(3),
            fault_every: Duration::from_millis(250),
        };
        virtual_time(async {
            let mut world = World::new(seed, plan.sites);
            writes += world.run(&plan).await;
            snapshots += world.snapshots;
            for (sum, count) in faults.iter_mut().zip(world.faults) {
                *sum += count;
            }
        });
    }
    println!(
        "{writes} writes, {snapshots} snapshots; cuts, kills, clock jumps, disk faults, repeats: {faults:?}"
    );
    assert!(
        writes > 0 && snapshots > 0 && faults.iter().all(|count| *count > 0),
        "{writes} writes, {snapshots} snapshots, {faults:?}: every kind must occur"
    );
}
