//! A site that the logs of the others cannot serve is seeded from a snapshot, and ends where everybody else is.

use std::time::Duration;

use tidewire_core::limits::Limits;
use tidewire_core::tree::LogView;
use tidewire_tests::{Mix, Topology, Workload, World, enough_seeds, seeds, virtual_time};
use tokio::time::{Instant, sleep};

/// Logs that forget within seconds, by themselves, whoever needs what they hold.
fn forgetful() -> Limits {
    Limits {
        gc_floor: Duration::from_millis(200),
        gc_ceiling: Duration::from_secs(2),
        wal_retention: Duration::from_secs(2),
        snapshot_log_bytes: 4 * 1024,
        ..Limits::tiny()
    }
}

async fn write(world: &World, at: usize, from: u32, count: u32) {
    let tree = world.sites[at].tree().expect("it runs");
    for key in from..from + count {
        tree.put(format!("key {key:04}"), vec![7; 100]).await.expect("written");
    }
}

fn value(world: &World, at: usize, key: &str) -> Option<Vec<u8>> {
    world.sites[at].tree().expect("it runs").get(key).map(|value| value.value.to_vec())
}

fn reseeds(world: &World, at: usize) -> u64 {
    world.sites[at].counter("tidewire_reseeds_total")
}

#[test]
fn a_new_site_whose_peers_have_trimmed_their_logs_gets_everything() {
    virtual_time(async {
        let mut world = World::with_limits(1, 3, &forgetful());
        world.start(0).await;
        world.start(1).await;
        write(&world, 0, 0, 300).await;
        write(&world, 1, 300, 100).await;
        sleep(Duration::from_secs(10)).await;
        assert!(world.sites[0].tree().expect("runs").first().lsn.get() > 100, "it forgot by itself");
        world.start(2).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        assert_eq!(value(&world, 2, "key 0000"), Some(vec![7; 100]));
        assert!(reseeds(&world, 2) >= 1);
        write(&world, 2, 400, 100).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        // What it took over survives, though its log never held it.
        world.sites[2].crash().await;
        world.start(2).await;
        let taken = reseeds(&world, 2);
        world.demand_convergence(Duration::from_secs(60)).await;
        assert_eq!((value(&world, 2, "key 0000"), taken), (Some(vec![7; 100]), 0));
    });
}

#[test]
fn f44_f45_what_changed_meanwhile_is_newer_and_what_was_deleted_meanwhile_stays_deleted() {
    virtual_time(async {
        let mut world = World::with_limits(2, 2, &forgetful());
        world.start_all().await;
        write(&world, 0, 0, 200).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        let old = world.sites[1].backup();
        world.sites[1].crash().await;
        world.sites[1].restore(old);
        let a = world.sites[0].tree().expect("runs");
        a.delete("key 0001").await.expect("deleted");
        a.delete_range("key 0100", "key 0150").await.expect("deleted");
        write(&world, 0, 200, 300).await;
        sleep(Duration::from_secs(10)).await;
        let first = world.sites[0].tree().expect("runs").first().lsn.get();
        assert!(first > 210, "{first}: what it lacks is gone");
        world.network.cut(world.sites[0].id(), world.sites[1].id());
        world.start(1).await;
        let b = world.sites[1].tree().expect("runs");
        b.put("key 0002", "newer than the seed").await.expect("written");
        b.put("key 0120", "behind the range").await.expect("written");
        assert!(value(&world, 1, "key 0001").is_some(), "it does not know better yet");
        world.heal().await;
        world.demand_convergence(Duration::from_secs(60)).await;
        assert!(reseeds(&world, 1) >= 1);
        for at in 0..2 {
            assert_eq!(value(&world, at, "key 0001"), None);
            assert_eq!(value(&world, at, "key 0101"), None);
            assert_eq!(value(&world, at, "key 0002"), Some(b"newer than the seed".to_vec()));
            assert_eq!(value(&world, at, "key 0120"), Some(b"behind the range".to_vec()));
        }
    });
}

#[test]
fn f46_f48_a_seed_that_is_cut_short_is_asked_for_again_and_said_so_meanwhile() {
    virtual_time(async {
        let (mut interrupted, mut whole) = (0, 0);
        for seed in 0..40 {
            let mut world = World::with_limits(seed, 2, &forgetful());
            world.start(0).await;
            write(&world, 0, 0, 400).await;
            sleep(Duration::from_secs(10)).await;
            world.network.set_delay(
                world.sites[0].id(),
                world.sites[1].id(),
                Duration::ZERO,
                Duration::from_millis(20),
            );
            world.start(1).await;
            // Killed at some moment after the seed has begun, the one or the other.
            let begun = Instant::now();
            while world.sites[1].tree().expect("runs").seed_wish().is_none()
                && begun.elapsed() < Duration::from_secs(5)
            {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_micros(world.random.below(150_000))).await;
            let victim = usize::try_from(seed % 2).expect("small");
            let b = world.sites[1].tree().expect("runs");
            let wanted = b.seed_wish().is_some();
            if wanted {
                let said = world.sites[1].cluster().expect("runs").readiness().expect_err("it is not whole");
                assert!(said.iter().any(|reason| reason.contains("reseeding")), "{said:?}");
            }
            drop(b);
            world.sites[victim].crash().await;
            if wanted && victim == 1 {
                world.start(1).await;
                let b = world.sites[1].tree().expect("runs");
                if b.get("key 0000").is_some() {
                    whole += 1;
                    assert_eq!(b.scan(b"", None, usize::MAX).len(), 400, "seed {seed}: all or nothing");
                } else {
                    interrupted += 1;
                    assert!(b.seed_wish().is_some(), "seed {seed}: it still wants it");
                    assert_eq!(b.scan(b"", None, usize::MAX).len(), 0, "seed {seed}: all or nothing");
                }
            }
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            assert_eq!(value(&world, 1, "key 0399"), Some(vec![7; 100]), "seed {seed}");
            assert!(world.sites[1].tree().expect("runs").seed_wish().is_none());
            world.sites[1].cluster().expect("runs").readiness().expect("it is whole");
        }
        println!("{interrupted} interrupted, {whole} whole when the crash came");
        assert!(interrupted > 0, "{interrupted} {whole}");
    });
}

#[test]
fn two_sites_that_wait_for_each_others_seed_get_both() {
    virtual_time(async {
        let mut world = World::new(11, 2);
        world.start_all().await;
        write(&world, 0, 0, 60).await;
        write(&world, 1, 60, 60).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        for (at, giver) in [(0, "b"), (1, "a")] {
            world.sites[at].cluster().expect("runs").reseed(giver, None).await.expect("asked");
        }
        let wished = Instant::now();
        let waits = |at: usize| world.sites[at].tree().expect("runs").seed_wish().is_some();
        assert!(waits(0) && waits(1), "both at once");
        while [0, 1].iter().any(|at| waits(*at) || reseeds(&world, *at) == 0) {
            sleep(Duration::from_millis(20)).await;
            assert!(wished.elapsed() < Duration::from_secs(120), "{}", world.account());
        }
        write(&world, 0, 120, 10).await;
        world.demand_convergence(Duration::from_secs(60)).await;
    });
}

#[test]
fn f47_writes_while_a_snapshot_is_sent_are_not_lost_between_it_and_the_log() {
    virtual_time(async {
        for seed in 0..20 {
            let mut world = World::with_limits(seed, 2, &forgetful());
            world.start(0).await;
            write(&world, 0, 0, 300).await;
            sleep(Duration::from_secs(10)).await;
            world.network.set_delay(
                world.sites[0].id(),
                world.sites[1].id(),
                Duration::ZERO,
                Duration::from_millis(40),
            );
            world.start(1).await;
            // Writes all the time, and a log that forgets all the time.
            let end = Instant::now() + Duration::from_secs(6);
            let mut key = 300;
            while Instant::now() < end {
                write(&world, 0, key, 5).await;
                key += 5;
                sleep(Duration::from_millis(10)).await;
            }
            world.demand_convergence(Duration::from_secs(60)).await;
            assert!(reseeds(&world, 1) >= 1);
            assert_eq!(world.sites[1].tree().expect("runs").scan(b"", None, usize::MAX).len(), key as usize);
            assert_eq!(world.sites[1].counter("tidewire_gap_refused_total"), 0);
        }
    });
}

#[test]
fn f55_a_site_that_went_back_is_seeded_by_order_and_loses_nothing_that_it_was_asked_to_keep() {
    virtual_time(async {
        for seed in seeds(20) {
            let mut world =
                World::with_limits(seed, 3, &Limits { wal_retention: Duration::ZERO, ..forgetful() });
            world.start_all().await;
            write(&world, 0, 0, 100).await;
            world.demand_convergence(Duration::from_secs(60)).await;
            world.sites[0].stop().await;
            let old = world.sites[0].backup();
            world.start(0).await;
            write(&world, 0, 100, 100).await;
            world.demand_convergence(Duration::from_secs(60)).await;
            world.sites[0].crash().await;
            world.sites[0].restore(old);
            world.start(0).await;
            let a = world.sites[0].tree().expect("runs");
            a.put("on the copy", "kept").await.expect("written");
            a.put("key 0003", "on the copy").await.expect("written");
            a.delete("key 0004").await.expect("deleted");
            sleep(Duration::from_secs(5)).await;
            assert_eq!(value(&world, 1, "on the copy"), None, "nobody takes it");
            // Clients write all the time, other keys.
            let workload = Workload::start(&world.sites, 3, 10, &world.random);
            sleep(Duration::from_millis(50)).await;
            let cluster = world.sites[0].cluster().expect("runs").clone();
            assert_eq!(cluster.reseed("b", None).await.expect("asked"), ["t"]);
            if seed % 3 == 0 {
                sleep(Duration::from_micros(world.random.below(300_000))).await;
                drop((a, cluster));
                world.sites[0].crash().await;
            }
            sleep(Duration::from_millis(300)).await;
            workload.stop().await;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(120)).await;
            for at in 0..3 {
                assert_eq!(
                    value(&world, at, "key 0199"),
                    Some(vec![7; 100]),
                    "seed {seed}: it had lost this"
                );
                assert_eq!(value(&world, at, "on the copy"), Some(b"kept".to_vec()), "seed {seed}");
                assert_eq!(value(&world, at, "key 0003"), Some(b"on the copy".to_vec()), "seed {seed}");
                assert_eq!(value(&world, at, "key 0004"), None, "seed {seed}");
            }
            write(&world, 0, 200, 50).await;
            world.demand_convergence(Duration::from_secs(120)).await;
            assert_eq!(value(&world, 2, "key 0249"), Some(vec![7; 100]));
        }
    });
}

#[test]
fn f44_a_write_after_a_seed_is_newer_than_all_that_it_brought_and_depends_on_it() {
    virtual_time(async {
        let mut world = World::with_limits(3, 3, &forgetful());
        // The giver's clock is ahead, the taker's behind.
        world.sites[0].clock.set_offset(3_000);
        world.sites[1].clock.set_offset(-3_000);
        world.start(0).await;
        write(&world, 0, 0, 200).await;
        sleep(Duration::from_secs(8)).await;
        let (a, b, c) = (0, 1, 2);
        write(&world, a, 0, 10).await;
        world.network.cut(world.sites[a].id(), world.sites[c].id());
        world.start(b).await;
        world.start(c).await;
        let seeded = Instant::now();
        while world.sites[b].tree().expect("runs").get("key 0150").is_none() {
            assert!(seeded.elapsed() < Duration::from_secs(20), "{}", world.account());
            sleep(Duration::from_millis(1)).await;
        }
        let tree = world.sites[b].tree().expect("runs");
        tree.put("key 0005", "after the seed").await.expect("written");
        assert_eq!(value(&world, b, "key 0005"), Some(b"after the seed".to_vec()), "it is the newest");
        sleep(Duration::from_secs(3)).await;
        assert_eq!(
            value(&world, c, "key 0005"),
            None,
            "it depends on what has not come: {}",
            world.account()
        );
        world.network.heal_all();
        world.demand_convergence(Duration::from_secs(60)).await;
        assert_eq!(value(&world, c, "key 0005"), Some(b"after the seed".to_vec()));
    });
}

/// What one run of the random test met.
#[derive(Debug, Default)]
struct Met {
    writes: u64,
    reseeds: u64,
    joined: u32,
    killed_within: u32,
    cut_within: u32,
}

fn pick(world: &World, count: usize) -> usize {
    usize::try_from(world.random.below(count as u64)).expect("few")
}

async fn restart(world: &mut World, at: usize) {
    world.sites[at].faults.heal();
    world.start(at).await;
}

/// Lets some time pass; whenever a site is being seeded meanwhile, it may be killed, or the others may, or it is cut off.
async fn pass(world: &mut World, met: &mut Met, millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    while Instant::now() < end {
        sleep(Duration::from_millis(2)).await;
        let coming =
            world.sites.iter().position(|site| site.tree().is_some_and(|tree| tree.is_being_seeded()));
        let Some(at) = coming else { continue };
        let other = (at + 1 + pick(world, world.sites.len() - 1)) % world.sites.len();
        let chance = world.random.below(100);
        match chance {
            0..6 => {
                met.killed_within += 1;
                world.sites[if chance < 4 { at } else { other }].crash().await;
            }
            6..8 => {
                met.cut_within += 1;
                world.isolate(at);
            }
            _ => {}
        }
    }
}

/// Faults of every kind, with long cuts, and kills within seeds.
async fn trouble(world: &mut World, met: &mut Met, late: Option<usize>) {
    for round in 0..14_u32 {
        let millis = 300 + world.random.below(600);
        pass(world, met, millis).await;
        let at = pick(world, world.sites.len());
        let there = late != Some(at) || round > 7;
        match world.random.below(9) {
            8 => {
                // One link is away, the others are not: a relay is seeded while its readers go on.
                let other = (at + 1 + pick(world, world.sites.len() - 1)) % world.sites.len();
                world.network.cut(world.sites[at].id(), world.sites[other].id());
            }
            0 | 1 if there && world.sites[at].is_up() => world.sites[at].crash().await,
            0..=2 if there && !world.sites[at].is_up() => restart(world, at).await,
            3 => world.isolate(at),
            4 | 5 => world.network.heal_all(),
            6 if late.is_none() => world.fault().await,
            7 => world.disturb(at, (at + 1) % world.sites.len()),
            _ => {}
        }
    }
    if let Some(late) = late.filter(|late| !world.sites[*late].is_up()) {
        met.joined += 1;
        restart(world, late).await;
    }
}

fn world_of(seed: u64) -> World {
    let limits = forgetful();
    match seed % 4 {
        0 => World::with_limits(seed, 2, &limits),
        1 => World::with_limits(seed, 3, &limits),
        2 => World::of_topology_with(seed, Topology::Star, &limits),
        _ => {
            World::of_topology_with(seed, Topology::ALL[usize::try_from(seed / 4 % 7).expect("few")], &limits)
        }
    }
}

#[test]
fn sites_that_fall_off_each_others_logs_agree_in_the_end() {
    const SEEDS: u64 = 40;
    let mut met = Met::default();
    for seed in seeds(SEEDS) {
        virtual_time(async {
            let mut world = world_of(seed);
            let sites = world.sites.len();
            for (from, to) in (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to))) {
                let (from, to) = (world.sites[from].id(), world.sites[to].id());
                world.network.set_delay(from, to, Duration::ZERO, Duration::from_millis(seed % 12));
            }
            let late = world.random.chance(0.5).then_some(sites - 1);
            for at in (0..sites).filter(|at| late != Some(*at)) {
                world.start(at).await;
            }
            write(&world, 0, 0, u32::try_from(world.random.below(300)).expect("few")).await;
            let mix = if seed % 2 == 0 { Mix::Everything } else { Mix::Plain };
            let workload = Workload::start_mixed(&world.sites, 1, 6 + seed % 11, mix, &world.random);
            trouble(&mut world, &mut met, late).await;
            let unanswered = workload.unanswered();
            let (acknowledged, writes) = workload.stop().await;
            met.writes += writes;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(300)).await;
            world.demand_winners(&acknowledged, &unanswered);
            met.reseeds += (0..sites).map(|at| reseeds(&world, at)).sum::<u64>();
        });
    }
    println!("{met:?}");
    let Met { writes, reseeds, joined, killed_within, cut_within } = met;
    let all = writes > 0 && reseeds > 0 && joined > 0 && killed_within > 0 && cut_within > 0;
    assert!(
        all || !enough_seeds(SEEDS),
        "{writes} writes, {reseeds} seeds, {killed_within} and {cut_within} broken off"
    );
}
