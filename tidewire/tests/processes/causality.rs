//! Writes that depend on each other, through three servers.

use super::api::Api;
use super::server::Server;
use super::{eventually, now, sized};

/// Rounds that run at the same time.
const AT_A_TIME: usize = 50;

/// x on A; once B shows x, y on B; whoever sees y on C sees x there.
fn round(number: usize, a: &Api, b: &Api, c: &Api) {
    let (x, y) = (format!("x-{number}"), format!("y-{number}"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(a.wrote(&x, "cause"), "x is acknowledged");
            eventually(&format!("b shows {x}"), 60, || b.value(&x));
            assert!(b.wrote(&y, "effect"), "y is acknowledged");
        });
        eventually(&format!("c shows {y}"), 90, || c.value(&y));
        assert_eq!(c.value(&x).as_deref(), Some("cause"), "c shows {y} without {x}");
    });
}

#[test]
fn nobody_sees_an_effect_without_its_cause_across_three_servers() {
    let rounds = sized(50, 1_000);
    let servers = Server::mesh(["a", "b", "c"]);
    let begun = now();
    for first in (0..rounds).step_by(AT_A_TIME) {
        std::thread::scope(|scope| {
            for number in first..(first + AT_A_TIME).min(rounds) {
                let [a, b, c] = servers.each_ref().map(Server::api);
                scope.spawn(move || round(number, &a, &b, &c));
            }
        });
    }
    println!("{rounds} rounds in {:?}", begun.elapsed());
}
