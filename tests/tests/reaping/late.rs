//! What comes too late over the own link of the site that wrote it: nothing is brought back, and nothing that this site
//! alone has is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_core::random::Random;
use tidewire_core::record::RecordView;
use tidewire_tests::{World, seeds, virtual_time};
use tokio::time::sleep;

use super::{demand_forgotten, reaping, value, write};

/// The keys that are parked on a site.
fn parked(world: &World, at: usize) -> BTreeSet<String> {
    let letters = world.sites[at].tree().expect("runs").dead_letters();
    let key = |bytes: &[u8]| RecordView::parse(bytes).expect("readable").0.key.to_vec();
    letters.iter().map(|letter| String::from_utf8(key(&letter.bytes)).expect("text")).collect()
}

fn reasons(world: &World, at: usize) -> String {
    let peers = world.sites[at].cluster().expect("runs").status().peers;
    peers.into_iter().filter_map(|peer| peer.reason).collect::<Vec<_>>().join("; ")
}

/// b writes alone, and a, to which it is unknown, deletes one of its keys and forgets that. Then a hears of b.
async fn meets(letters: &str) -> World {
    let mut world = World::with_limits(3, 2, &reaping());
    world.sites[0].configure(|tree| tree.dead_letter_bytes = letters.parse().expect("a size"));
    world.start(1).await;
    write(&world, 1, "k").await;
    write(&world, 1, "of b alone").await;
    world.sites[0].alone();
    world.start(0).await;
    sleep(Duration::from_secs(5)).await;
    world.sites[0].tree().expect("runs").delete("k").await.expect("deleted");
    demand_forgotten(&world, 0).await;
    let id = world.sites[1].id().clone();
    world.sites[0].connect(&id);
    world.sites[0].join().await;
    sleep(Duration::from_secs(40)).await;
    assert_eq!(value(&world, 0, "k"), None, "it is not brought back");
    world
}

#[test]
fn f18_what_a_site_that_nobody_waited_for_wrote_is_parked_over_its_own_link_and_the_link_goes_on() {
    virtual_time(async {
        let mut world = meets("1MiB").await;
        assert_eq!(parked(&world, 0), BTreeSet::from(["k".to_owned(), "of b alone".to_owned()]));
        write(&world, 1, "since").await;
        write(&world, 0, "of a").await;
        sleep(Duration::from_secs(5)).await;
        assert!(
            value(&world, 0, "since").is_some() && value(&world, 1, "of a").is_some(),
            "{}",
            world.account()
        );
        assert_eq!(reasons(&world, 0) + &reasons(&world, 1), "");
        // The way out that the letters name.
        let a = world.sites[0].tree().expect("runs");
        for letter in a.dead_letters() {
            assert!(letter.reason.contains("write it anew"), "{letter:?}");
        }
        a.put("of b alone", "anew").await.expect("written");
        a.delete("k").await.expect("deleted");
        for letter in a.dead_letters() {
            a.drop_letter(letter.dot()).await.expect("dropped");
        }
        drop(a);
        world.demand_convergence(Duration::from_secs(60)).await;
        assert!(value(&world, 1, "of b alone").is_some() && value(&world, 1, "k").is_none());
        for at in 0..2 {
            demand_forgotten(&world, at).await;
        }
    });
}

#[test]
fn f18_where_there_is_no_room_its_own_link_is_refused_and_says_how_nothing_is_lost() {
    for (letters, kind) in [("0B", "reaped"), ("150B", "dead_letters_full")] {
        virtual_time(async {
            let mut world = meets(letters).await;
            assert_eq!(parked(&world, 0).len(), 0);
            let said = reasons(&world, 1);
            for part in [kind, "too late", "dead_letter_bytes", "write anew"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert!(value(&world, 1, "of b alone").is_some());
            world.sites[0].tree().expect("runs").snapshot().await.expect("written");
            world.sites[0].crash().await;
            world.sites[0].configure(|tree| tree.dead_letter_bytes = "1MiB".parse().expect("a size"));
            world.start(0).await;
            sleep(Duration::from_secs(60)).await;
            assert_eq!(parked(&world, 0), BTreeSet::from(["k".to_owned(), "of b alone".to_owned()]));
        });
    }
}

/// Has the first two sites count another one out, once they have noticed that it is away.
async fn seal(world: &World, name: &str) {
    for at in 0..2 {
        let cluster = world.sites[at].cluster().expect("runs").clone();
        let mut tries = 0;
        while let Err(error) = cluster.seal_peer(name).await {
            tries += 1;
            assert!(tries < 120, "{error}");
            sleep(Duration::from_millis(500)).await;
        }
    }
}

#[test]
fn f17_f18_a_site_that_was_sealed_out_and_returns_loses_nothing_that_it_alone_has() {
    let mut late = 0;
    for seed in seeds(16) {
        virtual_time(async {
            let mut world = World::with_limits(seed, 3, &reaping());
            let random = Random::from_seed(seed ^ 0x1A7E);
            world.start_all().await;
            for number in 0..10 {
                write(&world, 0, format!("k{number}")).await;
            }
            world.demand_convergence(Duration::from_secs(60)).await;
            world.isolate(2);
            let mut own = BTreeSet::new();
            for turn in 0..12 {
                let name = format!("own{turn}");
                write(&world, 2, name.clone()).await;
                own.insert(name);
                // What the others delete as well.
                write(&world, 2, format!("k{}", random.below(10))).await;
                if turn == 3 {
                    seal(&world, "c").await;
                }
                let tree = world.sites[usize::try_from(random.below(2)).expect("few")].tree().expect("runs");
                tree.delete(format!("k{}", random.below(10))).await.expect("deleted");
                sleep(Duration::from_millis(random.below(600))).await;
                if random.chance(0.2) {
                    let at = usize::try_from(random.below(3)).expect("few");
                    world.sites[at].crash().await;
                    world.start(at).await;
                }
            }
            for at in 0..2 {
                demand_forgotten(&world, at).await;
            }
            world.heal().await;
            for at in 0..2 {
                let cluster = world.sites[at].cluster().expect("runs").clone();
                cluster.resume_peer("c").await.expect("it may return");
                sleep(Duration::from_millis(random.below(2_000))).await;
            }
            // By the slowest clock it is later than what nothing waited for.
            sleep(Duration::from_secs(2)).await;
            write(&world, 2, "since").await;
            sleep(Duration::from_secs(90)).await;
            for at in 0..2 {
                assert!(value(&world, at, "since").is_some(), "seed {seed}: {}", world.account());
                let listed = parked(&world, at);
                let lost = |key: &&String| value(&world, at, key).is_none() && !listed.contains(*key);
                let lost: Vec<_> = own.iter().filter(lost).collect();
                assert!(lost.is_empty(), "seed {seed}: {lost:?} on {at}: {}", world.account());
                late += listed.len();
            }
        });
    }
    assert!(late > 20, "{late}");
}
