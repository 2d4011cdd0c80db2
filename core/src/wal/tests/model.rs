//! A writer over a provider that fails, hangs and answers in any order, against what its callers were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::rig::Rig;
use crate::id::{Hlc, Lsn};
use crate::limits::Limits;
use crate::random::Random;
use crate::wal::WalCall;

#[derive(Default)]
struct Told {
    durable: BTreeSet<String>,
    failed: BTreeSet<String>,
    promises: Vec<(Hlc, Lsn)>,
}

/// One writer of a few keys, each written once.
async fn write(rig: Arc<Rig>, told: Arc<Mutex<Told>>, random: Random, writer: u64) {
    for step in 0..25 {
        let key = format!("{writer}-{step}");
        let patience = if random.chance(0.2) { random.below(30) } else { 600_000 };
        let put = timeout(Duration::from_millis(patience), rig.put(key.clone())).await;
        match put {
            Ok(Ok(_)) => told.lock().durable.insert(key),
            Ok(Err(_)) => told.lock().failed.insert(key),
            // The caller has gone away; it may be in the log or not.
            Err(_) => false,
        };
        if random.chance(0.1)
            && let Ok(Some(promise)) = rig.writer.resolved().await
        {
            told.lock().promises.push(promise);
        }
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    }
}

fn check(rig: &Rig, told: &Told, seed: u64) -> (usize, usize) {
    let keys = rig.readable_keys();
    let readable: BTreeSet<String> = keys.iter().cloned().collect();
    assert_eq!(readable.len(), keys.len(), "seed {seed}: nothing is there twice");
    assert!(told.durable.is_subset(&readable), "seed {seed}: what was acknowledged is there");
    assert!(told.failed.is_disjoint(&readable), "seed {seed}: what failed is not");
    rig.applied_is_what_is_readable();
    let (mut next, mut last, mut offsets) = (Lsn::ZERO, Hlc::ZERO, BTreeMap::new());
    for (at, group) in rig.memory.groups().iter().enumerate() {
        assert_eq!(group.sequence().get(), at as u64, "seed {seed}: numbers of groups are dense");
        assert!(group.first_lsn() >= next, "seed {seed}: positions grow");
        for framed in group.blocks() {
            assert!(framed.block.first_hlc() > last, "seed {seed}: HLCs grow with positions");
            last = framed.frame.closed;
            for run in framed.block.runs() {
                let before = offsets.insert(run.partition, run.end()).unwrap_or_default();
                assert!(run.first >= before, "seed {seed}: offsets grow with positions");
            }
            for (closed, end) in &told.promises {
                let after = framed.frame.first_lsn >= *end;
                assert!(!after || framed.block.first_hlc() > *closed, "seed {seed}: a promise was broken");
            }
        }
        next = group.next_lsn();
    }
    (told.durable.len(), told.failed.len())
}

async fn run(seed: u64) -> (usize, usize) {
    let random = Random::from_seed(seed);
    let in_flight = [1, 1, 2, 5, 16][usize::try_from(random.below(5)).expect("small")];
    let limits = Limits { commit_deadline: Duration::from_millis(200), ..Limits::tiny() };
    let rig = Arc::new(Rig::new(limits, in_flight, Duration::from_millis(random.below(3)), seed).await);
    rig.faults.latency(Duration::ZERO, Duration::from_millis(random.below(120)));
    rig.faults.by_chance(WalCall::Append, 0.08);
    rig.faults.by_chance(WalCall::Reconcile, 0.3);
    let told = Arc::new(Mutex::new(Told::default()));
    let writers = (0..6).map(|writer| write(rig.clone(), told.clone(), random.fork(), writer));
    let releases = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(random.below(150))).await;
            rig.storage.release();
        }
    };
    tokio::join!(futures::future::join_all(writers), releases);
    rig.faults.heal();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(rig.works(), "seed {seed}: without faults the log opens itself again");
    rig.storage.release();
    rig.put("at last").await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    rig.writer.drain(Duration::from_secs(5)).await;
    let counts = check(&rig, &told.lock(), seed);
    assert!(rig.tasks.panics().is_empty(), "seed {seed}: {:?}", rig.tasks.panics());
    rig.tasks.abort();
    counts
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_is_there_and_what_failed_is_not_whatever_the_provider_does() {
    let (mut durable, mut failed) = (0, 0);
    for seed in 0..300 {
        let counts = run(seed).await;
        (durable, failed) = (durable + counts.0, failed + counts.1);
    }
    println!("{durable} writes acknowledged, {failed} failed");
    assert!(durable > 5_000 && failed > 2_000, "{durable} acknowledged, {failed} failed: both must occur");
}

#[tokio::test(start_paused = true)]
async fn f54_a_thousand_callers_that_go_away_at_random_leave_state_and_log_in_agreement() {
    for in_flight in [1, 8] {
        let rig = Rig::new(Limits::tiny(), in_flight, Duration::from_millis(2), 5).await;
        rig.faults.latency(Duration::ZERO, Duration::from_millis(8));
        let (random, mut kept) = (Random::from_seed(11), BTreeSet::new());
        let callers = (0..1_000_u64).map(|at| {
            let (rig, starts, patience) = (&rig, random.below(2_000), random.below(14_000));
            async move {
                tokio::time::sleep(Duration::from_millis(starts)).await;
                let put = rig.put(format!("{at}"));
                let put = timeout(Duration::from_micros(patience), put).await;
                put.is_ok().then(|| format!("{at}"))
            }
        });
        kept.extend(futures::future::join_all(callers).await.into_iter().flatten());
        assert!((100..900).contains(&kept.len()), "{} of 1,000 were waited for", kept.len());
        rig.writer.drain(Duration::from_secs(5)).await;
        rig.applied_is_what_is_readable();
        let readable: BTreeSet<String> = rig.readable_keys().into_iter().collect();
        assert!(kept.is_subset(&readable));
        assert!(readable.len() > kept.len(), "some that nobody waited for are there");
        rig.tasks.abort();
    }
}
