//! More keys than before come with a seed: who is waited for is named, and nobody is waited for in vain.

use std::time::Duration;

use tidewire_core::limits::Limits;
use tidewire_tests::{World, virtual_time};
use tokio::time::{Instant, sleep};

async fn write(world: &World, at: usize, name: &str, count: u32) {
    let tree = world.sites[at].tree().expect("it runs");
    for number in 0..count {
        tree.put(format!("{name}{number}"), vec![7; 100]).await.expect("written");
    }
}

fn keys(world: &World, at: usize, prefix: &str) -> usize {
    world.sites[at].tree().expect("it runs").scan(prefix.as_bytes(), None, usize::MAX).len()
}

fn counter(world: &World, at: usize, name: &str) -> u64 {
    world.sites[at].counter(name)
}

fn reseeds(world: &World, at: usize) -> u64 {
    counter(world, at, "tidewire_reseeds_total")
}

/// What a site says of itself: its health, and of its links.
fn says(world: &World, at: usize) -> String {
    let status = world.sites[at].cluster().expect("it runs").status();
    let links = status.peers.into_iter().filter_map(|peer| peer.reason);
    status.health.reasons.into_iter().chain(links).collect::<Vec<_>>().join("\n")
}

async fn until(world: &World, what: &str, patience: Duration, is: impl Fn(&World) -> bool) {
    let end = Instant::now() + patience;
    while !is(world) {
        let said: Vec<_> =
            (0..world.sites.len()).filter(|at| world.sites[*at].is_up()).map(|at| says(world, at)).collect();
        assert!(Instant::now() < end, "{what}: {said:#?}\n{}", world.account());
        sleep(Duration::from_millis(250)).await;
    }
}

/// The second of three sites holds some of the keys, and has got writes of the third that the first never gets: that one
/// died, and now the second is to hold more.
async fn widened_behind_a_dead_origin() -> World {
    let mut world = World::with_limits(3, 3, &Limits::tiny());
    world.hold(1, &["eu/"]);
    world.start_all().await;
    write(&world, 0, "us/", 30).await;
    write(&world, 2, "us/early", 5).await;
    world.demand_held(Duration::from_secs(60)).await;
    world.network.cut(world.sites[2].id(), world.sites[0].id());
    write(&world, 2, "us/late", 5).await;
    write(&world, 2, "eu/late", 5).await;
    until(&world, "one gets the last writes", Duration::from_secs(30), |world| {
        keys(world, 1, "eu/late") == 5
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    world.sites[2].crash().await;
    world.sites[1].stop().await;
    world.hold(1, &["eu/", "us/"]);
    world.start(1).await;
    world
}

#[test]
fn a_widening_names_the_origin_that_it_waits_for_and_goes_on_when_that_is_sealed_out() {
    virtual_time(async {
        let world = widened_behind_a_dead_origin().await;
        let gone = world.sites[2].id().to_string();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(reseeds(&world, 1), 0);
        let said = says(&world, 1);
        let named = format!("{} has yet to get writes of {gone}", world.sites[0].id());
        assert!(said.contains(&named) && said.contains(&format!("peers seal {gone}")), "{said}");
        assert!(said.contains("; for 1"), "since when: {said}");
        world.sites[1].cluster().expect("it runs").seal_peer(&gone).await.expect("it is away");
        until(&world, "the seed comes", Duration::from_secs(90), |world| reseeds(world, 1) == 1).await;
        assert_eq!((keys(&world, 1, "us/"), keys(&world, 1, "eu/late")), (35, 5), "all that there is");
        until(&world, "nothing is wrong", Duration::from_secs(60), |world| {
            !says(world, 1).contains("reseeding")
        })
        .await;
    });
}

#[test]
fn an_origin_that_returns_brings_what_a_widening_went_without_while_it_was_sealed_out() {
    virtual_time(async {
        let mut world = widened_behind_a_dead_origin().await;
        let gone = world.sites[2].id().to_string();
        world.sites[1].cluster().expect("it runs").seal_peer(&gone).await.expect("it is away");
        until(&world, "the seed comes", Duration::from_secs(90), |world| reseeds(world, 1) == 1).await;
        // That what it wrote is lacking is remembered.
        world.sites[1].crash().await;
        world.start(1).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(keys(&world, 1, "us/late"), 0);
        world.sites[1].cluster().expect("it runs").resume_peer(&gone).await.expect("let return");
        world.heal().await;
        world.demand_held(Duration::from_secs(180)).await;
        assert_eq!((keys(&world, 1, "us/late"), reseeds(&world, 1)), (5, 1));
        world.demand_reference().await;
    });
}

#[test]
fn a_site_that_no_peer_can_seed_says_why_and_is_seeded_when_one_comes_that_can() {
    virtual_time(async {
        let mut world = World::with_limits(5, 3, &Limits::tiny());
        world.hold(0, &["eu/"]);
        world.hold(1, &["eu/de/"]);
        world.sites[2].stop().await;
        world.start(0).await;
        world.start(1).await;
        let third = world.sites[2].id().clone();
        write(&world, 0, "eu/", 20).await;
        world.sites[1].stop().await;
        for at in [0, 1] {
            world.sites[at].forget(&third);
        }
        world.hold(1, &[]);
        world.start(1).await;
        sleep(Duration::from_secs(20)).await;
        let said = says(&world, 1);
        let why = format!("{} holds only the keys under \"eu/\"", world.sites[0].id());
        assert!(said.contains(&why) && said.contains("no peer is left"), "{said}");
        assert_eq!(reseeds(&world, 1), 0);
        world.sites[0].stop().await;
        world.hold(0, &[]);
        world.start(0).await;
        sleep(Duration::from_secs(20)).await;
        // Each waits for the other: neither has what it left out.
        let said = says(&world, 1);
        assert!(said.contains("waits for a snapshot itself"), "{said}");
    });
}

#[test]
fn a_seed_that_is_wanted_of_a_site_that_holds_too_little_comes_from_another() {
    virtual_time(async {
        let mut world = World::with_limits(6, 3, &Limits::tiny());
        world.hold(1, &["eu/"]);
        world.start_all().await;
        write(&world, 0, "us/", 30).await;
        world.demand_held(Duration::from_secs(60)).await;
        let narrow = world.sites[1].id().to_string();
        let asked = world.sites[2].cluster().expect("it runs").reseed(&narrow, None).await;
        assert_eq!(asked.expect("ordered"), ["t"]);
        until(&world, "the seed comes", Duration::from_secs(60), |world| reseeds(world, 2) == 1).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert!(!says(&world, 2).contains("reseeding"));
    });
}

#[test]
fn a_site_that_holds_too_little_to_seed_another_says_on_both_ends_what_to_do() {
    virtual_time(async {
        let limits = Limits {
            gc_floor: Duration::from_millis(200),
            gc_ceiling: Duration::from_secs(1),
            snapshot_log_bytes: 4 * 1024,
            wal_retention: Duration::from_secs(2),
            ..Limits::tiny()
        };
        let mut world = World::with_limits(1, 3, &limits);
        world.hold(1, &["eu/"]);
        world.start(0).await;
        world.start(1).await;
        write(&world, 0, "us/", 150).await;
        write(&world, 1, "eu/", 150).await;
        sleep(Duration::from_secs(10)).await;
        world.network.cut(world.sites[0].id(), world.sites[2].id());
        world.network.cut(world.sites[2].id(), world.sites[0].id());
        world.start(2).await;
        sleep(Duration::from_secs(20)).await;
        for at in [1, 2] {
            let said = says(&world, at);
            assert!(said.contains("peers reseed OTHER") && !said.contains("forward = false"), "{at}: {said}");
        }
        assert_eq!(keys(&world, 2, ""), 0, "nothing that would pass for all");
        world.heal().await;
        world.demand_held(Duration::from_secs(180)).await;
        assert_eq!(keys(&world, 2, ""), 300);
    });
}

#[test]
fn what_is_left_out_and_what_is_dropped_is_counted_on_both_ends() {
    virtual_time(async {
        let mut world = World::with_limits(8, 2, &Limits::tiny());
        world.hold(1, &["eu/"]);
        world.start_all().await;
        write(&world, 0, "us/", 30).await;
        write(&world, 0, "eu/", 20).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert_eq!(counter(&world, 0, "tidewire_interest_left_out_records_total"), 30);
        assert_eq!(counter(&world, 1, "tidewire_interest_covered_records_total"), 30);
        assert_eq!(counter(&world, 1, "tidewire_applied_records_total"), 20, "what covers is no record");
        world.sites[1].tree().expect("it runs").snapshot().await.expect("written");
        write(&world, 0, "eu/2", 3).await;
        world.demand_held(Duration::from_secs(60)).await;
        world.sites[1].crash().await;
        world.hold(1, &["eu/1"]);
        world.start(1).await;
        assert_eq!(keys(&world, 1, ""), 11);
        assert_eq!(counter(&world, 1, "tidewire_interest_dropped_keys_total"), 9, "of the snapshot");
        assert!(counter(&world, 1, "tidewire_interest_passed_over_records_total") >= 3, "of the log");
    });
}
