//! Whoever sees a write sees what its author had seen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidewire::Tree;
use tidewire_tests::{World, virtual_time};
use tokio::task::LocalSet;
use tokio::time::Instant;

const DELAY: Duration = Duration::from_millis(500);
/// How soon a waiting reader looks again.
const LOOK: Duration = Duration::from_millis(1);

/// What became of the rounds.
#[derive(Default)]
struct Rounds {
    next: Cell<u64>,
    done: Cell<u64>,
    /// Rounds in which C showed y long after B had it, so that something must have been held back.
    held: Cell<u64>,
    wrong: RefCell<Vec<u64>>,
    /// The y that C does not show yet.
    open: RefCell<BTreeMap<u64, Instant>>,
}

/// One of those who take turns: x on A; when B shows it, y on B; when C shows that, x must be there.
async fn take_turns(rounds: Rc<Rounds>, count: u64, [a, b, c]: [Tree; 3]) {
    loop {
        let round = rounds.next.get();
        if round == count {
            return;
        }
        rounds.next.set(round + 1);
        let (x, y) = (format!("x{round}"), format!("y{round}"));
        a.put(x.clone(), "cause").await.expect("a takes writes");
        while b.get(&x).is_none() {
            tokio::time::sleep(LOOK).await;
        }
        b.put(y.clone(), "effect").await.expect("b takes writes");
        rounds.open.borrow_mut().insert(round, Instant::now());
        while c.get(&y).is_none() {
            tokio::time::sleep(LOOK).await;
        }
        rounds.done.set(rounds.done.get() + 1);
    }
}

/// The reader on C that looks at every open round all the time: y first, then x.
async fn read_all(rounds: Rc<Rounds>, c: Tree) {
    loop {
        rounds.open.borrow_mut().retain(|round, since| {
            if c.get(format!("y{round}")).is_none() {
                return true;
            }
            if c.get(format!("x{round}")).is_none() {
                rounds.wrong.borrow_mut().push(*round);
            }
            rounds.held.set(rounds.held.get() + u64::from(since.elapsed() > DELAY / 2));
            false
        });
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(LOOK / 2).await;
    }
}

/// Runs the rounds while `meanwhile` does its worst.
async fn run(world: &World, count: u64, meanwhile: impl Future<Output = ()>) -> Rc<Rounds> {
    let trees = [0, 1, 2].map(|at: usize| world.sites[at].tree().expect("it runs"));
    let rounds = Rc::new(Rounds::default());
    let local = LocalSet::new();
    let reader = local.spawn_local(read_all(rounds.clone(), trees[2].clone()));
    let turns: Vec<_> =
        (0..50).map(|_| local.spawn_local(take_turns(rounds.clone(), count, trees.clone()))).collect();
    let all = local.run_until(async {
        meanwhile.await;
        for turn in turns {
            turn.await.expect("every round ends");
        }
        while !rounds.open.borrow().is_empty() {
            tokio::time::sleep(LOOK).await;
        }
        reader.abort();
    });
    let patience = Duration::from_secs(300);
    assert!(tokio::time::timeout(patience, all).await.is_ok(), "rounds hang: {}", world.account());
    rounds
}

async fn three() -> World {
    let mut world = World::new(7, 3);
    world.start_all().await;
    let (a, c) = (world.sites[0].id(), world.sites[2].id());
    world.network.set_delay(a, c, DELAY, DELAY);
    world
}

#[test]
fn who_sees_y_never_misses_x_though_x_comes_later() {
    virtual_time(async {
        let mut world = three().await;
        let rounds = run(&world, 1_000, async {}).await;
        assert_eq!(*rounds.wrong.borrow(), Vec::<u64>::new(), "y without x");
        assert_eq!(rounds.done.get(), 1_000);
        assert!(rounds.held.get() > 900, "only {} rounds had anything to hold back", rounds.held.get());
        world.demand_convergence(Duration::from_secs(60)).await;
    });
}

#[test]
fn who_sees_y_never_misses_x_while_the_way_of_x_is_cut() {
    for cut in [3, 25] {
        virtual_time(async {
            let mut world = three().await;
            let (network, a, c) =
                (world.network.clone(), world.sites[0].id().clone(), world.sites[2].id().clone());
            let rounds = run(&world, 400, async {
                tokio::time::sleep(Duration::from_millis(900)).await;
                network.cut(&a, &c);
                tokio::time::sleep(Duration::from_secs(cut)).await;
                network.heal(&a, &c);
            })
            .await;
            assert_eq!(*rounds.wrong.borrow(), Vec::<u64>::new(), "y without x, cut for {cut} s");
            assert_eq!(rounds.done.get(), 400);
            world.demand_convergence(Duration::from_secs(60)).await;
        });
    }
}
