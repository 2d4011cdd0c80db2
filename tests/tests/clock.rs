//! Clocks that are wrong: refused in time, never believed, never repeated.

use std::time::Duration;

use tidewire::status::{Direction, HealthState, PeerState};
use tidewire_core::clock::WallClock;
use tidewire_core::tree::ApplyTarget;
use tidewire_tests::{World, virtual_time};

const SECOND: Duration = Duration::from_secs(1);

/// How far a version of a site is ahead of true time, in milliseconds.
async fn ahead(world: &World, at: usize) -> i64 {
    let tree = world.sites[at].tree().expect("it runs");
    let version = tree.put("probe", "p").await.expect("it takes writes");
    i64::try_from(version.hlc.millis()).expect("small") - i64::try_from(wall(world, at)).expect("small")
}

fn wall(world: &World, at: usize) -> u64 {
    world.sites[at].clock.now_millis()
}

async fn right_clocks(seed: u64, sites: usize) -> World {
    let mut world = World::new(seed, sites);
    for site in &world.sites {
        site.clock.set_offset(0);
    }
    world.start_all().await;
    world
}

#[test]
fn f20_a_clock_far_ahead_is_refused_with_its_figure_and_goes_on_when_it_is_right() {
    virtual_time(async {
        let mut world = right_clocks(1, 3).await;
        let trees = [0, 1, 2].map(|at: usize| world.sites[at].tree().expect("it runs"));
        trees[0].put("before", "1").await.expect("a takes writes");
        tokio::time::sleep(SECOND).await;
        world.sites[0].clock.set_offset(60_000);
        trees[0].put("early", "1").await.expect("a takes writes");
        tokio::time::sleep(5 * SECOND).await;

        for at in [1, 2] {
            assert!(trees[at].get("before").is_some());
            assert!(trees[at].get("early").is_none(), "a write 60 s ahead was taken");
            assert!(ahead(&world, at).await < 1_000, "the clock of {at} was poisoned");
        }
        for at in [1, 2] {
            let health = world.sites[at].cluster().expect("it runs").status().health;
            let said = health.reasons.join("\n");
            assert_eq!(health.state, HealthState::Degraded, "{said}");
            assert!(said.contains("the clock of a is") && said.contains(" ms ahead"), "{said}");
        }
        let status = world.sites[0].cluster().expect("it runs").status();
        let sending: Vec<_> = status.peers.iter().filter(|peer| peer.direction == Direction::Send).collect();
        assert_eq!(sending.len(), 2);
        for peer in sending {
            let reason = peer.reason.clone().unwrap_or_default();
            assert_eq!(peer.state, PeerState::Refused, "{reason}");
            assert!(reason.contains("clock_skew"), "{reason}");
            let figure = reason.split(|c: char| !c.is_ascii_digit()).any(|number| {
                number.parse::<u64>().is_ok_and(|n| (50..=60).contains(&n) || (50_000..=60_000).contains(&n))
            });
            assert!(figure, "the figure is missing: {reason}");
        }

        world.sites[0].clock.set_offset(0);
        tokio::time::sleep(65 * SECOND).await;
        world.demand_convergence(60 * SECOND).await;
        assert!(trees[1].get("early").is_some() && trees[2].get("early").is_some());
    });
}

#[test]
fn f03_a_wall_clock_set_back_over_a_restart_breaks_no_promise() {
    virtual_time(async {
        let mut world = right_clocks(2, 2).await;
        let origin = world.sites[0].id().tag();
        let [a, b] = [0, 1].map(|at: usize| world.sites[at].tree().expect("it runs"));
        a.put("k", "1").await.expect("a takes writes");
        // Long enough for promises without records, which no log keeps.
        tokio::time::sleep(10 * SECOND).await;
        let promised = b.progress().frontier.get(origin);
        drop(a);
        world.sites[0].crash().await;
        world.sites[0].clock.set_offset(-60_000);
        world.start(0).await;
        let a = world.sites[0].tree().expect("it runs");
        let version = a.put("k", "2").await.expect("a takes writes");
        assert!(version.hlc > promised, "{} was promised, {} given out", promised, version.hlc);
        world.demand_convergence(60 * SECOND).await;
        assert_eq!(b.get("k").map(|value| value.value), Some("2".into()));
    });
}

#[test]
fn after_a_restart_a_write_wins_over_what_it_replaces() {
    virtual_time(async {
        let mut world = right_clocks(3, 2).await;
        world.sites[0].clock.set_offset(20_000);
        let a = world.sites[0].tree().expect("it runs");
        a.put("k", "of a clock that is ahead").await.expect("a takes writes");
        // Power is lost the moment it is visible: no promise of b has carried its stored ceiling that far yet.
        while world.sites[1].tree().expect("it runs").get("k").is_none() {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        world.sites[1].crash().await;
        world.start(1).await;
        let b = world.sites[1].tree().expect("it runs");
        b.put("k", "of who had read it").await.expect("b takes writes");
        world.demand_convergence(60 * SECOND).await;
        for tree in [a, b] {
            assert_eq!(tree.get("k").map(|value| value.value), Some("of who had read it".into()));
        }
    });
}

#[test]
fn f56_thirty_kills_in_a_row_leave_the_clock_less_than_five_seconds_ahead() {
    virtual_time(async {
        let mut world = right_clocks(4, 2).await;
        for _ in 0..30 {
            ahead(&world, 0).await;
            world.sites[0].crash().await;
            world.start(0).await;
        }
        let ahead = ahead(&world, 0).await;
        assert!((0..5_000).contains(&ahead), "{ahead} ms ahead");
        world.demand_convergence(60 * SECOND).await;
    });
}
