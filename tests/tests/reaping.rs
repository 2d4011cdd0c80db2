//! The dead leave the states of all sites all the time, and nothing of them ever comes back.

use std::time::Duration;

use tidewire::PutOptions;
use tidewire_core::limits::Limits;
use tidewire_core::tree::{ApplyTarget, Graves};
use tidewire_tests::{Edge, Mix, Site, Topology, Workload, World, seeds, virtual_time};
use tokio::time::{Instant, sleep};

mod late;
mod met_later;

/// Collectors that come several times a second; logs forget what everybody has.
fn reaping() -> Limits {
    Limits {
        gc_floor: Duration::from_millis(150),
        gc_ceiling: Duration::from_millis(600),
        snapshot_log_bytes: 4 * 1024,
        ..Limits::tiny()
    }
}

/// The same, and logs forget what not everybody has.
fn forgetful() -> Limits {
    Limits { wal_retention: Duration::from_secs(2), ..reaping() }
}

fn value(world: &World, at: usize, key: &str) -> Option<Vec<u8>> {
    world.sites[at].tree().expect("it runs").get(key).map(|value| value.value.to_vec())
}

fn graves(world: &World, at: usize) -> Graves {
    world.sites[at].tree().expect("it runs").size().graves
}

fn held_by(world: &World, at: usize) -> Option<String> {
    let status = world.sites[at].cluster().expect("it runs").status();
    status.trees[0].dead.held_by.clone()
}

/// Waits until a site has forgotten everything that is dead.
async fn demand_forgotten(world: &World, at: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    while graves(world, at).total() > 0 {
        assert!(Instant::now() < end, "{:?}, held by {:?}", graves(world, at), held_by(world, at));
        sleep(Duration::from_millis(50)).await;
    }
}

/// What a random run took out of all sites.
#[derive(Debug, Default)]
struct Went {
    reaped: u64,
    reseeds: u64,
    writes: u64,
}

impl Went {
    /// Adds what the running sites have counted since their starts.
    fn count(&mut self, world: &World) {
        for site in world.sites.iter().filter(|site| site.is_up()) {
            self.reaped += site.counter("tidewire_reaped_total");
            self.reseeds += site.counter("tidewire_reseeds_total");
        }
    }
}

fn pick(world: &World) -> usize {
    usize::try_from(world.random.below(world.sites.len() as u64)).expect("few sites")
}

/// Faults of every kind for some seconds, snapshots and passes of the collector among them.
async fn trouble(world: &mut World) {
    for _ in 0..24 {
        sleep(Duration::from_micros(world.random.below(400_000))).await;
        let at = pick(world);
        match world.random.below(8) {
            0 => world.isolate(at),
            1 | 2 => world.network.heal_all(),
            3 => {
                if let Some(tree) = world.sites[at].tree() {
                    let patience = Duration::from_millis(world.random.below(200));
                    // It may be cut short, or fail.
                    let _ = tokio::time::timeout(patience, tree.snapshot()).await;
                }
            }
            4 => world.sites[at].clock.set_offset(world.random.below(4_000) as i64 - 2_000),
            _ => world.fault().await,
        }
    }
}

fn world_of(seed: u64, limits: &Limits) -> World {
    match seed % 4 {
        0 => World::with_limits(seed, 2, limits),
        1 | 2 => World::with_limits(seed, 3, limits),
        _ => {
            World::of_topology_with(seed, Topology::ALL[usize::try_from(seed / 4 % 7).expect("few")], limits)
        }
    }
}

/// One random run: writers on all sites, trouble, and then one state everywhere, in which nothing is dead.
async fn run(seed: u64, limits: &Limits, went: &mut Went) {
    let mut world = world_of(seed, limits);
    for from in 0..world.sites.len() {
        for to in (0..world.sites.len()).filter(|to| *to != from) {
            let longest = Duration::from_millis(world.random.below(120));
            let (from, to) = (world.sites[from].id(), world.sites[to].id());
            world.network.set_delay(from, to, Duration::ZERO, longest);
        }
    }
    world.start_all().await;
    let workload = Workload::start_mixed(&world.sites, 2, 3 + seed % 9, Mix::Everything, &world.random);
    trouble(&mut world).await;
    let unanswered = workload.unanswered();
    let (acknowledged, writes) = workload.stop().await;
    went.writes += writes;
    world.heal().await;
    world.demand_convergence(Duration::from_secs(300)).await;
    for at in 0..world.sites.len() {
        let tree = world.sites[at].tree().expect("it runs");
        let reaped = tree.progress().reaped;
        // A link with an adversary may end with a refusal of another kind.
        let peers = world.sites[at].cluster().expect("it runs").status().peers;
        let late = peers.iter().find(|peer| peer.reason.as_ref().is_some_and(|why| why.contains("too late")));
        assert!(late.is_none(), "seed {seed}: reaped up to {reaped}: {late:?}");
    }
    went.count(&world);
    // Whatever is kept in snapshots and logs: who starts again holds the same.
    for at in 0..world.sites.len() {
        let before = world.sites[at].tree().expect("it runs").scan(b"", None, usize::MAX);
        world.sites[at].crash().await;
        world.start(at).await;
        let after = world.sites[at].tree().expect("it runs").scan(b"", None, usize::MAX);
        let expired: Vec<_> =
            before.iter().filter(|row| !after.contains(row) && row.deadline_ms.is_none()).collect();
        assert!(expired.is_empty(), "seed {seed}: {expired:?} was lost by a restart");
        let back: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
        assert!(back.is_empty(), "seed {seed}: {back:?} came back with a restart");
    }
    world.demand_convergence(Duration::from_secs(300)).await;
    // What is the same everywhere may still be what was deleted.
    world.demand_winners(&acknowledged, &unanswered);
}

#[test]
fn f18_f19_f62_nothing_dead_comes_back_while_all_sites_reap_all_the_time() {
    let mut went = Went::default();
    for seed in seeds(40) {
        virtual_time(run(seed, &reaping(), &mut went));
    }
    println!("{went:?}");
    assert!(went.reaped > 0 && went.writes > 0, "{went:?}");
}

#[test]
fn f45_nothing_dead_comes_back_with_seeds_of_sites_that_reap() {
    let mut went = Went::default();
    for seed in seeds(40) {
        virtual_time(run(seed, &forgetful(), &mut went));
    }
    println!("{went:?}");
    assert!(went.reaped > 0 && went.reseeds > 0 && went.writes > 0, "{went:?}");
}

#[test]
fn f18_a_site_that_was_away_for_long_does_not_bring_back_what_was_deleted_meanwhile() {
    virtual_time(async {
        let mut world = World::with_limits(1, 3, &reaping());
        world.start_all().await;
        let [a, c] = [0, 2].map(|at: usize| world.sites[at].tree().expect("runs"));
        a.put("k", "there").await.expect("written");
        world.demand_convergence(Duration::from_secs(60)).await;
        world.isolate(2);
        c.put("k", "written while away").await.expect("written");
        c.put("r1", "written while away").await.expect("written");
        c.put_with("t", "for ever", PutOptions::default()).await.expect("written");
        sleep(Duration::from_secs(2)).await;
        a.delete("k").await.expect("deleted");
        a.delete_range("r", "s").await.expect("deleted");
        a.put_with("t", "short", PutOptions::ttl(Duration::from_millis(5))).await.expect("written");
        sleep(Duration::from_secs(20)).await;
        for at in 0..2 {
            let kept = graves(&world, at);
            assert_eq!((kept.tombstones, kept.expired, kept.ranges), (1, 1, 1), "all wait for c");
            let held = held_by(&world, at).unwrap_or_default();
            assert!(held.contains(" c"), "{held}");
        }
        world.heal().await;
        world.demand_convergence(Duration::from_secs(60)).await;
        for at in 0..3 {
            assert_eq!(["k", "r1", "t"].map(|key| value(&world, at, key)), [None, None, None]);
            demand_forgotten(&world, at).await;
            assert_eq!(held_by(&world, at), None);
        }
        assert!(world.sites[0].counter("tidewire_reaped_total") >= 3);
    });
}

#[test]
fn f55_a_site_that_returns_from_an_old_copy_and_deletes_there_keeps_its_dead_until_it_is_seeded() {
    virtual_time(async {
        for seed in seeds(12) {
            let mut world =
                World::with_limits(seed, 2, &Limits { wal_retention: Duration::ZERO, ..reaping() });
            world.start_all().await;
            let a = world.sites[0].tree().expect("runs");
            for key in ["deleted there", "deleted here", "kept"] {
                a.put(key, "first").await.expect("written");
            }
            drop(a);
            world.demand_convergence(Duration::from_secs(60)).await;
            sleep(Duration::from_secs(1)).await;
            world.sites[0].stop().await;
            let old = world.sites[0].backup();
            world.start(0).await;
            let a = world.sites[0].tree().expect("runs");
            a.delete("deleted here").await.expect("deleted");
            a.put("after the copy", "lost there").await.expect("written");
            drop(a);
            world.demand_convergence(Duration::from_secs(60)).await;
            for at in 0..2 {
                demand_forgotten(&world, at).await;
            }
            world.sites[0].crash().await;
            world.sites[0].restore(old);
            // What b writes reaches a, what a writes does not reach b: nobody tells a that it has gone back.
            world.network.cut_one_way(world.sites[0].id(), world.sites[1].id());
            world.start(0).await;
            let a = world.sites[0].tree().expect("runs");
            a.delete("deleted there").await.expect("deleted");
            sleep(Duration::from_secs(1 + seed % 3)).await;
            assert!(graves(&world, 0).tombstones >= 1, "seed {seed}: its own, which nobody has acknowledged");
            world.heal().await;
            sleep(Duration::from_secs(3)).await;
            let cluster = world.sites[0].cluster().expect("runs").clone();
            cluster.reseed("b", None).await.expect("asked");
            drop((a, cluster));
            world.demand_convergence(Duration::from_secs(120)).await;
            for at in 0..2 {
                let shown = ["deleted there", "deleted here", "kept", "after the copy"]
                    .map(|key| value(&world, at, key).is_some());
                assert_eq!(shown, [false, false, true, true], "seed {seed}, site {at}");
                demand_forgotten(&world, at).await;
            }
        }
    });
}

#[test]
fn f22_values_expire_where_they_are_read_and_leave_everywhere_though_clocks_are_apart() {
    virtual_time(async {
        let mut world = World::with_limits(4, 3, &reaping());
        for (site, offset) in world.sites.iter().zip([0, 1_500, -1_500]) {
            site.clock.set_offset(offset);
        }
        world.start_all().await;
        let b = world.sites[1].tree().expect("runs");
        for at in 0..20 {
            b.put_with(format!("k{at}"), "short", PutOptions::ttl(Duration::from_secs(2)))
                .await
                .expect("written");
        }
        drop(b);
        sleep(Duration::from_millis(300)).await;
        assert!(world.sites.iter().all(|site: &Site| site.tree().expect("runs").get("k0").is_some()));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(value(&world, 1, "k0"), None, "by its own clock");
        assert!(value(&world, 2, "k0").is_some(), "by its clock it is early");
        sleep(Duration::from_secs(10)).await;
        for at in 0..3 {
            assert_eq!(value(&world, at, "k0"), None);
            demand_forgotten(&world, at).await;
        }
        world.demand_stillness().await;
    });
}

/// a knows b alone, b relays to it what c and d write, and neither waits for anything. c writes, unheard; then a deletes the
/// same key and forgets it; then c is heard.
async fn late_over_a_relay(letters: &str) -> World {
    let mut world = World::with_limits(5, 4, &reaping());
    let forward = |from, to| Edge { from, to, forward: true };
    world.link(&[forward(0, 1), forward(1, 0), forward(2, 1), forward(3, 1)]);
    world.sites[0].alone();
    let b = world.sites[1].id().clone();
    world.sites[0].link(&b, true, true);
    world.sites[0].configure(|tree| tree.dead_letter_bytes = letters.parse().expect("a size"));
    world.isolate(2);
    world.start_all().await;
    let [a, c] = [0, 2].map(|at: usize| world.sites[at].tree().expect("runs"));
    c.put("k", "of long ago").await.expect("written");
    sleep(Duration::from_secs(5)).await;
    a.put("k", "here").await.expect("written");
    a.delete("k").await.expect("deleted");
    drop((a, c));
    demand_forgotten(&world, 0).await;
    world.network.heal_all();
    sleep(Duration::from_secs(10)).await;
    world
}

async fn write(world: &World, at: usize, key: impl Into<String>) {
    world.sites[at].tree().expect("runs").put(key.into(), "1").await.expect("written");
}

#[test]
fn f18_f35_what_a_relay_brings_too_late_is_parked_and_everything_else_goes_on() {
    virtual_time(async {
        let world = late_over_a_relay("1MiB").await;
        for (at, key) in [(1, "of b"), (2, "of c"), (3, "of d")] {
            write(&world, at, key).await;
        }
        sleep(Duration::from_secs(10)).await;
        assert!(value(&world, 1, "k").is_none() && value(&world, 0, "k").is_none(), "nothing comes back");
        for key in ["of b", "of c", "of d"] {
            assert!(value(&world, 0, key).is_some(), "{key}: {}", world.account());
        }
        let a = world.sites[0].tree().expect("runs");
        let [letter] = &a.dead_letters()[..] else { panic!("{:?}", a.dead_letters()) };
        assert!(letter.reason.contains("too late"), "{letter:?}");
        let replayed = a.replay_letter(letter.dot()).await.expect_err("it would bring back what was deleted");
        assert!(replayed.to_string().contains("write it anew"), "{replayed}");
        a.drop_letter(letter.dot()).await.expect("dropped");
        a.delete("of c").await.expect("deleted");
        sleep(Duration::from_secs(5)).await;
        assert_eq!((a.get("k"), held_by(&world, 0)), (None, None), "it is settled");
        demand_forgotten(&world, 0).await;
    });
}

#[test]
fn f18_where_nothing_can_be_parked_a_relay_leaves_the_late_origin_out_and_goes_on_with_the_others() {
    virtual_time(async {
        let world = late_over_a_relay("0B").await;
        write(&world, 3, "of d").await;
        sleep(Duration::from_secs(10)).await;
        let peers = |at: usize| world.sites[at].cluster().expect("runs").status().peers;
        assert!(value(&world, 0, "of d").is_some(), "{:#?} {:#?}", peers(0), peers(1));
        assert_eq!(value(&world, 0, "k"), None);
        for (at, said) in
            [(0, "writes of c are not taken from b: reaped"), (1, "writes of c are not forwarded")]
        {
            let peers = world.sites[at].cluster().expect("runs").status().peers;
            let reasons: Vec<_> = peers.iter().filter_map(|peer| peer.reason.clone()).collect();
            assert!(reasons.iter().any(|why| why.contains(said) && why.contains("too late")), "{reasons:?}");
        }
        // The way out: nothing is held any longer for the sake of c.
        world.sites[0].tree().expect("runs").delete("of d").await.expect("deleted");
        sleep(Duration::from_secs(5)).await;
        let held = held_by(&world, 0).unwrap_or_default();
        assert!(held.contains(" c"), "{held}");
        world.sites[0].cluster().expect("runs").seal_peer("c").await.expect("sealed");
        demand_forgotten(&world, 0).await;
    });
}

#[test]
fn f18_a_site_that_only_takes_holds_nothing_back_where_that_is_declared() {
    let mut went = Went::default();
    for seed in seeds(20) {
        virtual_time(async {
            let mut world = World::with_limits(seed, 3, &reaping());
            let forward = |from, to| Edge { from, to, forward: true };
            world.link(&[forward(0, 1), forward(1, 0), forward(0, 2)]);
            let c = world.sites[2].id().clone();
            world.sites[1].forget(&c);
            if seed % 2 == 0 {
                world.sites[0].only_send(&c);
            }
            world.start_all().await;
            let workload =
                Workload::start_mixed(&world.sites[..2], 2, 3 + seed % 9, Mix::Everything, &world.random);
            trouble(&mut world).await;
            let unanswered = workload.unanswered();
            let (acknowledged, writes) = workload.stop().await;
            went.writes += writes;
            world.heal().await;
            world.demand_convergence(Duration::from_secs(300)).await;
            world.demand_winners(&acknowledged, &unanswered);
            let a = world.sites[0].tree().expect("runs");
            a.put("last", "1").await.expect("written");
            a.delete("last").await.expect("deleted");
            drop(a);
            if seed % 2 == 0 {
                demand_forgotten(&world, 0).await;
            } else {
                sleep(Duration::from_secs(30)).await;
                let held = held_by(&world, 0).unwrap_or_default();
                assert!(held.contains(" c"), "seed {seed}, not declared: {held}");
            }
            demand_forgotten(&world, 1).await;
            went.count(&world);
        });
    }
    assert!(went.reaped > 0 && went.writes > 0, "{went:?}");
}
