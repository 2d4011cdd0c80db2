//! What comes with a seed is in no log; destinations end with what the tree holds all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire::{SinkOptions, Tree};
use tidewire_core::error::SinkErrorKind;
use tidewire_core::limits::Limits;
use tidewire_core::record::Kind;
use tidewire_core::sink::{MemDestination, SinkCall, SinkFault, SinkFaults};
use tidewire_core::tree::{LogView, Start};
use tidewire_tests::{Site, World, enough_seeds, seeds, virtual_time};
use tokio::time::{Instant, sleep};

const TREE: &str = "t";

/// Logs that forget within seconds, and dead that go as soon as they may.
fn forgetful() -> Limits {
    Limits {
        gc_floor: Duration::from_millis(200),
        gc_ceiling: Duration::from_secs(1),
        snapshot_log_bytes: 4 * 1024,
        ..Limits::tiny()
    }
}

async fn write(world: &World, at: usize, from: u32, count: u32, value: &str) {
    let tree = world.sites[at].tree().expect("it runs");
    for key in from..from + count {
        tree.put(format!("key {key:04}"), value.repeat(40)).await.expect("written");
    }
}

async fn feed(site: &Site, name: &str, start: Start, to: (&MemDestination, &SinkFaults)) {
    let mut options = SinkOptions::default();
    options.settings.start = start;
    let cluster = site.cluster().expect("it runs");
    cluster.add_sink_with(TREE, name, to.1.wrap(to.0.sink()), options).await.expect("a new sink");
}

async fn caught_up(seed: u64, site: &Site) {
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        let sinks = site.cluster().expect("it runs").status().sinks;
        if sinks.iter().all(|sink| sink.state == "caught_up") {
            return;
        }
        assert!(Instant::now() < end, "seed {seed}: {sinks:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Applies every change as it came, those that came again too, and compares with the tree.
fn demand(seed: u64, what: &str, tree: &Tree, destination: &MemDestination) {
    let mut ends: BTreeMap<Vec<u8>, (u64, Vec<u8>)> = BTreeMap::new();
    for change in destination.changes() {
        let (key, hlc) = (change.key.to_vec(), change.version.hlc.get());
        match change.kind {
            Kind::Set => _ = ends.insert(key, (hlc, change.value.to_vec())),
            Kind::Delete => _ = ends.remove(&key),
            Kind::DeleteRange => {
                let end = change.end_key.expect("a range has an end").to_vec();
                ends.retain(|other, (set, _)| *other < key || *other >= end || *set > hlc);
            }
            Kind::Mark => {}
        }
    }
    let held: BTreeMap<Vec<u8>, Vec<u8>> = tree
        .scan(b"", None, usize::MAX)
        .into_iter()
        .map(|row| (row.key.to_vec(), row.value.to_vec()))
        .collect();
    let ends: BTreeMap<Vec<u8>, Vec<u8>> = ends.into_iter().map(|(key, (_, value))| (key, value)).collect();
    let differ: Vec<String> = held
        .keys()
        .chain(ends.keys())
        .filter(|key| held.get(*key) != ends.get(*key))
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect();
    assert!(differ.is_empty(), "seed {seed}, {what}: {differ:?}");
}

/// Changes that were told as rows of the state.
fn rows(destination: &MemDestination) -> usize {
    destination.changes().iter().filter(|change| change.dot.is_none()).count()
}

/// Everything that a seed has to tell of, until the log of the giver has forgotten it.
async fn go_apart(world: &World) {
    let a = world.sites[0].tree().expect("runs");
    for key in 0..20 {
        a.delete(format!("key {key:04}")).await.expect("deleted");
    }
    a.delete_range("key 0040", "key 0060").await.expect("deleted");
    write(world, 0, 60, 20, "second").await;
    write(world, 0, 200, 100, "third").await;
    if world.sites[1].is_up() {
        write(world, 1, 10, 60, "elsewhere").await;
    }
    sleep(Duration::from_secs(45)).await;
}

#[test]
fn f61_what_a_seed_brings_and_deletes_reaches_the_sinks_of_whoever_takes_it() {
    const SEEDS: u64 = 24;
    let (mut told, mut killed) = (0, 0);
    for seed in seeds(SEEDS) {
        virtual_time(async {
            let mut world = World::with_limits(seed, 2, &forgetful());
            // The giver forgets whoever needs it; a sink of the taker loses nothing to age.
            world.sites[0].limit(|limits| limits.wal_retention = Duration::from_secs(20));
            world.start_all().await;
            let (early, faults) = (MemDestination::new(), SinkFaults::new());
            let new = seed % 4 == 0;
            if new {
                world.sites[1].crash().await;
            } else {
                feed(&world.sites[1], "early", Start::Beginning, (&early, &faults)).await;
            }
            write(&world, 0, 0, 120, "first").await;
            if !new {
                world.demand_convergence(Duration::from_secs(60)).await;
                caught_up(seed, &world.sites[1]).await;
            }
            // It is away: for good, or with clients of its own.
            if seed % 2 == 0 && !new {
                world.sites[1].crash().await;
            } else {
                world.isolate(1);
            }
            go_apart(&world).await;
            // The destination is away meanwhile, so that whoever reaps has its chance.
            if seed % 3 == 0 {
                for _ in 0..4 {
                    faults.order(SinkCall::Write, 1, SinkFault::Fail(SinkErrorKind::Transient));
                }
            }
            if !world.sites[1].is_up() {
                world.start(1).await;
                feed(&world.sites[1], "early", Start::Beginning, (&early, &faults)).await;
            }
            world.network.heal_all();
            if seed % 5 < 2 {
                // Killed within the seed, or within what its sink makes of it.
                sleep(Duration::from_millis(world.random.below(3_000))).await;
                killed += 1;
                world.sites[1].crash().await;
                world.start(1).await;
                feed(&world.sites[1], "early", Start::Beginning, (&early, &faults)).await;
            }
            write(&world, 0, 70, 5, "fourth").await;
            write(&world, 1, 90, 5, "fifth").await;
            world.demand_convergence(Duration::from_secs(120)).await;
            // Long enough that everything dead is gone that may go.
            sleep(Duration::from_secs(20)).await;
            faults.heal();
            let (late, now, there) = (MemDestination::new(), MemDestination::new(), MemDestination::new());
            let good = SinkFaults::new();
            feed(&world.sites[1], "late", Start::Beginning, (&late, &good)).await;
            feed(&world.sites[1], "now", Start::Now, (&now, &good)).await;
            feed(&world.sites[0], "there", Start::Beginning, (&there, &good)).await;
            sleep(Duration::from_secs(1)).await;
            write(&world, 0, 300, 5, "sixth").await;
            world.demand_convergence(Duration::from_secs(60)).await;
            let (a, b) = (world.sites[0].tree().expect("runs"), world.sites[1].tree().expect("runs"));
            let first = a.first().lsn.get();
            assert!(first > 60, "seed {seed}: the log of the giver forgot: {first}");
            caught_up(seed, &world.sites[0]).await;
            caught_up(seed, &world.sites[1]).await;
            demand(seed, "a sink from before the seed", &b, &early);
            demand(seed, "a sink that begins behind the seed", &b, &late);
            demand(seed, "a sink that begins above what the log retains", &a, &there);
            assert_eq!((rows(&now), now.changes().len()), (0, 5), "seed {seed}: who asks for news gets news");
            told += rows(&early);
        });
    }
    println!("{told} rows, {killed} killed");
    assert!(!enough_seeds(SEEDS) || told > 0 && killed > 0, "{told} {killed}");
}

#[test]
fn nothing_dead_goes_before_every_sink_was_told_what_a_seed_deleted() {
    virtual_time(async {
        let mut world = World::with_limits(5, 2, &forgetful());
        world.sites[0].limit(|limits| limits.wal_retention = Duration::from_secs(20));
        world.start_all().await;
        let (destination, faults) = (MemDestination::new(), SinkFaults::new());
        feed(&world.sites[1], "out", Start::Beginning, (&destination, &faults)).await;
        write(&world, 0, 0, 50, "v").await;
        world.demand_convergence(Duration::from_secs(60)).await;
        caught_up(5, &world.sites[1]).await;
        let cluster = world.sites[1].cluster().expect("runs").clone();
        cluster.pause_sink(TREE, "out").await.expect("paused");
        world.isolate(1);
        let a = world.sites[0].tree().expect("runs");
        for key in 0..50 {
            a.delete(format!("key {key:04}")).await.expect("deleted");
        }
        write(&world, 0, 100, 200, "w").await;
        sleep(Duration::from_secs(45)).await;
        world.network.heal_all();
        world.demand_convergence(Duration::from_secs(60)).await;
        sleep(Duration::from_secs(10)).await;
        let report = cluster.gc(TREE, false).await.expect("a pass");
        assert_eq!(report.reaping.gone.total(), 0, "{report:?}");
        let held = cluster.status().trees[0].dead.held_by.clone().unwrap_or_default();
        assert!(held.contains("sink out"), "{held}");
        cluster.resume_sink(TREE, "out").await.expect("resumed");
        caught_up(5, &world.sites[1]).await;
        demand(5, "a sink that was paused", &world.sites[1].tree().expect("runs"), &destination);
        assert!(rows(&destination) >= 50);
        sleep(Duration::from_secs(10)).await;
        cluster.gc(TREE, false).await.expect("a pass");
        assert_eq!(cluster.status().trees[0].dead.tombstones, 0);
    });
}
