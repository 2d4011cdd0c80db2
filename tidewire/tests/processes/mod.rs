//! Claims about real processes of the binary: real files, real sockets, real signals, on loopback.
//!
//! A plain run takes sizes that fit beside the other tests; `TIDEWIRE_ACCEPTANCE=full` takes the full ones. The seed of every
//! random choice is printed and can be given as `TIDEWIRE_SEED`; how processes interleave is the machine's business.
#![expect(clippy::print_stdout, reason = "a test that fails shows its seed and figures")]

mod api;
mod at_rest;
mod causality;
mod copies;
mod full_disk;
mod garbage;
mod idle_trees;
mod interest;
#[cfg(feature = "kafka")]
mod kafka;
mod letters;
mod load;
mod memory;
mod mistakes;
mod peers;
mod replication;
mod ring;
mod server;
mod signals;
mod sinks;

use std::time::{Duration, Instant};

use tidewire_core::random::Random;

/// The tree that is written to.
const TREE: &str = "t";

/// The size of a test: the small one, or the full one where the environment asks for it.
fn sized(plain: usize, full: usize) -> usize {
    if std::env::var("TIDEWIRE_ACCEPTANCE").is_ok_and(|wanted| wanted == "full") { full } else { plain }
}

/// The random choices of a test, from a seed that is printed.
fn random(claim: &str) -> Random {
    let seed = std::env::var("TIDEWIRE_SEED").ok().map_or(1, |text| text.parse().expect("a number"));
    println!("{claim}: TIDEWIRE_SEED={seed}");
    Random::from_seed(seed)
}

#[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

/// Asks until there is an answer; fails with `what` after so many seconds.
fn eventually<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + Duration::from_secs(seconds);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(now() < deadline, "not within {seconds} s: {what}");
        pause(5);
    }
}
