//! Relays: whatever the links look like, each write reaches each site once, in order, and then there is silence.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use tidewire_core::tree::{ApplyTarget, LogView};
use tidewire_tests::{
    Edge, Plan, Sequences, Topology, Watch, World, check_sequences, demand_promises_kept, seeds, virtual_time,
};

const BUSY: Range<Duration> = Duration::ZERO..Duration::from_millis(8);
const AT_EASE: Range<Duration> = Duration::from_millis(90)..Duration::from_millis(110);

/// The seeds of a topology: the same number of each, all different.
fn worlds(each: u64) -> impl Iterator<Item = (Topology, u64)> {
    seeds(each * Topology::ALL.len() as u64).map(|seed| {
        let at = usize::try_from(seed).expect("seeds are small") % Topology::ALL.len();
        (Topology::ALL[at], seed)
    })
}

/// What holds of every topology once everything is healed.
async fn demand_all(world: &World) {
    world.demand_verbatim().await;
    world.demand_causal_order().await;
    world.demand_stillness().await;
    let refused = world.counters("tidewire_own_origin_refused_total");
    assert_eq!(refused.iter().sum::<u64>(), 0, "seed {}: records were sent to their origin", world.seed);
}

#[test]
fn f14_each_dot_reaches_each_log_once_whatever_the_links_look_like() {
    let (mut writes, mut duplicates, mut faults) = (0, 0, [0; 5]);
    for (topology, seed) in worlds(25) {
        let plan = Plan {
            sites: topology.sites(),
            writers: 2,
            keys: 2 + seed % 17,
            duration: Duration::from_secs(2),
            fault_every: Duration::from_millis(200),
        };
        virtual_time(async {
            let mut world = World::of_topology(seed, topology);
            writes += world.run(&plan).await;
            demand_all(&world).await;
            duplicates += world.counters("tidewire_duplicate_records_total").iter().sum::<u64>();
            for (sum, count) in faults.iter_mut().zip(world.faults) {
                *sum += count;
            }
        });
    }
    println!(
        "{writes} writes, {duplicates} came again; cuts, kills, clock jumps, disk faults, repeats: {faults:?}"
    );
    assert!(writes > 0 && faults.iter().all(|count| *count > 0), "{writes} writes, {faults:?}");
    assert!(duplicates > 0, "nothing came by two ways, so nothing was shown");
}

#[test]
fn readers_of_every_site_see_prefixes_and_whole_batches_and_promises_that_hold() {
    let mut counted = 0;
    for (topology, seed) in worlds(6) {
        virtual_time(async {
            let mut world = World::of_topology(seed, topology);
            world.start_all().await;
            let watch = Watch::start(&world.sites, |_, tree| check_sequences(tree));
            demand_promises_kept(&mut world, async |world| {
                let pace = if seed % 2 == 0 { BUSY } else { AT_EASE };
                let sequences = Sequences::start(&world.sites, 2, pace, &world.random);
                for _ in 0..8 {
                    tokio::time::sleep(Duration::from_micros(world.random.below(200_000))).await;
                    world.fault().await;
                }
                world.heal().await;
                tokio::time::sleep(Duration::from_millis(300)).await;
                counted += sequences.stop().await;
            })
            .await;
            watch.finish(seed).await;
            demand_all(&world).await;
        });
    }
    assert!(counted > 0, "nothing was written");
}

#[test]
fn the_same_seed_gives_the_same_trace_with_relays() {
    let plan = Plan {
        sites: 4,
        writers: 1,
        keys: 8,
        duration: Duration::from_secs(1),
        fault_every: Duration::from_millis(300),
    };
    for (topology, seed) in worlds(1) {
        let run = || {
            virtual_time(async {
                let mut world = World::of_topology(seed, topology);
                let writes = world.run(&plan).await;
                (writes, world.trace)
            })
        };
        assert_eq!(run(), run(), "seed {seed}, {topology:?}");
    }
}

#[test]
fn f14_in_a_ring_every_foreign_dot_is_applied_exactly_once() {
    for seed in seeds(4) {
        virtual_time(async {
            let mut world = World::of_topology(seed, Topology::Ring);
            world.start_all().await;
            let sequences = Sequences::start(&world.sites, 2, BUSY, &world.random);
            tokio::time::sleep(Duration::from_secs(2)).await;
            sequences.stop().await;
            world.demand_convergence(Duration::from_secs(60)).await;
            let histories = world.histories().await;
            for (site, history) in world.sites.iter().zip(&histories) {
                let foreign = history.entries.len() - history.of_origin(site.id().tag()).count();
                let applied: u64 = site.applied().values().sum();
                assert_eq!(applied, foreign as u64, "seed {seed}: {}", site.id());
                assert_eq!(site.counter("tidewire_duplicate_records_total"), 0, "there is only one way");
            }
            demand_all(&world).await;
        });
    }
}

#[test]
fn f15_a_cut_between_two_sites_holds_nothing_back_while_a_third_forwards() {
    virtual_time(async {
        let mut world = World::of_topology(3, Topology::Flood);
        world.start_all().await;
        let [a, b, c] = [0, 1, 2].map(|at: usize| world.sites[at].tree().expect("it runs"));
        world.network.cut(world.sites[0].id(), world.sites[2].id());
        a.put("x", "cause").await.expect("a takes writes");
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(b.get("x").is_some(), "b has it from a");
        b.put("y", "effect").await.expect("b takes writes");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(c.get("x").is_some() && c.get("y").is_some(), "c has both through b: {}", world.account());
        c.put("z", "answer").await.expect("c takes writes");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(a.get("z").is_some(), "and a has the answer");
        world.heal().await;
        world.demand_convergence(Duration::from_secs(60)).await;
        demand_all(&world).await;
    });
}

/// How far an origin is complete at a site.
fn reached(world: &World, at: usize, origin: usize) -> u64 {
    let frontier = world.sites[at].tree().expect("it runs").progress().frontier;
    frontier.get(world.sites[origin].id().tag()).millis()
}

#[test]
fn a_promise_without_records_goes_through_a_chain() {
    virtual_time(async {
        let mut world = World::of_topology(5, Topology::Chain);
        world.start_all().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let first = reached(&world, 3, 0);
        assert!(first > 0, "nobody has ever written anything, and still: {}", world.account());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let second = reached(&world, 3, 0);
        assert!(second >= first + 6_000, "{first} and then {second}");
    });
}

#[test]
fn a_promise_without_records_goes_through_a_relay_that_is_busy_all_the_time() {
    virtual_time(async {
        let mut world = World::of_topology(6, Topology::Chain);
        world.start_all().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let sequences =
            Sequences::start(&world.sites[1..2], 3, Duration::ZERO..Duration::from_millis(2), &world.random);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = reached(&world, 2, 0);
        tokio::time::sleep(Duration::from_secs(6)).await;
        let after = reached(&world, 2, 0);
        sequences.stop().await;
        assert!(after >= before + 3_000, "{before} and then {after}");
        world.demand_convergence(Duration::from_secs(60)).await;
    });
}

#[test]
fn a_site_that_joins_behind_a_relay_gets_everything_and_is_heard_by_everybody() {
    virtual_time(async {
        let mut world = World::of_topology(8, Topology::Star);
        for at in 0..3 {
            world.start(at).await;
        }
        let a = world.sites[1].tree().expect("it runs");
        for number in 0..40 {
            a.put(format!("k{number}"), "before").await.expect("takes writes");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.start(3).await;
        let d = world.sites[3].tree().expect("it runs");
        d.put("new", "from d").await.expect("takes writes");
        world.demand_convergence(Duration::from_secs(60)).await;
        assert!(d.get("k39").is_some() && a.get("new").is_some());
        demand_all(&world).await;
    });
}

#[test]
fn two_relays_that_bring_the_same_do_not_lose_it_when_one_is_removed() {
    virtual_time(async {
        let mut world = World::of_topology(9, Topology::Diamond);
        world.start_all().await;
        let a = world.sites[0].tree().expect("it runs");
        let mut removed = false;
        for number in 0..200 {
            a.put(format!("k{number}"), "v").await.expect("takes writes");
            if number == 100 {
                let last = world.sites[3].cluster().expect("it runs");
                last.remove_peer("b").await.expect("b is a peer");
                removed = true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let d = world.sites[3].tree().expect("it runs");
        let here: BTreeSet<u32> = (0..200).filter(|number| d.get(format!("k{number}")).is_some()).collect();
        assert!(removed && here.len() == 200, "{} of 200 are there", here.len());
        assert_eq!(world.sites[3].counter("tidewire_gap_refused_total"), 0);
    });
}

#[test]
fn without_forwarding_a_chain_does_not_carry_a_third_clusters_writes() {
    virtual_time(async {
        let mut world = World::of_topology(2, Topology::Chain);
        let link = |from, to| Edge { from, to, forward: false };
        world.link(&[link(0, 1), link(1, 0), link(1, 2), link(2, 1)]);
        world.start_all().await;
        let [a, b, c] = [0, 1, 2].map(|at: usize| world.sites[at].tree().expect("it runs"));
        a.put("x", "cause").await.expect("a takes writes");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(b.get("x").is_some() && c.get("x").is_none());
        assert!(b.end().lsn > c.end().lsn);
    });
}
