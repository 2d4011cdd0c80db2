//! Hours of partition with writes on both sides: what piled up drains, and live writes take as long as before.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::{Operation, Tree};
use tidewire_core::limits::Limits;
use tidewire_tests::{Edge, World, seeds, virtual_time};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

const HOURS: Duration = Duration::from_secs(3 * 3_600);
/// Each side writes a burst so often while they are apart.
const EVERY: Duration = Duration::from_secs(20);
const BURST: u64 = 12;
const VALUE: usize = 1_500;
/// On every link, each way.
const DELAY: Duration = Duration::from_millis(20);
/// Live writes come so often, however long those before them take.
const PACE: Duration = Duration::from_millis(50);
/// What a link may be behind and count as caught up.
const NEARLY: u64 = 100_000;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const LIVE: usize = 3;
/// Who writes live, and who waits for it. What the last two write depends on what they had of the backlog.
const WAYS: [(usize, usize); 5] = [(LIVE, A), (LIVE, B), (LIVE, C), (A, C), (C, A)];
/// How long those may differ in what they have of it.
const TOGETHER: Duration = Duration::from_secs(2);

/// Clusters a and c on one side, b on the other, all of them writing to each other; and one that only writes, to all.
fn world(seed: u64) -> World {
    let edge = |from, to| Edge { from, to, forward: false };
    let pairs = [(A, B), (A, C), (B, C)];
    let mut edges: Vec<Edge> = pairs.iter().flat_map(|(x, y)| [edge(*x, *y), edge(*y, *x)]).collect();
    edges.extend([A, B, C].map(|to| edge(LIVE, to)));
    let mut world = World::of_edges(seed, 4, &edges, &Limits::default());
    // A window of 64 KiB and 20 ms: about 1.6 MB a second, so that a backlog takes its time.
    world.network = world.network.clone().with_window(64 * 1024);
    let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
    for (at, here) in ids.iter().enumerate() {
        ids[at + 1..].iter().for_each(|there| world.network.set_delay(here, there, DELAY, DELAY));
    }
    world
}

fn tree(world: &World, at: usize) -> Tree {
    world.sites[at].tree().expect("it runs")
}

/// A live write from one site to another now and then, and how long each takes from its commit until it shows there.
struct Live {
    writes: JoinSet<()>,
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Live {
    fn start(world: &World, from: usize, to: usize, name: &'static str) -> Self {
        let (here, there) = (tree(world, from), tree(world, to));
        let (mut writes, took) = (JoinSet::new(), Arc::<Mutex<Vec<Duration>>>::default());
        let all = took.clone();
        writes.spawn(async move {
            let (mut pace, mut ways) = (interval(PACE), JoinSet::new());
            for number in 0_u64.. {
                pace.tick().await;
                let key = format!("{name}-{from}-{to}-{number}");
                let (here, there, took) = (here.clone(), there.clone(), all.clone());
                ways.spawn(async move {
                    here.put(key.clone(), "live").await.expect("a write");
                    let committed = Instant::now();
                    while there.get(&key).is_none() {
                        sleep(Duration::from_micros(500)).await;
                    }
                    took.lock().push(committed.elapsed());
                });
            }
        });
        Self { writes, took }
    }

    /// What all of them took, in rising order. Those that have not arrived are waited for.
    async fn stop(mut self) -> Vec<Duration> {
        self.writes.shutdown().await;
        let mut took = std::mem::take(&mut *self.took.lock());
        took.sort();
        took
    }
}

fn part(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// Every cluster of both sides writes bursts, for hours. Answers how many writes that were.
async fn write_apart(world: &World) -> u64 {
    let (end, mut written) = (Instant::now() + HOURS, 0);
    while Instant::now() < end {
        for at in [A, B, C] {
            let key = |n: u64| format!("{at}-{}", (written + n) % 500);
            let set = |n: u64| Operation::Set(key(n).into(), vec![7; VALUE].into());
            tree(world, at).batch((0..BURST).map(set).collect()).await.expect("a write");
            written += BURST;
        }
        sleep(EVERY).await;
    }
    written
}

/// Bytes that some cluster has still to send to another one.
fn behind(world: &World) -> u64 {
    let clusters = world.sites.iter().filter_map(|site| site.cluster());
    clusters.flat_map(|cluster| cluster.status().peers).map(|peer| peer.lag.bytes).max().unwrap_or(0)
}

/// Runs live writes on some ways for as long as `until` takes, and answers what they took on each.
async fn beside<T>(
    world: &World,
    name: &'static str,
    until: impl Future<Output = T>,
) -> (T, Vec<Vec<Duration>>) {
    let live = WAYS.map(|(from, to)| Live::start(world, from, to, name));
    let done = until.await;
    (done, futures::future::join_all(live.map(Live::stop)).await)
}

async fn drain(world: &World) -> Duration {
    let healed = Instant::now();
    while behind(world) > NEARLY {
        sleep(Duration::from_millis(100)).await;
        assert!(healed.elapsed() < Duration::from_secs(300), "it does not drain: {}", world.account());
    }
    healed.elapsed()
}

/// Waits until those that hear each other hold the same, the one that only writes aside.
async fn agree(world: &World) {
    let agreed = || {
        let digests = [A, B, C].map(|at| tree(world, at).digest());
        behind(world) == 0 && digests.windows(2).all(|pair| pair[0].digest == pair[1].digest)
    };
    for _ in 0..200 {
        if agreed() {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    assert!(agreed(), "seed {}: no convergence: {}", world.seed, world.account());
}

#[test]
fn after_hours_of_partition_the_backlog_drains_beside_live_writes_that_take_as_long_as_ever() {
    for seed in seeds(2) {
        virtual_time(async {
            let mut world = world(seed);
            world.start_all().await;
            let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
            [A, C].iter().for_each(|at| world.network.cut(&ids[*at], &ids[B]));
            sleep(Duration::from_secs(5)).await;
            let ((), normal) = beside(&world, "normal", sleep(Duration::from_secs(15))).await;
            let (written, began) = (write_apart(&world).await, Instant::now());
            let backlog = behind(&world);
            assert!(backlog > 10_000_000, "{backlog} bytes are no backlog");
            world.network.heal_all();
            let (drained, live) = beside(&world, "live", drain(&world)).await;
            println!(
                "{written} writes apart, {backlog} bytes behind, drained {drained:?} after the cut was healed"
            );
            for ((from, to), (normal, live)) in WAYS.into_iter().zip(normal.iter().zip(&live)) {
                println!(
                    "{} to {}: {:?}, p99 {:?}; beside the backlog {:?}, p99 {:?}, at most {:?} ({} writes)",
                    ids[from],
                    ids[to],
                    part(normal, 50),
                    part(normal, 99),
                    part(live, 50),
                    part(live, 99),
                    part(live, 100),
                    live.len()
                );
                assert!(live.len() > 25, "{} live writes beside the backlog", live.len());
                assert!(part(live, 50) <= part(normal, 50).mul_f64(1.2), "seed {seed}: {from} to {to}");
                // Who has seen more of the backlog than the reader waits with it: they drain it side by side.
                let most = if from == LIVE { part(normal, 99).mul_f64(1.2) } else { TOGETHER };
                assert!(part(live, 100) <= most, "seed {seed}: {from} to {to}");
            }
            agree(&world).await;
            assert!(began.elapsed() < Duration::from_secs(120), "seed {seed}: {:?}", began.elapsed());
        });
    }
}
