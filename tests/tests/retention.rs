//! What a log keeps is what its consumers and its own recovery need, and the report says so.

use std::sync::Arc;
use std::time::Duration;

use tidewire::config::TreeConfig;
use tidewire::{Cluster, ClusterConfig, Peer};
use tidewire_core::disk::{DiskOperation, MemDisk};
use tidewire_core::gc::{Claim, GcReport, Holder};
use tidewire_core::id::ClusterId;
use tidewire_core::limits::Limits;
use tidewire_core::meta::MemMeta;
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;
use tidewire_tests::{SimClock, World, virtual_time};
use tokio::time::Instant;

async fn write(world: &World, at: usize, from: u32, count: u32) {
    let tree = world.sites[at].tree().expect("it runs");
    for key in from..from + count {
        tree.put(format!("key {key}"), vec![7; 300]).await.expect("written");
    }
}

/// Until what was written has been acknowledged, and that is stored.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

async fn gc(world: &World, at: usize, dry_run: bool) -> GcReport {
    world.sites[at].cluster().expect("it runs").gc("t", dry_run).await.expect("a pass")
}

/// What is retained lies at or above what is asked for, but for the segment that this is in.
fn assert_within_one_segment(report: &GcReport) {
    let surplus = report.after.retained_bytes - report.held_bytes;
    assert!(surplus <= Limits::tiny().segment_bytes_max, "{surplus} bytes too many: {report:?}");
    assert!(report.after.first <= report.keep, "{report:?}");
}

fn claim<'a>(report: &'a GcReport, name: &str) -> Option<&'a Claim> {
    report.consumers.iter().find(|consumer| consumer.name == name).map(|consumer| &consumer.claim)
}

#[test]
fn f17_with_a_slow_a_dead_and_a_removed_consumer_what_is_retained_is_what_the_report_says() {
    virtual_time(async {
        // Slow is b, dead from the middle on is c, removed at the end.
        let mut world = World::new(7, 3);
        world.start_all().await;
        write(&world, 0, 0, 300).await;
        settle().await;
        let all = gc(&world, 0, false).await;
        assert!(all.trimmed_records > 250, "everybody has it: {all:?}");
        assert_within_one_segment(&all);

        // A dead consumer holds the log from where it died.
        world.sites[2].crash().await;
        write(&world, 0, 300, 300).await;
        settle().await;
        let dead = gc(&world, 0, false).await;
        assert_eq!(dead.holder, Holder::Consumer("peer c".into()));
        assert_within_one_segment(&dead);
        assert!(dead.held_bytes > 250 * 300, "{dead:?}");
        let status = world.sites[0].cluster().expect("runs").status();
        let pinned = status.trees[0].log.pinned_by.clone().expect("somebody holds it");
        assert_eq!((pinned.consumer.as_str(), pinned.bytes), ("peer c", dead.held_bytes));
        assert_eq!(status.trees[0].log.retained_bytes, dead.after.retained_bytes);

        // A slow one holds less than a dead one; without the dead one it is the one that holds.
        let (a, b) = (world.sites[0].id().clone(), world.sites[1].id().clone());
        world.network.cut(&a, &b);
        write(&world, 0, 600, 200).await;
        settle().await;
        let before = gc(&world, 0, true).await;
        assert_eq!(before.holder, Holder::Consumer("peer c".into()));
        let freed = world.sites[0].cluster().expect("runs").remove_peer("c").await.expect("removed");
        let slow = gc(&world, 0, false).await;
        assert_eq!(slow.holder, Holder::Consumer("peer b".into()));
        assert_eq!(claim(&slow, "peer c"), None, "its hold is gone");
        assert_eq!(freed, before.held_bytes - slow.held_bytes, "removal says how much it frees");
        assert!(slow.trimmed_bytes + Limits::tiny().segment_bytes_max >= freed);
        assert_within_one_segment(&slow);

        // Nothing that the slow one needs has gone.
        world.network.heal(&a, &b);
        settle().await;
        let (here, there) = (world.sites[0].tree().expect("runs"), world.sites[1].tree().expect("runs"));
        assert_eq!(here.digest().digest, there.digest().digest);
    });
}

#[test]
fn a_dry_run_says_what_a_pass_then_does_and_changes_nothing() {
    virtual_time(async {
        let mut world = World::new(8, 2);
        world.start_all().await;
        write(&world, 0, 0, 300).await;
        settle().await;
        let said = gc(&world, 0, true).await;
        assert_eq!(gc(&world, 0, true).await, said, "it changed nothing");
        assert!(said.trimmed_records > 200 && said.snapshots == 1, "{said:?}");
        let done = gc(&world, 0, false).await;
        assert_eq!((done.before.first, done.before.next), (said.before.first, said.before.next));
        assert_eq!((done.trimmed_records, done.trimmed_bytes), (said.trimmed_records, said.trimmed_bytes));
        assert_eq!((done.after.first, done.after.records), (said.after.first, said.after.records));
    });
}

#[test]
fn what_a_pass_has_left_opens_again_with_everything_that_was_written() {
    virtual_time(async {
        for seed in 0..10 {
            let mut world = World::new(seed, 2);
            world.start_all().await;
            for round in 0..4 {
                write(&world, 0, round * 80, 80).await;
                settle().await;
                let report = gc(&world, 0, false).await;
                let digest = world.sites[0].tree().expect("runs").digest();
                let next = report.after.next;
                world.sites[0].crash().await;
                world.start(0).await;
                let tree = world.sites[0].tree().expect("runs");
                assert_eq!(tree.digest().digest, digest.digest, "seed {seed}");
                assert_eq!(tree.bounds().first, report.after.first, "seed {seed}");
                assert!(tree.bounds().next >= next, "positions go on");
            }
            settle().await;
            let (here, there) = (world.sites[0].tree().expect("runs"), world.sites[1].tree().expect("runs"));
            assert_eq!(here.digest().digest, there.digest().digest, "seed {seed}");
        }
    });
}

#[test]
fn f28_a_receiver_that_lacks_what_was_trimmed_is_seeded_and_never_skips() {
    virtual_time(async {
        let mut world = World::new(9, 2);
        world.start_all().await;
        write(&world, 0, 0, 100).await;
        settle().await;
        let old = world.sites[1].backup();
        write(&world, 0, 100, 200).await;
        settle().await;
        assert!(gc(&world, 0, false).await.trimmed_records > 150);
        world.sites[1].crash().await;
        world.sites[1].restore(old);
        world.start(1).await;
        settle().await;
        let (here, there) = (world.sites[0].tree().expect("runs"), world.sites[1].tree().expect("runs"));
        assert_eq!(here.digest().digest, there.digest().digest, "{}", world.account());
        assert_eq!(world.sites[1].counter("tidewire_reseeds_total"), 1);
        // It holds the log again, and writes go on.
        write(&world, 0, 300, 100).await;
        settle().await;
        assert_eq!(here.digest().digest, there.digest().digest);
        let report = gc(&world, 0, false).await;
        assert_within_one_segment(&report);
    });
}

#[test]
fn f33_a_pass_that_cannot_store_its_trim_point_removes_nothing() {
    virtual_time(async {
        let mut world = World::new(10, 2);
        world.start_all().await;
        write(&world, 0, 0, 300).await;
        settle().await;
        let cluster = world.sites[0].cluster().expect("runs").clone();
        let before = world.sites[0].tree().expect("runs").bounds();
        world.sites[0].faults.fail_all(DiskOperation::Rename);
        cluster.gc("t", false).await.expect_err("nothing can be stored");
        world.sites[0].faults.heal();
        assert_eq!(world.sites[0].tree().expect("runs").bounds().first, before.first);
        assert!(cluster.gc("t", false).await.expect("a pass").trimmed_records > 200);
        assert!(cluster.gc("nowhere", false).await.is_err());
    });
}

#[test]
fn f17_a_peer_that_is_not_listed_any_more_holds_nothing_after_a_restart() {
    virtual_time(async {
        let (random, disk, meta) = (Random::from_seed(11), MemDisk::new(), MemMeta::new());
        let (network, began) = (MemNetwork::new(&random), Instant::now());
        let open = || async {
            let mut config = ClusterConfig::new("a", "/data/a");
            config.trees = vec![TreeConfig::new("t")];
            let builder = Cluster::builder(config)
                .disk(Arc::new(disk.clone()))
                .meta(Arc::new(meta.clone()))
                .wall(Arc::new(SimClock::new(began, 0)))
                .transport(Arc::new(network.endpoint(&ClusterId::new("a").expect("a name"))))
                .random(random.fork())
                .limits(Limits::tiny())
                .simulated(Duration::from_millis(3));
            builder.open().await.expect("opens")
        };
        let cluster = open().await;
        cluster.add_peer(Peer::new("gone", "mem://gone")).await.expect("added");
        let tree = cluster.tree("t").await.expect("open");
        for key in 0..300 {
            tree.put(format!("key {key}"), vec![7; 300]).await.expect("written");
        }
        assert_eq!(cluster.release_unlisted_peers().await.expect("stored"), 0, "it is listed");
        let held = cluster.gc("t", false).await.expect("a pass");
        assert_eq!((held.trimmed_records, held.holder), (0, Holder::Consumer("peer gone".into())));
        drop(tree);
        cluster.shutdown().await.expect("a clean stop");
        drop(cluster);

        let cluster = open().await;
        let freed = cluster.release_unlisted_peers().await.expect("stored");
        assert_eq!(freed, held.after.retained_bytes);
        let free = cluster.gc("t", false).await.expect("a pass");
        assert!(free.trimmed_records > 250 && free.consumers.is_empty(), "{free:?}");
        cluster.shutdown().await.expect("a clean stop");
    });
}
