//! What was forgotten and could still be met: by the seed of a site that has not heard of it, by a letter that is parked.

use std::time::Duration;

use tidewire_tests::{World, virtual_time};
use tokio::time::sleep;

use super::{demand_forgotten, graves, reaping, value};

#[test]
fn f45_a_seed_of_a_site_that_has_not_heard_of_a_deletion_does_not_bring_back_what_was_forgotten() {
    virtual_time(async {
        let mut world = World::with_limits(6, 3, &reaping());
        world.start_all().await;
        let c = world.sites[2].tree().expect("runs");
        c.put("k", "there").await.expect("written");
        world.demand_convergence(Duration::from_secs(60)).await;
        // What c writes reaches a alone, which forgets it: everything older has come.
        world.network.cut_one_way(world.sites[2].id(), world.sites[1].id());
        c.delete("k").await.expect("deleted");
        drop(c);
        sleep(Duration::from_secs(1)).await;
        demand_forgotten(&world, 0).await;
        assert_eq!((value(&world, 0, "k"), value(&world, 1, "k").is_some()), (None, true));
        let a = world.sites[0].cluster().expect("runs").clone();
        a.reseed("b", None).await.expect("asked");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((world.sites[0].counter("tidewire_reseeds_total"), value(&world, 0, "k")), (1, None));
        drop(a);
        world.heal().await;
        world.demand_convergence(Duration::from_secs(60)).await;
        for at in 0..3 {
            assert_eq!(value(&world, at, "k"), None);
            demand_forgotten(&world, at).await;
        }
    });
}

#[test]
fn what_is_parked_keeps_the_dead_that_it_may_still_meet() {
    virtual_time(async {
        let mut world = World::with_limits(7, 3, &reaping());
        world.sites[2].limit(|limits| limits.max_record_bytes = 2 * 1024);
        world.start_all().await;
        let a = world.sites[0].tree().expect("runs");
        a.put("k", vec![1; 4 * 1024]).await.expect("written");
        a.put("behind", "1").await.expect("written");
        sleep(Duration::from_secs(2)).await;
        assert!(value(&world, 2, "behind").is_some());
        assert_eq!(world.sites[2].tree().expect("runs").dead_letters().len(), 1);
        a.delete("k").await.expect("deleted");
        drop(a);
        sleep(Duration::from_secs(20)).await;
        let kept = graves(&world, 2).tombstones;
        world.sites[2].stop().await;
        world.sites[2].limit(|limits| limits.max_record_bytes = 64 * 1024);
        world.start(2).await;
        let c = world.sites[2].tree().expect("runs");
        let letter = c.dead_letters().pop().expect("it waits");
        c.replay_letter(letter.dot()).await.expect("it can be applied now");
        drop(c);
        assert_eq!((value(&world, 2, "k"), kept), (None, 1), "what was deleted later than it stays deleted");
        world.demand_convergence(Duration::from_secs(60)).await;
        for at in 0..3 {
            demand_forgotten(&world, at).await;
        }
    });
}
