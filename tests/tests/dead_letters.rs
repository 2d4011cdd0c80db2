//! What one cluster can never apply stops nobody, is claimed by nobody, and can be had later.

use std::time::Duration;

use tidewire::config::OnStall;
use tidewire_core::id::Hlc;
use tidewire_core::random::Random;
use tidewire_tests::{Edge, Plan, Workload, World, virtual_time};

const SMALL: usize = 2 * 1024;
const LARGE: usize = 4 * 1024;

/// Three sites of which the last takes small records alone.
fn world(seed: u64) -> World {
    let mut world = World::new(seed, 3);
    world.sites[2].limit(|limits| limits.max_record_bytes = SMALL);
    world
}

async fn until(what: &str, world: &World, mut holds: impl FnMut(&World) -> bool) {
    let mut tries = 0;
    while !holds(world) {
        tries += 1;
        assert!(tries < 1_200, "{what}: {}", world.account());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn has(world: &World, at: usize, key: &str) -> bool {
    world.sites[at].tree().is_some_and(|tree| tree.get(key).is_some())
}

fn letters(world: &World, at: usize) -> usize {
    world.sites[at].tree().map_or(0, |tree| tree.dead_letters().len())
}

/// Gives the last site room for large records, and has it apply what it parked.
async fn mend(world: &mut World, at: usize) {
    world.sites[at].stop().await;
    world.sites[at].limit(|limits| limits.max_record_bytes = 64 * 1024);
    world.start(at).await;
    let tree = world.sites[at].tree().expect("it runs");
    for letter in tree.dead_letters() {
        tree.replay_letter(letter.dot()).await.expect("it can be applied now");
    }
    assert_eq!(letters(world, at), 0);
}

#[test]
fn f35_one_record_over_a_clusters_limit_is_parked_and_what_stands_behind_it_goes_on() {
    virtual_time(async {
        let mut world = world(1);
        world.start_all().await;
        let (a, b) = (world.sites[0].tree().unwrap(), world.sites[1].tree().unwrap());
        a.put("before", "1").await.unwrap();
        let large = a.put("large", vec![1; LARGE]).await.unwrap();
        a.put("behind", "1").await.unwrap();
        until("b has it", &world, |world| has(world, 1, "behind")).await;
        // It depends on what c can never apply.
        b.put("caused", "1").await.unwrap();
        until("the streams go on", &world, |world| has(world, 2, "behind") && has(world, 2, "caused")).await;
        assert!(!has(&world, 2, "large") && letters(&world, 2) == 1);
        let claimed = |world: &World| world.sites[2].tree().unwrap().frontier().get(large.origin);
        assert!(claimed(&world) < large.hlc, "what is not seen is not claimed");
        until("a has nothing left to send", &world, |world| {
            let peers = world.sites[0].cluster().unwrap().status().peers;
            peers.iter().all(|peer| peer.lag.entries == 0)
        })
        .await;
        world.sites[2].crash().await;
        world.start(2).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!has(&world, 2, "large") && letters(&world, 2) == 1 && claimed(&world) < large.hlc);
        mend(&mut world, 2).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        until("it is claimed", &world, |world| claimed(world) >= large.hlc).await;
    });
}

#[test]
fn full_dead_letters_push_back_with_a_reason_and_drop_nothing() {
    virtual_time(async {
        let mut world = world(2);
        world.sites[2].configure(|tree| tree.dead_letter_bytes = "6KiB".parse().unwrap());
        world.start_all().await;
        let a = world.sites[0].tree().unwrap();
        for key in ["large1", "large2"] {
            a.put(key, vec![1; LARGE]).await.unwrap();
        }
        a.put("behind", "1").await.unwrap();
        until("the first is parked", &world, |world| letters(world, 2) == 1).await;
        until("the second is refused", &world, |world| {
            let peers = world.sites[2].cluster().unwrap().status().peers;
            peers.iter().filter_map(|peer| peer.reason.clone()).any(|why| why.contains("dead letters hold"))
        })
        .await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!has(&world, 2, "behind") && letters(&world, 2) == 1);
        let c = world.sites[2].tree().unwrap();
        c.drop_letter(c.dead_letters()[0].dot()).await.unwrap();
        until("it goes on", &world, |world| has(world, 2, "behind")).await;
        assert_eq!(letters(&world, 2), 1, "the second one");
        mend(&mut world, 2).await;
        assert!(has(&world, 2, "large2") && !has(&world, 2, "large1"), "what was dropped is given up");
    });
}

#[test]
fn where_nothing_is_parked_the_link_is_refused_as_before() {
    virtual_time(async {
        let mut world = world(3);
        world.sites[2].configure(|tree| tree.dead_letter_bytes = "0B".parse().unwrap());
        world.start_all().await;
        world.sites[0].tree().unwrap().put("large", vec![1; LARGE]).await.unwrap();
        until("it is refused", &world, |world| {
            let peers = world.sites[2].cluster().unwrap().status().peers;
            peers.iter().filter_map(|peer| peer.reason.clone()).any(|why| why.contains("too_large"))
        })
        .await;
        assert_eq!(letters(&world, 2), 0);
        mend(&mut world, 2).await;
        world.demand_convergence(Duration::from_secs(120)).await;
    });
}

#[test]
fn what_a_relay_has_parked_reaches_those_behind_it_though_they_were_seeded_by_it() {
    virtual_time(async {
        let mut world = World::new(4, 3);
        let forward = |from, to| Edge { from, to, forward: true };
        world.link(&[forward(0, 1), forward(1, 0), forward(1, 2), forward(2, 1)]);
        world.sites[1].limit(|limits| limits.max_record_bytes = SMALL);
        world.start(0).await;
        world.start(1).await;
        let a = world.sites[0].tree().unwrap();
        a.put("before", "1").await.unwrap();
        let large = a.put("large", vec![1; LARGE]).await.unwrap();
        a.put("behind", "1").await.unwrap();
        until("it is parked", &world, |world| has(world, 1, "behind") && letters(world, 1) == 1).await;
        // Everything goes into snapshots, and all that may go leaves the log.
        let relay = world.sites[1].tree().unwrap();
        for n in 0..200 {
            relay.put(format!("own{n}"), vec![3; 900]).await.unwrap();
        }
        for _ in 0..2 {
            relay.snapshot().await.unwrap();
            relay.put("more", "1").await.unwrap();
        }
        world.sites[1].cluster().unwrap().gc("t", false).await.unwrap();
        let claimed = |world: &World, at: usize| world.sites[at].tree().unwrap().frontier().get(large.origin);
        assert!(claimed(&world, 1) < large.hlc);
        world.start(2).await;
        let c = world.sites[2].tree().unwrap();
        world.sites[2].cluster().unwrap().reseed("b", None).await.unwrap();
        until("c is seeded", &world, |_| has(&world, 2, "own0") && c.seed_wish().is_none()).await;
        until("c is served", &world, |world| has(world, 2, "behind")).await;
        until("and has what the relay lacks", &world, |world| has(world, 2, "large")).await;
        assert!(!has(&world, 1, "large"));
        assert_eq!(c.get("large").unwrap().version, large);
        mend(&mut world, 1).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        until("all claim it", &world, |world| (0..3).all(|at| claimed(world, at) >= large.hlc)).await;
    });
}

#[test]
fn f35_under_faults_a_cluster_holds_all_but_what_it_parked_and_in_the_end_that_too() {
    for seed in 40_100..40_106 {
        virtual_time(async move {
            let mut world = world(seed);
            world.start_all().await;
            let plan = Plan {
                sites: 3,
                writers: 2,
                keys: 30,
                duration: Duration::from_secs(20),
                fault_every: Duration::from_millis(900),
            };
            let random = Random::from_seed(seed);
            let workload = Workload::start(&world.sites, plan.writers, plan.keys, &world.random);
            let mut large = 0;
            for round in 0..20 {
                world.fault().await;
                tokio::time::sleep(plan.fault_every).await;
                let from = usize::try_from(random.below(2)).unwrap();
                let Some(tree) = world.sites[from].tree() else { continue };
                let write = tree.put(format!("large{round}"), vec![1; LARGE]);
                let written = tokio::time::timeout(Duration::from_secs(1), write).await;
                large += usize::from(matches!(written, Ok(Ok(_))));
            }
            let (acknowledged, _) = workload.stop().await;
            world.heal().await;
            let rows = |world: &World, at: usize| {
                let tree = world.sites[at].tree().expect("it runs");
                let rows = tree.scan(b"", None, usize::MAX);
                rows.into_iter().filter(|row| !row.key.starts_with(b"large")).collect::<Vec<_>>()
            };
            until(&format!("seed {seed}: all but the large ones agree"), &world, |world| {
                rows(world, 0) == rows(world, 1)
                    && rows(world, 1) == rows(world, 2)
                    && letters(world, 2) >= large
            })
            .await;
            assert!((0..20).all(|round| !has(&world, 2, &format!("large{round}"))), "seed {seed}");
            mend(&mut world, 2).await;
            world.demand_convergence(Duration::from_secs(120)).await;
            world.demand_acknowledged(&acknowledged).await;
        });
    }
}

#[test]
fn f15_who_is_cut_off_from_an_origin_waits_or_gives_up_causality_alone_as_it_is_told() {
    virtual_time(async {
        let mut world = World::new(5, 4);
        // The last site gives up after five seconds, the one before it waits.
        world.sites[3].configure(|tree| {
            tree.on_stall = OnStall::ApplyAfter;
            tree.apply_after = "5s".parse().unwrap();
        });
        world.start_all().await;
        let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
        for cut in [2, 3] {
            world.network.cut(&ids[0], &ids[cut]);
        }
        let (a, b) = (world.sites[0].tree().unwrap(), world.sites[1].tree().unwrap());
        let cause = a.put("cause", "1").await.unwrap();
        until("b has the cause", &world, |world| has(world, 1, "cause")).await;
        for n in 0..20 {
            b.put(format!("effect{n}"), n.to_string()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!has(&world, 2, "effect0") && !has(&world, 3, "effect0"), "both wait at first");
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(!has(&world, 2, "effect0"), "who is to wait waits");
        assert!((0..20).all(|n| has(&world, 3, &format!("effect{n}"))), "{}", world.account());
        assert!(!has(&world, 3, "cause"));
        let d = world.sites[3].tree().unwrap();
        assert!(d.frontier().get(cause.origin) < Hlc::new(cause.hlc.get()), "it claims nothing of a");
        let given_up = |world: &World, at: usize| {
            let peers = world.sites[at].cluster().unwrap().status().peers;
            peers.iter().map(|peer| peer.applied_without_dependencies).sum::<u64>()
        };
        assert_eq!((given_up(&world, 2), given_up(&world, 3)), (0, 20), "counted, and shown");
        world.network.heal_all();
        world.demand_convergence(Duration::from_secs(60)).await;
    });
}
