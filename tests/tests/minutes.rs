//! Whole minutes of virtual time: three or four sites in any shape, every kind of write and of fault, and one state at the
//! end. What `scripts/sim` runs over thousands of seeds.

use std::time::Duration;

use tidewire_tests::{Acknowledged, Mix, Topology, Workload, World, seeds, virtual_time};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Times of writing and of quiet, in turn.
const ROUNDS: u32 = 4;

/// A mesh, or one of the shapes that need relays.
fn world_of(seed: u64) -> World {
    match usize::try_from(seed % 10).expect("a digit") {
        shape @ 0..7 => World::of_topology(seed, Topology::ALL[shape]),
        more => World::new(seed, 3 + more % 2),
    }
}

/// Something goes wrong, or ends, about every `every`, for so long.
async fn trouble(world: &mut World, long: Duration, every: Duration) {
    let end = Instant::now() + long;
    while Instant::now() < end {
        tokio::time::sleep(every.mul_f64(0.5 + world.random.below(1_000) as f64 / 1_000.0)).await;
        world.fault().await;
        world.observe();
    }
}

/// What a seed was like.
struct Minute {
    writes: u64,
    faults: [u32; 5],
    seconds: f64,
}

async fn minute(seed: u64) -> Minute {
    let (mut world, began) = (world_of(seed), Instant::now());
    world.start_all().await;
    let mix = if world.random.chance(0.5) { Mix::Plain } else { Mix::Everything };
    let (keys, mut acknowledged, mut count) = (1 + world.random.below(40), Acknowledged::new(), 0);
    for _ in 0..ROUNDS {
        let workload = Workload::start_mixed(&world.sites, 1, keys, mix, &world.random);
        trouble(&mut world, MINUTE / ROUNDS / 5, Duration::from_millis(400)).await;
        let (more, written) = workload.stop().await;
        acknowledged.extend(more);
        count += written;
        trouble(&mut world, MINUTE / ROUNDS * 4 / 5, Duration::from_secs(2)).await;
    }
    world.heal().await;
    world.demand_convergence(Duration::from_secs(120)).await;
    world.demand_acknowledged(&acknowledged).await;
    world.demand_verbatim().await;
    world.demand_causal_order().await;
    let kinds = world.faults.iter().filter(|count| **count > 0).count();
    let all: u32 = world.faults.iter().sum();
    let (sites, elapsed) = (world.sites.len(), began.elapsed());
    assert!(
        sites >= 3 && count >= 300 && all >= 5 && kinds >= 3 && elapsed >= MINUTE,
        "seed {seed} is too tame: {sites} sites, {count} writes, {all} faults of {kinds} kinds, {elapsed:?}"
    );
    Minute { writes: count, faults: world.faults, seconds: elapsed.as_secs_f64() }
}

#[test]
fn a_minute_of_everything_in_any_shape_ends_with_one_state() {
    let (mut writes, mut faults, mut seconds) = (Vec::new(), [0_u64; 5], 0.0);
    for seed in seeds(3) {
        let minute = virtual_time(minute(seed));
        writes.push(minute.writes);
        seconds += minute.seconds;
        for (sum, count) in faults.iter_mut().zip(minute.faults) {
            *sum += u64::from(count);
        }
    }
    writes.sort_unstable();
    let at = |part: usize| writes[(writes.len() - 1) * part / 4];
    println!(
        "{} seeds, {:.2} virtual hours; writes of a seed: {} to {}, half of them from {} to {}; cuts, kills, clock jumps, disk faults, repeats: {faults:?}",
        writes.len(),
        seconds / 3_600.0,
        at(0),
        at(4),
        at(1),
        at(3)
    );
}

/// Here a write of a is on its way into b's log and does not stay there; b writes something itself, and gets a's again.
#[test]
fn what_a_site_writes_before_it_has_again_what_its_log_lost_is_no_breach_of_order() {
    virtual_time(minute(9_229));
}
