//! A block is written once: the same bytes in the log of its origin and in every other.

use std::time::Duration;

use tidewire_tests::{Plan, World, seeds, virtual_time};

#[test]
fn the_bytes_of_a_block_are_the_same_in_every_log() {
    for seed in seeds(25) {
        let plan = Plan {
            sites: 3,
            writers: 3,
            keys: 40,
            duration: Duration::from_secs(2),
            fault_every: Duration::from_millis(150),
        };
        virtual_time(async {
            let mut world = World::new(seed, plan.sites);
            let writes = world.run(&plan).await;
            assert!(writes > 0, "seed {seed}: nothing was written");
            world.demand_verbatim().await;
        });
    }
}
