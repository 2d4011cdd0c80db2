//! Three servers in a ring of relays: every write reaches every server once, and then there is silence.

use super::server::Server;
use super::{eventually, pause};

/// Writes in all.
const WRITES: usize = 10_000;
/// Operations of a batch.
const BATCH: usize = 100;

#[test]
fn f14_a_ring_of_three_applies_each_foreign_write_once_and_then_nothing_moves() {
    let servers = Server::ring(["a", "b", "c"]);
    let apis = servers.each_ref().map(Server::api);
    let mut written = [0_usize; 3];
    std::thread::scope(|scope| {
        for (at, (api, written)) in apis.iter().zip(&mut written).enumerate() {
            scope.spawn(move || {
                // The first one takes what is left over.
                let batches = WRITES / BATCH / 3 + usize::from(at < WRITES / BATCH % 3);
                for batch in 0..batches {
                    let entry = |number| (format!("{at}-{batch}-{number}"), "v".repeat(100));
                    let entries: Vec<_> = (0..BATCH).map(entry).collect();
                    assert!(api.wrote_batch(&entries), "a batch is acknowledged");
                    *written += BATCH;
                }
            });
        }
    });
    assert_eq!(written.iter().sum::<usize>(), WRITES);
    let digests = || -> Option<Vec<_>> { apis.iter().map(|api| api.digest()).collect() };
    eventually("the digests are equal", 60, || {
        let digests = digests()?;
        let all = digests.iter().all(|digest| *digest == digests[0] && digest.1 == WRITES as u64);
        all.then_some(())
    });
    let counters = |name: &str| -> Vec<f64> { apis.iter().filter_map(|api| api.counter(name)).collect() };
    let foreign: Vec<f64> = written.iter().map(|own| (WRITES - own) as f64).collect();
    eventually("every foreign write is counted", 30, || {
        (counters("tidewire_applied_records_total") == foreign).then_some(())
    });
    let still = ["tidewire_shipped_records_total", "tidewire_applied_records_total"];
    let before = still.map(counters);
    pause(3_000);
    assert_eq!(still.map(counters), before, "something goes round");
    // Each sends its own to the next, and what the one before it wrote.
    let shipped: Vec<f64> = (0..3).map(|at| (written[at] + written[(at + 2) % 3]) as f64).collect();
    assert_eq!(before[0], shipped, "there is one way, so nothing is sent twice");
    for name in ["tidewire_own_origin_refused_total", "tidewire_duplicate_records_total"] {
        assert_eq!(counters(name), [0.0, 0.0, 0.0], "{name}");
    }
}
