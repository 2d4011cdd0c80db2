//! Claims about the rule: what is kept, who is named, and who asks for nothing.

use super::{Claim, Holder, Retention};
use crate::cursors::Consumer;
use crate::feed::Cursor;
use crate::id::{Incarnation, Lsn};
use crate::random::Random;
use crate::wal::Bounds;

const HERE: Incarnation = Incarnation::new(1);

fn bounds(first: u64, next: u64) -> Bounds {
    Bounds { first: Lsn::new(first), next: Lsn::new(next), ..Bounds::default() }
}

fn at(name: &str, lsn: u64) -> Consumer {
    let stored = Some(Cursor { incarnation: HERE, lsn: Lsn::new(lsn) });
    Consumer { name: name.to_owned(), stored, fell_off: false }
}

fn silent(name: &str) -> Consumer {
    Consumer { name: name.to_owned(), stored: None, fell_off: false }
}

fn decide(consumers: Vec<Consumer>, checkpoint: u64) -> Retention {
    Retention::decide(consumers, Lsn::new(checkpoint), HERE, &bounds(10, 100))
}

#[test]
fn retention_never_passes_the_slowest_consumer_nor_the_checkpoint() {
    let random = Random::from_seed(3);
    for _ in 0..20_000 {
        let checkpoint = random.below(110);
        let consumers: Vec<Consumer> = (0..random.below(5))
            .map(|which| match random.below(6) {
                0 => silent(&which.to_string()),
                _ => at(&which.to_string(), random.below(110)),
            })
            .collect();
        let retention = decide(consumers.clone(), checkpoint);
        assert!(retention.keep >= Lsn::new(10) && retention.keep <= Lsn::new(100));
        assert!(retention.keep <= Lsn::new(checkpoint.max(10)));
        for consumer in consumers {
            match consumer.stored.map(|cursor| cursor.lsn.get()) {
                // Silent, or beyond the end of the log: nothing is known.
                None | Some(101..) => assert_eq!(retention.keep, Lsn::new(10)),
                Some(0..10) => assert!(retention.fell_off().contains(&consumer.name)),
                Some(lsn) => assert!(retention.keep <= Lsn::new(lsn)),
            }
        }
    }
}

#[test]
fn the_holder_is_whoever_asks_for_the_lowest_position() {
    assert_eq!(decide(vec![], 100).holder, Holder::Nobody);
    assert_eq!(decide(vec![at("a", 50)], 40).holder, Holder::Checkpoint);
    let slow = decide(vec![at("a", 50), at("b", 30)], 40);
    assert_eq!((slow.holder, slow.keep), (Holder::Consumer("b".into()), Lsn::new(30)));
    assert_eq!(decide(vec![at("a", 100)], 100).holder, Holder::Nobody, "it has everything");
}

#[test]
fn only_age_passes_a_consumer_by_and_never_the_checkpoint() {
    let aged = |consumers, checkpoint: u64, aged: u64| {
        let retention =
            decide(consumers, checkpoint).aged(Lsn::new(aged), &bounds(10, 100), Lsn::new(checkpoint));
        (retention.keep.get(), retention.holder)
    };
    assert_eq!(aged(vec![at("slow", 30)], 90, 60), (60, Holder::Age));
    assert_eq!(aged(vec![silent("new")], 90, 60), (60, Holder::Age));
    assert_eq!(aged(vec![at("slow", 30)], 40, 60), (40, Holder::Checkpoint));
    assert_eq!(
        aged(vec![at("fast", 70)], 90, 60),
        (70, Holder::Consumer("fast".into())),
        "it is no reason to keep more"
    );
    assert_eq!(aged(vec![at("slow", 30)], 90, 0), (30, Holder::Consumer("slow".into())), "off");
    assert_eq!(aged(vec![at("slow", 30)], 100, 999), (100, Holder::Age));
    assert_eq!(Claim::From(Lsn::new(30)).after(&bounds(60, 100)), Claim::FellOff, "it learns it");
}

#[test]
fn f05_a_consumer_below_the_log_has_fallen_off_and_holds_nothing() {
    let dead = decide(vec![at("dead", 9), at("slow", 60)], 100);
    assert_eq!(dead.fell_off(), ["dead"]);
    assert_eq!((dead.holder, dead.keep), (Holder::Consumer("slow".into()), Lsn::new(60)));
    let told = decide(vec![Consumer { fell_off: true, ..at("restored", 40) }], 100);
    assert_eq!((told.standings[0].claim, told.keep), (Claim::FellOff, Lsn::new(100)));
}

#[test]
fn f04_f33_a_consumer_of_which_nothing_is_known_holds_everything() {
    let foreign = Consumer {
        stored: Some(Cursor { incarnation: Incarnation::new(2), lsn: Lsn::new(90) }),
        ..silent("foreign")
    };
    for unknown in [silent("new"), foreign, at("ahead", 101)] {
        let name = unknown.name.clone();
        let retention = decide(vec![unknown, at("slow", 60)], 100);
        assert_eq!((retention.keep, retention.holder), (Lsn::new(10), Holder::Consumer(name)));
    }
}
