//! Readers see a prefix of each origin's history, whole batches, and promises that hold.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_core::tree::LogView;
use tidewire_tests::{Sequences, Watch, World, check_sequences, demand_promises_kept, seeds, virtual_time};

/// Writes all the time.
const BUSY: Range<Duration> = Duration::ZERO..Duration::from_millis(8);
/// Writes about as long after the one before as the first promise without records comes, which is 100 ms.
const AS_PROMISES_COME: Range<Duration> = Duration::from_millis(90)..Duration::from_millis(110);

/// Cuts, kills and broken links while `watch` looks; then everything is healed.
async fn trouble(world: &mut World) {
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_micros(world.random.below(150_000))).await;
        world.fault().await;
    }
    world.heal().await;
}

#[test]
fn no_reader_sees_a_later_write_without_the_earlier_ones_or_half_of_a_batch() {
    let (mut counted, mut groups, mut looked_at) = (0, 0, 0);
    for seed in seeds(25) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            let seen = Arc::new(Mutex::new(BTreeSet::new()));
            let noted = seen.clone();
            let watch = Watch::start(&world.sites, move |at, tree| {
                noted.lock().insert((at, tree.end().lsn));
                check_sequences(tree)
            });
            let sequences = Sequences::start(&world.sites, 2, BUSY, &world.random);
            trouble(&mut world).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            counted += sequences.stop().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            watch.finish(seed).await;
            for (at, history) in world.histories().await.iter().enumerate() {
                groups += history.ends.len();
                looked_at += history.ends.iter().filter(|end| seen.lock().contains(&(at, **end))).count();
            }
        });
    }
    println!("{counted} numbers; looked after {looked_at} of {groups} groups");
    assert!(counted > 0 && looked_at * 10 > groups * 9, "looked after {looked_at} of {groups} groups");
}

#[test]
fn nothing_at_or_below_a_frontier_comes_after_it() {
    for seed in seeds(25) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            demand_promises_kept(&mut world, async |world| {
                let sequences = Sequences::start(&world.sites, 2, BUSY, &world.random);
                trouble(world).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
                sequences.stop().await;
            })
            .await;
        });
    }
}

#[test]
fn a_promise_without_records_waits_for_what_is_on_its_way_into_the_log() {
    for seed in seeds(10) {
        virtual_time(async {
            let mut world = World::new(seed, 2);
            world.start_all().await;
            demand_promises_kept(&mut world, async |world| {
                let sequences = Sequences::start(&world.sites, 1, AS_PROMISES_COME, &world.random);
                tokio::time::sleep(Duration::from_secs(12)).await;
                assert!(sequences.stop().await > 150, "seed {seed}: too few writes");
            })
            .await;
            let refused = world.account().contains("Refused");
            assert!(!refused, "seed {seed}: {}", world.account());
        });
    }
}
