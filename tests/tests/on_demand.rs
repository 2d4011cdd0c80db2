//! A site that is cut off from another one: what waits for its writes, what is said of that, and who brings them.

use std::time::Duration;

use tidewire::config::Forward;
use tidewire::status::{Direction, PeerState, WaitingStatus};
use tidewire_core::limits::Limits;
use tidewire_tests::{Plan, World, seeds, virtual_time};

const SECOND: Duration = Duration::from_secs(1);

/// Every link of a mesh forwards on demand, or none does.
fn mesh(seed: u64, forward: Forward, limits: &Limits) -> World {
    let mut world = World::with_limits(seed, 3, limits);
    let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
    for site in &mut world.sites {
        for other in ids.iter().filter(|id| **id != *site.id()).cloned().collect::<Vec<_>>() {
            site.link(&other, true, forward);
        }
    }
    world
}

/// What waits at a site.
fn waiting(world: &World, at: usize) -> Vec<WaitingStatus> {
    world.sites[at].cluster().expect("it runs").status().trees[0].waiting.clone()
}

async fn put(world: &World, at: usize, key: &str) {
    let tree = world.sites[at].tree().expect("it runs");
    tree.put(key.to_owned(), "v").await.expect("written");
}

fn has(world: &World, at: usize, key: &str) -> bool {
    world.sites[at].tree().expect("it runs").get(key).is_some()
}

/// Cuts a from c; then a writes a cause, and b an effect when it has seen it.
async fn cause_and_effect(world: &mut World) {
    world.start_all().await;
    tokio::time::sleep(2 * SECOND).await;
    world.network.cut(world.sites[0].id(), world.sites[2].id());
    put(world, 0, "cause").await;
    tokio::time::sleep(SECOND).await;
    assert!(has(world, 1, "cause"));
    put(world, 1, "effect").await;
    tokio::time::sleep(3 * SECOND).await;
}

#[test]
fn f15_a_site_asks_its_neighbours_for_what_a_cut_link_does_not_bring_until_it_is_back() {
    virtual_time(async {
        let mut world = mesh(31, Forward::OnDemand, &Limits::tiny());
        cause_and_effect(&mut world).await;
        assert!(!has(&world, 2, "effect"), "it waits for its cause");
        assert!(waiting(&world, 2).iter().all(|held| !held.waits_for.asked), "not for long yet");
        tokio::time::sleep(5 * SECOND).await;
        assert!(has(&world, 2, "cause") && has(&world, 2, "effect"), "{}", world.account());
        assert_eq!(waiting(&world, 2), []);

        // From now on without any wait, though no effect of b calls for it.
        put(&world, 0, "alone").await;
        tokio::time::sleep(SECOND).await;
        assert!(has(&world, 2, "alone"), "{}", world.account());
        put(&world, 2, "back").await;
        tokio::time::sleep(SECOND).await;
        assert!(!has(&world, 0, "back"), "a has waited for nothing, so it has not asked");

        // The direct link is back: b is let off.
        world.heal().await;
        world.demand_convergence(60 * SECOND).await;
        tokio::time::sleep(40 * SECOND).await;
        let shipped = world.sites[1].counter("tidewire_shipped_records_total");
        for key in 0..20 {
            put(&world, 0, &format!("late {key}")).await;
        }
        world.demand_convergence(60 * SECOND).await;
        assert_eq!(world.sites[1].counter("tidewire_shipped_records_total"), shipped);
        world.demand_verbatim().await;
        world.demand_causal_order().await;
        world.demand_stillness().await;
    });
}

#[test]
fn f15_without_forwarding_the_status_names_what_is_waited_for_from_whom_since_when_and_what_it_pins() {
    virtual_time(async {
        let mut world = mesh(32, Forward::Never, &Limits::tiny());
        cause_and_effect(&mut world).await;
        let [held] = waiting(&world, 2).try_into().expect("one origin waits");
        assert_eq!((held.origin.as_str(), held.waits_for.origin.as_str()), ("b", "a"));
        assert!(held.bytes > 0 && held.waits_for.hlc.parse::<u64>().is_ok_and(|hlc| hlc > 0), "{held:?}");
        assert_eq!(held.waits_for.from.iter().map(|from| from.peer.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(held.pins.logs_of, ["b"]);
        let reached = held.pins.reaping_above.parse::<u64>().expect("an HLC");
        let frontier = world.sites[2].tree().expect("it runs").frontier();
        assert_eq!(reached, frontier.get(world.sites[1].id().tag()).get());

        tokio::time::sleep(70 * SECOND).await;
        let [later] = waiting(&world, 2).try_into().expect("one origin waits");
        // Whoever relays on demand would be asked by now; nobody does.
        assert!(!has(&world, 2, "effect") && later.waits_for.asked);
        assert_eq!(later.waits_for.from[0].state, PeerState::Connecting, "{later:?}");
        assert!(later.since_ms.abs_diff(held.since_ms) < 10, "{} {}", later.since_ms, held.since_ms);
        let status = world.sites[2].cluster().expect("it runs").status();
        let said = status.health.reasons.join("\n");
        assert!(
            said.contains("of b have waited")
                && said.contains("writes of a")
                && said.contains("a is connecting"),
            "{said}"
        );
        let status = world.sites[1].cluster().expect("it runs").status();
        let sending = status.peers.iter().find(|link| link.id == "c" && link.direction == Direction::Send);
        let sending = sending.expect("b sends to c");
        assert_eq!(sending.state, PeerState::Waiting);
        let pinned = status.trees[0].log.pinned_by.clone().expect("c holds b's log");
        assert_eq!(pinned.consumer, "peer c");

        world.heal().await;
        world.demand_convergence(60 * SECOND).await;
        assert_eq!(waiting(&world, 2), []);
    });
}

#[test]
fn sites_that_ask_each_other_among_faults_lose_nothing_and_hear_nothing_twice() {
    let mut asked = 0;
    for seed in seeds(12) {
        virtual_time(async {
            let limits = Limits { relay_after: Duration::from_millis(200), ..Limits::tiny() };
            let mut world = mesh(seed, Forward::OnDemand, &limits);
            let plan = Plan {
                sites: 3,
                writers: 2,
                keys: 2 + seed % 9,
                duration: Duration::from_secs(3),
                fault_every: Duration::from_millis(200),
            };
            world.run(&plan).await;
            world.demand_verbatim().await;
            world.demand_causal_order().await;
            let refused = world.counters("tidewire_own_origin_refused_total");
            assert_eq!(refused.iter().sum::<u64>(), 0, "seed {seed}");
            // Cut once more, for longer than anybody waits.
            world.network.cut(world.sites[0].id(), world.sites[2].id());
            put(&world, 0, "cause").await;
            tokio::time::sleep(SECOND).await;
            put(&world, 1, "effect").await;
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                asked += u32::from(waiting(&world, 2).iter().any(|held| held.waits_for.asked));
            }
            assert!(has(&world, 2, "effect"), "seed {seed}: {}", world.account());
        });
    }
    assert!(asked > 0, "nobody was ever seen asking");
}
