//! The flow between clusters, as a whole: pauses, live writes beside a backlog, tokens, and what the metrics say.

use std::time::Duration;

use tidewire::Tree;
use tidewire::status::{Direction, PeerState};
use tidewire_core::error::ErrorKind;
use tidewire_core::limits::Limits;
use tidewire_tests::{Edge, World, virtual_time};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(60);

fn tree(world: &World, at: usize) -> Tree {
    world.sites[at].tree().expect("it runs")
}

/// State and reason of a site's link with a peer.
fn link(world: &World, at: usize, peer: &str, direction: Direction) -> (PeerState, String) {
    let peers = world.sites[at].cluster().expect("it runs").status().peers;
    let link = peers.into_iter().find(|link| link.id == peer && link.direction == direction);
    let link = link.expect("the link is listed");
    (link.state, link.reason.unwrap_or_default())
}

#[test]
fn f30_a_full_disk_pauses_the_senders_by_name_at_both_ends_until_there_is_room() {
    virtual_time(async {
        let mut world = World::new(1, 2);
        world.start_all().await;
        tree(&world, 0).put("before", "1").await.expect("a write");
        world.demand_convergence(PATIENCE).await;
        world.sites[1].faults.fill();
        for n in 0..50 {
            tree(&world, 0).put(format!("k{n}"), "value").await.expect("the disk of the writer has room");
        }
        sleep(Duration::from_secs(5)).await;
        let (state, reason) = link(&world, 0, "b", Direction::Send);
        assert_eq!(state, PeerState::Waiting, "{reason}");
        assert!(reason.starts_with("b asks for a pause (disk_full)"), "{reason}");
        let (state, reason) = link(&world, 1, "a", Direction::Receive);
        assert_eq!(state, PeerState::Waiting, "{reason}");
        assert!(reason.starts_with("a is asked to pause (disk_full)"), "{reason}");
        assert_eq!(world.counters("tidewire_link_paused"), [1, 1]);
        // Hours change nothing: the link stays, and nothing is dropped.
        sleep(Duration::from_secs(3 * 3_600)).await;
        assert_eq!(world.counters("tidewire_link_paused"), [1, 1]);
        world.sites[1].faults.heal();
        world.demand_convergence(PATIENCE).await;
        assert_eq!(world.counters("tidewire_link_paused"), [0, 0]);
        assert_eq!(link(&world, 0, "b", Direction::Send).0, PeerState::CaughtUp);
    });
}

#[test]
fn a_token_reads_what_was_written_on_every_cluster_and_waits_no_longer_than_it_is_told() {
    virtual_time(async {
        let mut world = World::new(2, 3);
        let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
        let delay = Duration::from_millis(50);
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            world.network.set_delay(&ids[a], &ids[b], delay, delay);
        }
        world.start_all().await;
        let mut stale = 0;
        for turn in 0..30 {
            let (here, there) = (tree(&world, turn % 3), tree(&world, (turn + 1 + turn % 2) % 3));
            let version = here.put("key", format!("{turn}")).await.expect("a write");
            let token = here.token(version);
            let is_there =
                || there.get("key").is_some_and(|entry| entry.value == format!("{turn}").as_bytes());
            stale += usize::from(!is_there());
            there.wait_for(&token, PATIENCE).await.expect("it arrives");
            assert!(is_there(), "turn {turn}: one's own write is read");
            // And what was read is carried on: a later token of the other cluster stands for it too.
            let next = there.put("other", "x").await.expect("a write");
            let third = tree(&world, (turn + 2 - turn % 2) % 3);
            third.wait_for(&there.token(next), PATIENCE).await.expect("it arrives");
            assert!(third.get("key").is_some_and(|entry| entry.value == format!("{turn}").as_bytes()));
        }
        assert!(stale > 20, "the token waited for something: {stale}");
        world.network.cut(&ids[0], &ids[1]);
        world.network.cut(&ids[0], &ids[2]);
        let version = tree(&world, 0).put("key", "cut off").await.expect("a write");
        let (token, began) = (tree(&world, 0).token(version), Instant::now());
        let error = tree(&world, 1).wait_for(&token, Duration::from_millis(300)).await.expect_err("a cut");
        assert_eq!((error.kind(), began.elapsed().as_millis()), (ErrorKind::Conflict, 300));
        assert!(error.to_string().contains("writes of a up to"), "{error}");
        tree(&world, 0).wait_for(&token, Duration::ZERO).await.expect("its own write is there at once");
        world.network.heal_all();
        tree(&world, 1).wait_for(&token, PATIENCE).await.expect("it arrives after all");
    });
}

/// How long a write takes from one site until another one has it.
async fn way(world: &World, from: usize, to: usize, key: String) -> Duration {
    let (here, there) = (tree(world, from), tree(world, to));
    let began = Instant::now();
    let version = here.put(key, "live").await.expect("a write");
    there.wait_for(&here.token(version), PATIENCE).await.expect("it arrives");
    began.elapsed()
}

#[test]
fn live_writes_of_others_keep_their_latency_while_a_backlog_drains() {
    virtual_time(async {
        let edge = |from, to| Edge { from, to, forward: false };
        let mut world = World::of_edges(3, 3, &[edge(0, 2), edge(1, 2)], &Limits::default());
        world.network = world.network.clone().with_window(64 * 1024);
        let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
        let delay = Duration::from_millis(20);
        (0..2).for_each(|at| world.network.set_delay(&ids[at], &ids[2], delay, delay));
        world.start_all().await;
        let mut normal = Vec::new();
        for n in 0..40 {
            normal.push(way(&world, 1, 2, format!("live-{n}")).await);
        }
        world.network.cut(&ids[0], &ids[2]);
        const BACKLOG: u64 = 3_000;
        for n in 0..BACKLOG {
            tree(&world, 0).put(format!("old-{n:05}"), vec![7; 4_000]).await.expect("a write");
        }
        // Hours apart, as long as nobody writes.
        sleep(Duration::from_secs(2 * 3_600)).await;
        world.network.heal(&ids[0], &ids[2]);
        let held = |world: &World| world.sites[2].applied().get("a").copied().unwrap_or(0);
        let (mut beside, began) = (Vec::new(), Instant::now());
        while held(&world) < BACKLOG {
            let before = held(&world);
            let took = way(&world, 1, 2, format!("beside-{}", beside.len())).await;
            if before > 0 && held(&world) < BACKLOG {
                beside.push(took);
            }
            assert!(began.elapsed() < Duration::from_secs(300), "the backlog does not drain");
        }
        assert!(beside.len() >= 5, "{} writes while it drained", beside.len());
        let (mut normal, mut live) = (normal, beside);
        normal.sort();
        live.sort();
        let middle = |all: &[Duration]| all[all.len() / 2];
        println!(
            "{} live writes beside the backlog: {:?} and at most {:?}; else {:?} and at most {:?}",
            live.len(),
            middle(&live),
            live[live.len() - 1],
            middle(&normal),
            normal[normal.len() - 1]
        );
        assert!(middle(&live) <= middle(&normal).mul_f64(1.2), "{live:?} beside {normal:?}");
        assert!(live[live.len() - 1] <= normal[normal.len() - 1].mul_f64(1.2), "{live:?} beside {normal:?}");
    });
}

#[test]
fn f51_the_metrics_that_others_rely_on_are_there_from_the_start() {
    virtual_time(async {
        let mut world = World::new(4, 2);
        world.start_all().await;
        let zeros = [
            "tidewire_committed_records_total",
            "tidewire_shipped_records_total",
            "tidewire_applied_records_total",
            "tidewire_own_origin_refused_total",
            "tidewire_duplicate_records_total",
            "tidewire_gap_refused_total",
            "tidewire_lag_entries",
            "tidewire_lag_bytes",
            "tidewire_lag_seconds",
            "tidewire_held_bytes",
            "tidewire_wal_trimmed_records_total",
            "tidewire_commit_seconds_count",
            "tidewire_flush_seconds_count",
            "tidewire_receive_lag_entries",
            "tidewire_receive_lag_bytes",
            "tidewire_receive_lag_seconds",
            "tidewire_refused_total",
            "tidewire_link_paused",
            "tidewire_rate_limited",
            "tidewire_wire_bytes_total",
            "tidewire_end_to_end_seconds_count",
        ];
        for name in zeros {
            assert_eq!(world.counters(name), [0, 0], "{name}");
        }
        for name in ["tidewire_frontier_hlc_ms", "tidewire_wal_retained_bytes", "tidewire_wal_physical_bytes"]
        {
            world.counters(name);
        }
        tree(&world, 0).put("k", "v").await.expect("a write");
        world.demand_convergence(PATIENCE).await;
        assert_eq!(world.sites[1].counter("tidewire_end_to_end_seconds_count"), 1, "one group came");
        sleep(Duration::from_secs(30)).await;
        world.sites.iter().for_each(|site| {
            let age = site.counter("tidewire_frontier_age_seconds");
            assert!(age <= 3, "idle clusters promise all the time: {age} s");
        });
        let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
        world.network.cut(&ids[0], &ids[1]);
        tree(&world, 0).put("k", "w").await.expect("a write");
        sleep(Duration::from_secs(100)).await;
        for name in ["tidewire_lag_seconds", "tidewire_receive_lag_seconds", "tidewire_frontier_age_seconds"]
        {
            let seen = if name == "tidewire_lag_seconds" { 0 } else { 1 };
            let seconds = world.sites[seen].counter(name);
            assert!(seconds >= 90, "{name}: {seconds}, though nothing arrives");
        }
    });
}
