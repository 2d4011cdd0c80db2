//! Range deletes, values that expire and batches, over links that are cut, sites that are killed and clocks that are
//! seconds apart.

use std::time::Duration;

use tidewire::Tree;
use tidewire_tests::{Plan, Watch, World, seeds, virtual_time};

/// Both keys of a pair are written and deleted together: one look never sees half of that.
fn whole_pairs(_: usize, tree: &Tree) -> Result<(), String> {
    let rows = tree.scan(b"pair-", None, usize::MAX);
    let mut halves = rows.iter().peekable();
    while let Some(first) = halves.next() {
        let pair = first.key.strip_suffix(b"-a");
        let second = halves.next();
        let whole = second.is_some_and(|second| {
            second.key.strip_suffix(b"-b") == pair
                && (&second.value, second.version) == (&first.value, first.version)
        });
        if !whole {
            return Err(format!("half of a batch: {first:?} beside {second:?}"));
        }
    }
    Ok(())
}

#[test]
fn sites_converge_with_ranges_deadlines_and_whole_batches() {
    let (mut ranges, mut expiring, mut batches, mut looks, mut faults) = (0, 0, 0, 0, [0; 5]);
    for seed in seeds(200) {
        let plan = Plan {
            sites: 2 + usize::try_from(seed % 2).expect("0 or 1"),
            writers: 2,
            keys: 2 + seed % 17,
            duration: Duration::from_secs(3),
            fault_every: Duration::from_millis(250),
        };
        virtual_time(async {
            let mut world = World::new(seed, plan.sites);
            // Looking at every step costs more than all the rest.
            let watch = (seed % 4 == 0).then(|| Watch::start(&world.sites, whole_pairs));
            let acknowledged = world.run_mixed(&plan).await;
            if let Some(watch) = watch {
                looks += watch.finish(seed).await;
            }
            ranges += acknowledged.iter().filter(|write| write.end_key.is_some()).count();
            expiring += acknowledged.iter().filter(|write| write.expires).count();
            batches += acknowledged.iter().filter(|write| write.key.ends_with("-b")).count();
            faults.iter_mut().zip(world.faults).for_each(|(sum, count)| *sum += count);
        });
    }
    println!("{ranges} ranges, {expiring} that expire, {batches} batches, {looks} looks; faults {faults:?}");
    assert!(ranges > 0 && expiring > 0 && batches > 0 && looks > 0 && faults.iter().all(|count| *count > 0));
}

/// Two sites that cannot reach each other yet.
async fn apart(seed: u64) -> (World, [Tree; 2]) {
    let mut world = World::new(seed, 2);
    world.start_all().await;
    world.sites.iter().for_each(|site| site.clock.set_offset(0));
    let (a, b) = (world.sites[0].id().clone(), world.sites[1].id().clone());
    world.network.cut(&a, &b);
    let trees = [0, 1].map(|at| world.sites[at].tree().expect("it runs"));
    (world, trees)
}

#[test]
fn f19_a_range_delete_takes_older_writes_that_come_later_and_leaves_newer_concurrent_ones() {
    for seed in seeds(40) {
        virtual_time(async {
            let (mut world, [a, b]) = apart(seed).await;
            let pause = || tokio::time::sleep(Duration::from_millis(5));
            b.put("k-older", "1").await.expect("put");
            b.put("l-outside", "1").await.expect("put");
            pause().await;
            a.put("k-here", "1").await.expect("put");
            let range = a.delete_range("k", "l").await.expect("deleted");
            pause().await;
            let newer = b.put("k-newer", "1").await.expect("put");
            assert!(newer > range);
            if seed % 2 == 0 {
                // What is remembered of a range survives a kill.
                world.sites[0].crash().await;
                world.start(0).await;
            }
            drop((a, b));
            world.heal().await;
            world.demand_convergence(Duration::from_secs(60)).await;
            for round in 0..2 {
                for site in &world.sites {
                    let keys: Vec<_> = site
                        .tree()
                        .expect("runs")
                        .scan(b"", None, 9)
                        .into_iter()
                        .map(|row| row.key)
                        .collect();
                    assert_eq!(keys, ["k-newer", "l-outside"], "seed {seed} round {round}: {}", site.id());
                }
                for at in 0..2 {
                    world.sites[at].crash().await;
                    world.start(at).await;
                }
            }
        });
    }
}

#[test]
fn f22_with_clocks_apart_every_site_goes_by_its_own_and_nothing_is_written_for_it() {
    virtual_time(async {
        let mut world = World::new(3, 2);
        world.start_all().await;
        world.sites[0].clock.set_offset(8_000);
        world.sites[1].clock.set_offset(-4_000);
        let [a, b] = [0, 1].map(|at| world.sites[at].tree().expect("it runs"));
        let options = tidewire::PutOptions::ttl(Duration::from_secs(10));
        let version = a.put_with("k", "v", options).await.expect("put");
        a.wait_for(&a.token(version), Duration::from_secs(5)).await.expect("here");
        b.wait_for(&a.token(version), Duration::from_secs(5)).await.expect("arrives");
        assert_eq!(a.get("k"), b.get("k"), "one deadline, that of its origin");
        let shown = || [&a, &b].map(|tree| (tree.get("k").is_some(), tree.size().entries));
        let ends = || [&a, &b].map(|tree| tree.size().log.next);
        let before = ends();
        assert_eq!(shown(), [(true, 1), (true, 1)]);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(shown(), [(false, 0), (true, 1)], "the clock of b has not come so far");
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(shown(), [(false, 0), (false, 0)]);
        world.sites[0].clock.set_offset(-4_000);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(ends(), before, "an expiry is no write, and nothing goes to and fro");
        assert_eq!(a.digest().digest, b.digest().digest);
    });
}

#[test]
fn f62_an_older_write_that_comes_later_does_not_bring_an_expired_key_back() {
    for seed in seeds(20) {
        virtual_time(async {
            let (mut world, [a, b]) = apart(seed).await;
            b.put("k", "older").await.expect("put");
            tokio::time::sleep(Duration::from_millis(5)).await;
            let options = tidewire::PutOptions::ttl(Duration::from_secs(1));
            a.put_with("k", "newer", options).await.expect("put");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!((a.get("k"), b.get("k").is_some()), (None, true));
            drop((a, b));
            world.heal().await;
            world.demand_convergence(Duration::from_secs(60)).await;
            for at in 0..2 {
                assert_eq!(world.sites[at].tree().expect("runs").get("k"), None, "seed {seed}");
                world.sites[at].crash().await;
                world.start(at).await;
                assert_eq!(
                    world.sites[at].tree().expect("runs").get("k"),
                    None,
                    "seed {seed}, started again"
                );
            }
        });
    }
}
