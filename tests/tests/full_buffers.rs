//! Everything waits for everything, and there is hardly room to wait: it goes on all the same.

use std::time::Duration;

use tidewire_core::limits::Limits;
use tidewire_tests::{Edge, Mix, Topology, Workload, World, seeds, virtual_time};
use tokio::time::sleep;

/// Less than a page of any peer: each gets in one, and no more while it waits.
fn cramped() -> Limits {
    Limits { apply_buffer_bytes: 600, ..Limits::tiny() }
}

/// What waits in the appliers of all sites, and how many of them have no room.
fn waits(world: &World) -> (u64, usize) {
    let held = world.sites.iter().filter_map(|site| {
        let text = site.cluster()?.metrics().render();
        let line = text
            .lines()
            .find(|line| line.starts_with("tidewire_buffer_bytes{") && line.contains("\"apply\""))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    });
    let held: Vec<u64> = held.map(|bytes| bytes as u64).collect();
    (held.iter().sum(), held.iter().filter(|bytes| **bytes >= 600).count())
}

/// How often a site was met with full buffers, and how often two or more at once.
#[derive(Debug, Default)]
struct Met {
    full: usize,
    several: usize,
}

async fn run(seed: u64, met: &mut Met) {
    let limits = cramped();
    let mut world = match seed % 3 {
        // With and without relays: what one waits for may come from either side.
        0 => World::with_limits(seed, 3, &limits),
        1 => World::of_topology_with(seed, Topology::Flood, &limits),
        _ => {
            let forward = |from, to| Edge { from, to, forward: true };
            let ring = [forward(0, 1), forward(1, 2), forward(2, 0), forward(1, 0)];
            World::of_edges(seed, 3, &ring, &limits)
        }
    };
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let longest = Duration::from_millis(20 + world.random.below(400));
            let (from, to) = (world.sites[from].id(), world.sites[to].id());
            world.network.set_delay(from, to, Duration::from_millis(5), longest);
        }
    }
    world.start_all().await;
    let workload = Workload::start_mixed(&world.sites, 3, 4 + seed % 5, Mix::Everything, &world.random);
    for round in 0..60 {
        sleep(Duration::from_millis(world.random.below(400))).await;
        let (_, full) = waits(&world);
        met.full += usize::from(full > 0);
        met.several += usize::from(full > 1);
        let (one, other) = (round % 3, (round + 1 + round / 3 % 2) % 3);
        match world.random.below(8) {
            // One origin reaches one site and not the other, so its readers wait for it.
            0..=2 => {
                let (from, to) = (world.sites[one].id().clone(), world.sites[other].id().clone());
                world.network.cut_one_way(&from, &to);
            }
            3 | 4 => world.network.heal_all(),
            5 => world.fault().await,
            _ => {}
        }
    }
    let unanswered = workload.unanswered();
    let (acknowledged, _) = workload.stop().await;
    world.heal().await;
    world.demand_convergence(Duration::from_secs(300)).await;
    world.demand_winners(&acknowledged, &unanswered);
    assert_eq!(waits(&world), (0, 0), "seed {seed}: nothing waits any more");
}

#[test]
fn f16_three_sites_whose_writes_wait_for_each_other_with_full_buffers_all_go_on() {
    let mut met = Met::default();
    for seed in seeds(30) {
        virtual_time(run(seed, &mut met));
    }
    println!("{met:?}");
    assert!(met.full > 50 && met.several > 5, "the buffers were full: {met:?}");
}
