//! Readers see a prefix of each origin's history, whole batches, and promises that hold.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::Tree;
use tidewire_core::causal::VersionVector;
use tidewire_core::id::Lsn;
use tidewire_core::tree::{ApplyTarget, LogView};
use tidewire_tests::{Sequences, Watch, World, check_sequences, seeds, virtual_time};

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
            let sequences = Sequences::start(&world.sites, 2, &world.random);
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

/// What a site promised when its log ended where.
type Promises = Arc<Mutex<Vec<(usize, Lsn, VersionVector)>>>;

#[test]
fn nothing_at_or_below_a_frontier_comes_after_it() {
    for seed in seeds(25) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            let promises = Promises::default();
            let noted = promises.clone();
            let note = move |at: usize, tree: &Tree| {
                noted.lock().push((at, tree.end().lsn, tree.progress().frontier));
                Ok(())
            };
            let watch = Watch::start(&world.sites, note);
            let sequences = Sequences::start(&world.sites, 2, &world.random);
            trouble(&mut world).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            sequences.stop().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            let looks = watch.finish(seed).await;
            assert!(looks > 100, "seed {seed}: {looks} looks");
            let promises = promises.lock().clone();
            for (at, history) in world.histories().await.iter().enumerate() {
                for (_, end, frontier) in promises.iter().filter(|(site, ..)| *site == at) {
                    let late = history.entries.iter().rev().take_while(|entry| entry.lsn >= *end);
                    let broken = late
                        .into_iter()
                        .find(|entry| entry.version.hlc <= frontier.get(entry.version.origin));
                    assert!(
                        broken.is_none(),
                        "seed {seed}: site {at} at {end} promised {frontier:?}, then took {broken:?}"
                    );
                }
            }
        });
    }
}
