//! [`Seeds`]: the seeds of one random test, one after the other, until its time is up.

use std::time::{Duration, Instant};

/// The first seed; alone it means that seed and no other: a failure is seen again.
const FIRST: &str = "TIDEWIRE_SEED";
/// How many seeds, however long they take.
const COUNT: &str = "TIDEWIRE_SEEDS";
/// How many operations at least, however long they take.
const OPERATIONS: &str = "TIDEWIRE_PROOF_OPERATIONS";
/// How many seconds, for a test whose share is 1.
const SECONDS: &str = "TIDEWIRE_PROOF_SECONDS";

/// When the seeds end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Count(u64),
    Operations(u64),
    Time(Duration),
}

/// The seeds of a test. Each is printed before it is used; whoever drops this in a panic prints how to see it again.
///
/// A plain run takes the time that the test says; the environment asks for more:
///
/// | variable | what |
/// |---|---|
/// | `TIDEWIRE_SEED` | the first seed, 0 if not given; without one of the others it is the only one |
/// | `TIDEWIRE_SEEDS` | how many seeds |
/// | `TIDEWIRE_PROOF_OPERATIONS` | until so many operations are done |
/// | `TIDEWIRE_PROOF_SECONDS` | for so long, times the share of the test |
#[derive(Debug)]
pub struct Seeds {
    claim: &'static str,
    first: u64,
    next: u64,
    end: End,
    operations: u64,
    began: Instant,
}

impl Seeds {
    /// The seeds of the test of that name, for so long if nothing else is asked for. `share`: what it takes of the time
    /// that is asked for; 1 for those that need all of it.
    pub fn new(claim: &'static str, plain: Duration, share: f64) -> Self {
        Self::with(claim, plain, share, |name| std::env::var(name).ok().and_then(|text| text.parse().ok()))
    }

    fn with(claim: &'static str, plain: Duration, share: f64, asked: impl Fn(&str) -> Option<u64>) -> Self {
        let (first, count) = (asked(FIRST), asked(COUNT));
        let end = match (count, asked(OPERATIONS), asked(SECONDS)) {
            (Some(count), _, _) => End::Count(count),
            (None, Some(operations), _) => End::Operations(operations),
            (None, None, Some(seconds)) => End::Time(Duration::from_secs(seconds).mul_f64(share)),
            (None, None, None) if first.is_some() => End::Count(1),
            (None, None, None) => End::Time(plain),
        };
        let first = first.unwrap_or(0);
        Self { claim, first, next: first, end, operations: 0, began: now() }
    }

    /// Counts what was done with the present seed.
    pub fn did(&mut self, operations: u64) {
        self.operations += operations;
    }

    /// How many seeds were handed out.
    pub fn taken(&self) -> u64 {
        self.next - self.first
    }
}

impl Iterator for Seeds {
    type Item = u64;

    #[expect(clippy::print_stdout, reason = "a test that fails shows its seed")]
    fn next(&mut self) -> Option<u64> {
        let more = match self.end {
            End::Count(count) => self.taken() < count,
            End::Operations(operations) => self.operations < operations,
            End::Time(time) => self.taken() == 0 || self.began.elapsed() < time,
        };
        if !more {
            return None;
        }
        let seed = self.next;
        self.next += 1;
        println!("{}: {FIRST}={seed}", self.claim);
        Some(seed)
    }
}

impl Drop for Seeds {
    #[expect(
        clippy::print_stdout,
        reason = "a test that fails shows how to see it again, and a long one its figures"
    )]
    fn drop(&mut self) {
        let (claim, last) = (self.claim, self.next.saturating_sub(1));
        if std::thread::panicking() {
            let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_owned());
            println!(
                "{claim} failed; again with: {FIRST}={last} cargo test --all-features -p {package} {claim}"
            );
        } else {
            let (count, operations) = (self.taken(), self.operations);
            let seconds = self.began.elapsed().as_secs_f64();
            println!("{claim}: {count} seeds from {}, {operations} operations, {seconds:.1} s", self.first);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds how long a test may try, which no simulation sees")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(given: &[(&str, u64)]) -> Seeds {
        let given = given.to_vec();
        Seeds::with("a claim", Duration::ZERO, 0.5, move |name| {
            given.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
        })
    }

    #[test]
    fn what_the_environment_asks_for_is_what_is_tried() {
        assert_eq!(asked(&[]).collect::<Vec<_>>(), [0], "one at least, whatever the time");
        assert_eq!(asked(&[(FIRST, 7)]).collect::<Vec<_>>(), [7], "one seed is seen again");
        assert_eq!(asked(&[(FIRST, 7), (COUNT, 3)]).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(asked(&[(COUNT, 2), (SECONDS, 900)]).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(asked(&[(FIRST, 7), (SECONDS, 900)]).end, End::Time(Duration::from_secs(450)));
        let mut seeds = asked(&[(OPERATIONS, 25)]);
        while seeds.next().is_some() {
            seeds.did(10);
        }
        assert_eq!(seeds.taken(), 3);
    }
}
