//! A site holds the keys that it has an interest in, and no others: exactly what all writes together make of them.

use std::path::PathBuf;
use std::time::Duration;

use tidewire::Operation;
use tidewire_core::disk::Disk;
use tidewire_core::limits::Limits;
use tidewire_core::random::Random;
use tidewire_core::tree::LogView;
use tidewire_tests::{Edge, Mix, Plan, Workload, World, seeds, virtual_time};
use tokio::time::sleep;

/// Interests of some of the keys that writers use.
const INTERESTS: [&[&str]; 7] = [
    &["k"],
    &["pair-"],
    &["k1", "k2", "pair-1"],
    &["k0", "pair-"],
    &["k3", "k5", "k7"],
    &["pair-2-a", "k"],
    &["z"],
];

fn some(random: &Random) -> &'static [&'static str] {
    INTERESTS[usize::try_from(random.below(INTERESTS.len() as u64)).expect("few")]
}

fn link(from: usize, to: usize, forward: bool) -> Edge {
    Edge { from, to, forward }
}

/// Four sites, the first of which holds everything. By lot: each with each; all around the first, which forwards; a
/// diamond with two relays that hold all; or relays one behind the other, each of which holds less.
fn world(seed: u64, limits: &Limits) -> World {
    let all = |forward: bool| {
        (0..4).flat_map(move |a| (0..4).map(move |b| link(a, b, forward))).filter(|e| e.from != e.to)
    };
    let edges: Vec<Edge> = match seed % 4 {
        0 => all(false).collect(),
        1 => (1..4).flat_map(|leaf| [link(0, leaf, true), link(leaf, 0, false)]).collect(),
        2 => [(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (2, 3)]
            .map(|(from, to)| link(from, to, true))
            .into_iter()
            .chain([link(3, 1, false), link(3, 2, false)])
            .collect(),
        _ => vec![
            link(0, 1, true),
            link(1, 0, true),
            link(1, 2, true),
            link(2, 1, false),
            link(2, 3, true),
            link(3, 2, false),
            link(3, 1, false),
        ],
    };
    let mut world = World::of_edges(seed, 4, &edges, limits);
    let random = Random::from_seed(seed ^ 0x1A7E);
    match seed % 4 {
        2 => world.hold(3, some(&random)),
        3 => {
            world.hold(2, &["k", "pair-1"]);
            world.hold(
                3,
                [&["k1", "k4"][..], &["pair-1", "k9"], &["k"]]
                    [usize::try_from(random.below(3)).expect("few")],
            );
        }
        _ => (1..4).for_each(|at| world.hold(at, some(&random))),
    }
    world
}

fn plan(seed: u64) -> Plan {
    Plan {
        sites: 4,
        writers: 2,
        keys: 3 + seed % 17,
        duration: Duration::from_secs(3),
        fault_every: Duration::from_millis(if seed.is_multiple_of(5) { 2_000 } else { 250 }),
    }
}

#[test]
fn every_site_ends_with_exactly_the_reference_of_the_keys_that_it_holds() {
    let mut faults = [0; 5];
    for seed in seeds(40) {
        virtual_time(async {
            let mut world = world(seed, &Limits::tiny());
            world.run_held(&plan(seed)).await;
            world.demand_held(Duration::from_secs(120)).await;
            world.demand_reference().await;
            // What was left out stays left out, whatever the logs are read for.
            for at in 0..4 {
                world.sites[at].crash().await;
                world.start(at).await;
            }
            world.demand_held(Duration::from_secs(60)).await;
            world.demand_reference().await;
            let refused = world.counters("tidewire_gap_refused_total").iter().sum::<u64>();
            faults = std::array::from_fn(|kind| faults[kind] + world.faults[kind]);
            assert!(refused < 50, "seed {seed}: {refused} gaps");
        });
    }
    assert!(faults.iter().all(|count| *count > 0), "{faults:?}");
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

fn reseeds(world: &World, at: usize) -> u64 {
    world.sites[at].counter("tidewire_reseeds_total")
}

#[test]
fn f60_what_one_path_leaves_out_no_other_path_brings_and_nothing_else_is_lost() {
    for seed in [2, 6, 10] {
        virtual_time(async {
            let mut world = world(seed, &Limits::tiny());
            world.hold(3, &["eu/"]);
            world.start_all().await;
            for turn in 0..20 {
                let tree = world.sites[0].tree().expect("it runs");
                let sets = ["eu/a", "us/a", "eu/b"]
                    .map(|key| Operation::Set(format!("{key}{turn}").into(), format!("{turn}").into()));
                tree.batch(sets.to_vec()).await.expect("written");
                // One path after the other is cut, so that each brings a part.
                let (open, shut) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
                let ids = [open, shut, 3].map(|at: usize| world.sites[at].id().clone());
                world.network.heal(&ids[0], &ids[2]);
                world.network.cut(&ids[1], &ids[2]);
                sleep(Duration::from_millis(200)).await;
            }
            world.heal().await;
            world.demand_held(Duration::from_secs(60)).await;
            world.demand_reference().await;
            assert_eq!((keys(&world, 0), keys(&world, 3)), (60, 40));
        });
    }
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

#[test]
fn f06_f57_an_interest_that_matches_nothing_lets_the_log_go_and_is_covered_after_a_crash() {
    virtual_time(async {
        let mut world = World::with_limits(1, 2, &collecting());
        world.hold(1, &["nothing/"]);
        world.start_all().await;
        for turn in 0..4 {
            write(&world, 0, &format!("k{turn}-"), 200).await;
            sleep(Duration::from_secs(4)).await;
        }
        let a = world.sites[0].tree().expect("it runs");
        let first = a.first().lsn.get();
        assert!(first > 400, "the log is let go of up to {first}: {}", world.account());
        assert_eq!(keys(&world, 1), 0);
        // What was acknowledged was stored: nobody has fallen off.
        world.sites[1].crash().await;
        world.start(1).await;
        write(&world, 0, "more", 10).await;
        write(&world, 0, "nothing/", 3).await;
        world.demand_held(Duration::from_secs(30)).await;
        assert_eq!((keys(&world, 1), reseeds(&world, 1)), (3, 0));
    });
}

#[test]
fn a_relay_serves_no_interest_that_its_own_does_not_include_and_says_so() {
    virtual_time(async {
        let edges = [link(0, 1, true), link(1, 0, false), link(1, 2, true), link(2, 1, false)];
        let mut world = World::of_edges(4, 3, &edges, &Limits::tiny());
        world.hold(1, &["eu/"]);
        world.hold(2, &["eu/de/", "us/"]);
        world.start_all().await;
        write(&world, 0, "us/", 3).await;
        write(&world, 0, "eu/de/", 3).await;
        sleep(Duration::from_secs(5)).await;
        let status = world.sites[1].cluster().expect("it runs").status();
        let said = status.peers.iter().filter_map(|peer| peer.reason.clone()).collect::<Vec<_>>().join("; ");
        assert!(
            said.contains("us/") && said.contains("interest of the tree") && said.contains("forward = false"),
            "{said}"
        );
        assert_eq!(keys(&world, 2), 0, "nothing that would pass for all");
        // Within its own interest it is a relay like any other.
        world.sites[2].stop().await;
        world.hold(2, &["eu/de/"]);
        world.start(2).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert_eq!(keys(&world, 2), 3);
    });
}

#[test]
fn a_site_writes_no_key_that_it_does_not_hold() {
    virtual_time(async {
        let mut world = World::new(5, 2);
        world.hold(0, &["eu/", "us/"]);
        world.start_all().await;
        let tree = world.sites[0].tree().expect("it runs");
        tree.put("eu/1", "v").await.expect("it holds this");
        tree.delete_range("eu/", "eu0").await.expect("of one prefix");
        for refused in [
            tree.put("asia/1", "v").await,
            tree.delete("e").await,
            tree.delete_range("eu/", "us/1").await,
            tree.batch(vec![Operation::Set("eu/2".into(), "v".into()), Operation::Delete("x".into())]).await,
        ] {
            let said = refused.expect_err("it does not hold these").to_string();
            assert!(said.contains("eu/") && said.contains("widen interest"), "{said}");
        }
        assert_eq!(keys(&world, 0), 0);
    });
}

/// Logs that forget within seconds, whoever needs what they hold.
fn forgetful() -> Limits {
    Limits { wal_retention: Duration::from_secs(2), ..collecting() }
}

#[test]
fn a_new_site_is_seeded_with_the_keys_that_it_holds_alone() {
    virtual_time(async {
        let mut world = World::with_limits(1, 3, &forgetful());
        world.hold(2, &["eu/"]);
        world.start(0).await;
        world.start(1).await;
        for name in ["us/", "eu/", "x/"] {
            write(&world, 0, name, 150).await;
        }
        sleep(Duration::from_secs(10)).await;
        world.start(2).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert!(reseeds(&world, 2) >= 1);
        assert_eq!(keys(&world, 2), 150);
        let tree = world.sites[0].tree().expect("it runs");
        tree.delete_range("eu/1", "us/1").await.expect("deleted");
        world.demand_held(Duration::from_secs(60)).await;
        world.sites[2].crash().await;
        world.start(2).await;
        world.demand_held(Duration::from_secs(60)).await;
        assert!(keys(&world, 2) < 150);
    });
}

#[test]
fn fewer_keys_are_dropped_at_once_and_more_are_seeded() {
    for (seed, limits) in [(1, Limits::tiny()), (2, forgetful())] {
        virtual_time(async {
            let mut world = World::with_limits(seed, 3, &limits);
            world.start_all().await;
            for name in ["us/", "eu/", "x/"] {
                write(&world, 0, name, 60).await;
            }
            world.demand_held(Duration::from_secs(60)).await;
            world.sites[2].stop().await;
            world.hold(2, &["eu/"]);
            world.start(2).await;
            assert_eq!((keys(&world, 2), reseeds(&world, 2)), (60, 0), "narrowed at once");
            write(&world, 0, "us/new", 20).await;
            let b = world.sites[1].tree().expect("it runs");
            b.delete_range("us/1", "us/2").await.expect("deleted");
            b.put("eu/2", "again").await.expect("written");
            world.demand_held(Duration::from_secs(60)).await;
            world.sites[2].crash().await;
            world.hold(2, &["eu/", "us/"]);
            world.start(2).await;
            let status = world.sites[2].cluster().expect("it runs").status();
            assert!(
                status.health.reasons.iter().any(|reason| reason.contains("reseeding")),
                "{:?}",
                status.health
            );
            world.demand_held(Duration::from_secs(60)).await;
            assert_eq!(reseeds(&world, 2), 1, "what was left out before comes with a seed");
            assert!(keys(&world, 2) > 100);
            world.sites[2].crash().await;
            world.start(2).await;
            world.demand_held(Duration::from_secs(60)).await;
            assert_eq!(reseeds(&world, 2), 0, "and stays");
        });
    }
}

#[test]
fn interests_change_at_any_moment_between_faults() {
    let mut taken = 0;
    for seed in seeds(20) {
        virtual_time(async {
            let limits = if seed % 3 == 0 { collecting() } else { Limits::tiny() };
            let mut world = World::with_limits(seed, 3, &limits);
            let random = Random::from_seed(seed + 77);
            world.start_all().await;
            for _ in 0..3 {
                let workload =
                    Workload::start_mixed(&world.sites, 2, 3 + seed % 17, Mix::Everything, &world.random);
                for _ in 0..4 {
                    sleep(Duration::from_millis(100 + random.below(400))).await;
                    world.fault().await;
                }
                let at = 1 + usize::try_from(random.below(2)).expect("few");
                if world.sites[at].is_up() {
                    world.sites[at].crash().await;
                }
                let prefixes = if random.chance(0.3) { &[][..] } else { some(&random) };
                world.hold(at, prefixes);
                world.sites[at].faults.heal();
                world.start(at).await;
                sleep(Duration::from_millis(random.below(600))).await;
                workload.stop().await;
            }
            world.heal().await;
            world.demand_held(Duration::from_secs(180)).await;
            taken += reseeds(&world, 1) + reseeds(&world, 2);
        });
    }
    assert!(taken > 3, "{taken} seeds");
}

#[test]
fn a_relay_that_held_too_little_for_a_while_still_brings_what_it_wrote_meanwhile() {
    virtual_time(async {
        let mut world = World::of_edges(3, 2, &[link(0, 1, true), link(1, 0, true)], &Limits::tiny());
        world.start_all().await;
        write(&world, 0, "us/", 20).await;
        write(&world, 0, "eu/", 20).await;
        world.demand_held(Duration::from_secs(60)).await;
        world.sites[1].stop().await;
        world.hold(1, &["eu/"]);
        world.start(1).await;
        // It forwards, so its link is refused now.
        write(&world, 1, "eu/own", 5).await;
        write(&world, 0, "us/new", 5).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(keys(&world, 0), 45);
        world.sites[1].crash().await;
        world.hold(1, &[]);
        world.start(1).await;
        world.demand_held(Duration::from_secs(300)).await;
        assert_eq!((keys(&world, 1), reseeds(&world, 1)), (50, 1));
        // And it is a relay again.
        let status = world.sites[1].cluster().expect("it runs").status();
        assert!(status.peers.iter().all(|peer| peer.reason.is_none()), "{}", world.account());
    });
}

#[test]
fn f55_a_restored_site_is_found_out_by_a_site_that_left_out_its_last_writes() {
    virtual_time(async {
        let mut world = World::with_limits(4, 2, &Limits::tiny());
        world.hold(1, &["eu/"]);
        world.start_all().await;
        write(&world, 0, "eu/", 40).await;
        world.demand_held(Duration::from_secs(60)).await;
        world.sites[0].stop().await;
        let backup = world.sites[0].backup();
        world.start(0).await;
        write(&world, 0, "us/", 60).await;
        world.demand_held(Duration::from_secs(60)).await;
        world.sites[0].crash().await;
        world.sites[0].restore(backup);
        world.isolate(0);
        world.start(0).await;
        // More than was lost, so that positions alone show nothing.
        write(&world, 0, "eu/again", 300).await;
        world.heal().await;
        sleep(Duration::from_secs(40)).await;
        let status = world.sites[0].cluster().expect("it runs").status();
        let said = status.peers.iter().filter_map(|peer| peer.reason.clone()).collect::<Vec<_>>().join("; ");
        assert!(
            said.contains("LogWentBack"),
            "{said:?}, {} of 340 keys: {}",
            keys(&world, 1),
            world.account()
        );
    });
}

#[test]
fn a_new_tree_of_some_keys_opens_after_a_crash_before_its_log_was_there() {
    virtual_time(async {
        let mut world = World::new(6, 1);
        world.hold(0, &["eu/"]);
        world.start_all().await;
        let tree = world.sites[0].tree().expect("it runs").identity().tree.clone();
        world.sites[0].stop().await;
        let (disk, meta) = world.sites[0].backup();
        let dir = PathBuf::from(format!("/data/{}/trees/{tree}", world.sites[0].id()));
        assert!(disk.exists(&dir.join("SEED")).expect("looked"));
        for part in ["wal", "snapshots"] {
            for name in disk.list(&dir.join(part)).unwrap_or_default() {
                disk.remove(&dir.join(part).join(name)).expect("removed");
            }
        }
        world.sites[0].restore((disk, meta));
        world.start(0).await;
        write(&world, 0, "eu/", 3).await;
        assert_eq!(keys(&world, 0), 3);
    });
}
