//! Which keys a site holds changes while it runs: it ends with exactly those, whatever happens meanwhile.

use std::time::Duration;

use tidewire_core::limits::Limits;
use tidewire_core::random::Random;
use tidewire_core::record::Interest;
use tidewire_tests::{Edge, Mix, Workload, World, enough_seeds, seeds, virtual_time};
use tokio::time::sleep;

/// Interests of some of the keys that writers use.
const INTERESTS: [&[&str]; 7] = [
    &[],
    &["k"],
    &["pair-"],
    &["k1", "k2", "pair-1"],
    &["k0", "pair-"],
    &["k3", "k5", "k7"],
    &["pair-2-a", "k"],
];

fn some(random: &Random) -> &'static [&'static str] {
    INTERESTS[usize::try_from(random.below(INTERESTS.len() as u64)).expect("few")]
}

fn link(from: usize, to: usize, forward: bool) -> Edge {
    Edge { from, to, forward }
}

/// Logs that forget what everybody has, all the time.
fn collecting() -> Limits {
    Limits {
        gc_floor: Duration::from_millis(200),
        gc_ceiling: Duration::from_secs(1),
        snapshot_log_bytes: 4 * 1024,
        ..Limits::tiny()
    }
}

/// Three sites, the first of which holds everything: each with each, or the others around the first.
fn world(seed: u64, limits: &Limits) -> World {
    if seed.is_multiple_of(2) {
        return World::with_limits(seed, 3, limits);
    }
    let edges = [link(0, 1, true), link(1, 0, false), link(0, 2, true), link(2, 0, false)];
    World::of_edges(seed, 3, &edges, limits)
}

async fn write(world: &World, at: usize, name: &str, count: u32) {
    let tree = world.sites[at].tree().expect("it runs");
    for number in 0..count {
        tree.put(format!("{name}{number}"), vec![7; 100]).await.expect("written");
    }
}

fn keys(world: &World, at: usize) -> usize {
    world.sites[at].tree().expect("it runs").scan(b"", None, usize::MAX).len()
}

fn counter(world: &World, at: usize, name: &str) -> u64 {
    world.sites[at].counter(name)
}

fn says(world: &World, at: usize) -> String {
    let status = world.sites[at].cluster().expect("it runs").status();
    let peers = status.peers.iter().filter_map(|peer| peer.reason.clone());
    status.health.reasons.iter().cloned().chain(peers).collect::<Vec<_>>().join("; ")
}

/// Has a site hold the keys with these prefixes, as often as it takes.
async fn hold(world: &mut World, at: usize, prefixes: &[&str]) {
    let mut tries = 0;
    while let Err(error) = world.hold_now(at, prefixes).await {
        tries += 1;
        assert!(tries < 100, "seed {}: {prefixes:?}: {error}: {}", world.seed, world.account());
        sleep(Duration::from_millis(500)).await;
    }
    let held = Interest::new(prefixes.iter().map(ToString::to_string)).expect("prefixes");
    assert_eq!(world.sites[at].tree().expect("it runs").interest(), held, "seed {}", world.seed);
}

/// Changes what a site holds: mostly to the end, sometimes given up half way, or the site dies over it and starts with the
/// keys of before or of after.
async fn change(world: &mut World, at: usize, random: &Random, held: &mut [&'static [&'static str]; 3]) {
    let (before, wanted) = (held[at], some(random));
    if !world.sites[at].is_up() {
        world.hold(at, wanted);
        held[at] = wanted;
        return;
    }
    let patience = Duration::from_micros(random.below(3_000));
    let given_up = random.chance(0.4);
    tokio::select! { biased;
        _tried_again_later = world.hold_now(at, wanted) => {}
        () = sleep(patience), if given_up => {}
    }
    held[at] = wanted;
    if random.chance(0.3) {
        world.sites[at].crash().await;
        if random.chance(0.5) {
            held[at] = before;
        }
        world.hold(at, held[at]);
        world.sites[at].faults.heal();
        world.start(at).await;
    }
}

/// What random runs met.
#[derive(Debug, Default)]
struct Met {
    seeds: u64,
    dropped: u64,
    faults: [u32; 5],
}

/// One random run: writers on all sites, trouble, and all the time other keys to hold for two of them.
async fn run(seed: u64, met: &mut Met) {
    let forgets = seed.is_multiple_of(3);
    let limits = if forgets { collecting() } else { Limits::tiny() };
    let mut world = world(seed, &limits);
    let random = Random::from_seed(seed ^ 0x401D);
    let mut held: [&[&str]; 3] = [&[]; 3];
    world.start_all().await;
    for _ in 0..4 {
        let keys = 3 + seed % 17;
        let workload = Workload::start_mixed(&world.sites, 2, keys, Mix::Everything, &world.random);
        for _ in 0..3 {
            sleep(Duration::from_millis(50 + random.below(400))).await;
            let at = 1 + usize::try_from(random.below(2)).expect("few");
            change(&mut world, at, &random, &mut held).await;
            if random.chance(0.6) {
                world.fault().await;
            }
        }
        workload.stop().await;
    }
    world.heal().await;
    for at in [1, 2] {
        hold(&mut world, at, held[at]).await;
    }
    world.demand_held(Duration::from_secs(240)).await;
    if !forgets {
        world.demand_reference().await;
    }
    for at in [1, 2] {
        met.seeds += counter(&world, at, "tidewire_reseeds_total");
        met.dropped += counter(&world, at, "tidewire_interest_dropped_keys_total");
    }
    for at in 0..3 {
        world.sites[at].crash().await;
        world.start(at).await;
    }
    world.demand_held(Duration::from_secs(240)).await;
    met.faults = std::array::from_fn(|kind| met.faults[kind] + world.faults[kind]);
}

#[test]
fn a_site_ends_with_what_it_is_to_hold_however_often_and_whenever_that_changes_while_it_runs() {
    let mut met = Met::default();
    for seed in seeds(40) {
        virtual_time(run(seed, &mut met));
    }
    if enough_seeds(40) {
        assert!(met.seeds > 20 && met.dropped > 20, "{met:?}");
        assert!(met.faults.iter().all(|count| *count > 0), "{met:?}");
    }
}

#[test]
fn seeds_in_which_a_change_was_given_up_half_way_or_came_while_the_log_failed() {
    for seed in [166, 267] {
        virtual_time(run(seed, &mut Met::default()));
    }
}

#[test]
fn fewer_keys_are_dropped_and_more_are_seeded_without_a_restart() {
    virtual_time(async {
        let mut world = World::with_limits(1, 3, &Limits::tiny());
        world.start_all().await;
        for name in ["us/", "eu/", "x/"] {
            write(&world, 0, name, 60).await;
        }
        world.demand_held(Duration::from_secs(60)).await;
        let boot = world.sites[2].cluster().expect("it runs").boot();
        let tree = world.sites[2].tree().expect("it runs");

        world.hold_now(2, &["eu/"]).await.expect("fewer");
        assert_eq!(keys(&world, 2), 60, "at once");
        assert_eq!(counter(&world, 2, "tidewire_interest_dropped_keys_total"), 120);
        assert_eq!(world.sites[2].cluster().expect("it runs").status().trees[0].interest, ["eu/"]);
        let said = tree.put("us/1", "v").await.expect_err("not held any more").to_string();
        assert!(said.contains("widen interest"), "{said}");
        write(&world, 0, "us/new", 20).await;
        world.sites[1].tree().expect("it runs").delete_range("us/1", "us/2").await.expect("deleted");
        write(&world, 2, "eu/own", 5).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert!(counter(&world, 0, "tidewire_interest_left_out_records_total") >= 20);
        assert_eq!(counter(&world, 2, "tidewire_reseeds_total"), 0);

        world.hold_now(2, &["eu/", "us/"]).await.expect("more");
        tree.put("us/own", "v").await.expect("held from now on");
        assert!(says(&world, 2).contains("reseeding"), "{}", says(&world, 2));
        world.demand_held(Duration::from_secs(60)).await;
        assert_eq!(counter(&world, 2, "tidewire_reseeds_total"), 1, "what was left out comes with a seed");
        assert!(keys(&world, 2) > 130 && !says(&world, 2).contains("reseeding"));
        assert_eq!(world.sites[2].cluster().expect("it runs").boot(), boot, "it was not started anew");
        world.demand_reference().await;
        world.sites[2].crash().await;
        world.start(2).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert_eq!(counter(&world, 2, "tidewire_reseeds_total"), 0, "and it stays");
    });
}

#[test]
fn a_relay_that_holds_too_little_from_now_on_is_refused_by_those_behind_it_and_served_again_later() {
    virtual_time(async {
        let edges = [link(0, 1, true), link(1, 0, false), link(1, 2, true), link(2, 1, false)];
        let mut world = World::of_edges(4, 3, &edges, &Limits::tiny());
        world.start_all().await;
        write(&world, 0, "us/", 20).await;
        write(&world, 0, "eu/", 20).await;
        world.demand_held(Duration::from_secs(60)).await;
        world.hold_now(1, &["eu/"]).await.expect("fewer");
        write(&world, 0, "us/new", 20).await;
        write(&world, 1, "eu/own", 5).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(keys(&world, 2), 40, "nothing that would pass for all");
        let said = says(&world, 1);
        assert!(said.contains("let b hold those keys too") && said.contains("forward = false"), "{said}");
        // Who asks for no more than the relay holds is served.
        world.hold_now(2, &["eu/"]).await.expect("fewer");
        world.demand_held(Duration::from_secs(60)).await;
        assert_eq!(keys(&world, 2), 25);
        world.hold_now(1, &[]).await.expect("all");
        world.hold_now(2, &[]).await.expect("all");
        world.demand_held(Duration::from_secs(300)).await;
        assert_eq!(keys(&world, 2), 65);
        world.demand_reference().await;
    });
}

#[test]
fn a_seed_that_is_on_its_way_in_or_out_when_that_changes_is_asked_for_again() {
    for delay in [0, 2, 5, 10, 20, 40, 80, 160, 320] {
        virtual_time(async {
            let mut world = World::with_limits(delay, 3, &Limits::tiny());
            world.hold(1, &["eu/"]);
            world.start_all().await;
            for name in ["us/", "eu/", "x/"] {
                write(&world, 0, name, 200).await;
            }
            world.demand_held(Duration::from_secs(60)).await;
            // The seed comes from the third one, which gives the new keys up while it sends them.
            let (first, second) = (world.sites[0].id().clone(), world.sites[1].id().clone());
            world.network.cut(&first, &second);
            world.hold_now(1, &["eu/", "us/"]).await.expect("more");
            sleep(Duration::from_millis(delay)).await;
            world.hold_now(2, &["eu/"]).await.expect("fewer");
            sleep(Duration::from_millis(delay)).await;
            // And who takes it wants others by then.
            world.hold_now(1, &["eu/", "x/"]).await.expect("others");
            world.network.heal(&first, &second);
            sleep(Duration::from_millis(delay)).await;
            world.hold_now(1, &["x/", "us/1"]).await.expect("others");
            world.demand_held(Duration::from_secs(120)).await;
            world.demand_reference().await;
            assert_eq!(keys(&world, 1), 311);
        });
    }
}

#[test]
fn f60_a_write_that_races_with_fewer_keys_is_nowhere_lost() {
    virtual_time(async {
        let mut world = World::with_limits(9, 2, &Limits::tiny());
        world.start_all().await;
        let tree = world.sites[1].tree().expect("it runs");
        let (mut taken, mut refused) = (0, 0);
        for turn in 0..30_u32 {
            let writes = (0..20).map(|number| tree.put(format!("us/{turn}-{number}"), "v"));
            let writes = futures::future::join_all(writes);
            let narrowed = world.hold_now(1, &["eu/"]);
            let (writes, narrowed) = if turn % 2 == 0 {
                futures::join!(writes, narrowed)
            } else {
                let (narrowed, writes) = futures::join!(narrowed, async {
                    sleep(Duration::from_micros(u64::from(turn) * 100)).await;
                    writes.await
                });
                (writes, narrowed)
            };
            narrowed.expect("fewer");
            taken += writes.iter().filter(|written| written.is_ok()).count();
            refused += writes.iter().filter(|written| written.is_err()).count();
            assert_eq!(keys(&world, 1), 0, "it shows none of them");
            world.hold_now(1, &[]).await.expect("all");
        }
        assert!(taken > 20 && refused > 20, "{taken} {refused}");
        world.demand_held(Duration::from_secs(120)).await;
        assert_eq!((keys(&world, 0), keys(&world, 1)), (taken, taken), "what was answered is there");
    });
}
