//! Memory follows the state, not the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::server::Server;
use super::{eventually, now, pause, sized};

/// Keys, all of them in one batch.
const KEYS: usize = 1_000;
const VALUE_BYTES: usize = 256;
/// What a server may hold resident at any time.
const MOST_KIB: u64 = 256 << 10;
/// Writers at a time: enough to keep the log busy, few enough to be one machine's share.
const WRITERS: usize = 2;

/// The largest resident size seen of some processes.
#[derive(Debug, Default)]
struct Largest {
    kib: AtomicU64,
    done: AtomicBool,
}

impl Largest {
    fn watch(&self, servers: &[&Server]) {
        for look in 0_u64.. {
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            if look % 16 == 0 {
                servers.iter().for_each(|server| assert_within_budget(server));
            }
            let most = servers.iter().map(|server| server.resident_kib()).max().unwrap_or(0);
            self.kib.fetch_max(most, Ordering::Relaxed);
            pause(20);
        }
    }

    /// Watches while `work` runs.
    fn during(&self, servers: &[&Server], work: impl FnOnce()) {
        self.done.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| self.watch(servers));
            work();
            self.done.store(true, Ordering::Relaxed);
        });
    }
}

fn assert_within_budget(server: &Server) {
    let buffered = server.api().counter("tidewire_buffer_bytes").expect("buffers are counted");
    let budget = server.api().counter("tidewire_buffer_budget_bytes").expect("budgets are known");
    assert!(buffered <= budget, "{buffered} bytes are buffered of {budget}");
}

fn round(number: usize) -> Vec<(String, String)> {
    (0..KEYS).map(|key| (format!("key-{key:04}"), format!("{number:0>VALUE_BYTES$}"))).collect()
}

/// Overwrites every key so many times.
fn overwrite(server: &Server, rounds: usize) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let api = server.api();
            scope.spawn(move || {
                for number in (writer..rounds).step_by(WRITERS) {
                    assert!(api.wrote_batch(&round(number)), "round {number} is taken");
                }
            });
        }
    });
}

#[test]
fn a_long_log_of_few_keys_takes_little_memory_on_both_sides() {
    let rounds = sized(300, 8_000);
    let [mut a, mut b] = [Server::new("a"), Server::new("b")];
    a.configure(&[("b", b.replication_port())], "");
    b.configure(&[("a", a.replication_port())], "");
    a.start();
    let (alone, together, begun) = (Largest::default(), Largest::default(), now());
    alone.during(&[&a], || overwrite(&a, rounds));
    let log = a.api().counter("tidewire_wal_retained_bytes").expect("a figure");
    let wrote = begun.elapsed();
    b.start();
    let digest = a.api().digest().expect("a answers");
    together.during(&[&a, &b], || {
        eventually("b has caught up", 600, || (b.api().digest()? == digest).then_some(()));
    });
    let (alone, together) = (alone.kib.load(Ordering::Relaxed), together.kib.load(Ordering::Relaxed));
    println!(
        "{} writes of {KEYS} keys, {:.0} MiB of log, written in {wrote:?}, caught up after {:?}: at most {alone} KiB \
         resident while the peer was away, {together} KiB on either side while it caught up",
        rounds * KEYS,
        log / 1_048_576.0,
        begun.elapsed() - wrote,
    );
    assert_eq!(digest.1, KEYS as u64);
    assert!(alone.max(together) < MOST_KIB, "{alone} KiB, then {together} KiB");
}
