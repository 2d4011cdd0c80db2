//! Claims about the record of a seed: round trips, older versions, and what it decides.

use super::*;

fn record() -> SeedRecord {
    let mut floors = Floors::default();
    let mark = |next, hlc| Watermark { next: Offset::new(next), hlc: Hlc::new(hlc) };
    floors.raise(OriginTag::new(3), PartitionId::new(1), mark(450, 7_000));
    let mut later = floors.clone();
    later.raise(OriginTag::new(4), PartitionId::new(0), mark(9, 8_000));
    SeedRecord {
        wish: Some(SeedWish { from: Some(ClusterId::new("there").expect("a name")) }),
        base: Some(0),
        floors,
        holes: [PartitionId::new(2)].into(),
        pending: Some((5, later)),
        ..SeedRecord::default()
    }
}

fn interested() -> SeedRecord {
    let held = Interest::new(["eu/", "us/"]).expect("prefixes");
    let whole = Some(Interest::new(["eu/"]).expect("a prefix"));
    SeedRecord { held, widening: Some(Widening { whole }), ..record() }
}

#[test]
fn more_keys_take_a_seed_and_fewer_do_not() {
    let [all, eu, both] = [&[][..], &["eu/"], &["eu/", "us/"]].map(|p| Interest::new(p.to_vec()).unwrap());
    let mut record = SeedRecord::default();
    assert!(record.hold(&eu, true) && record.wish.is_none() && record.widening.is_none(), "a new tree");
    assert!(!record.hold(&eu, false));
    assert!(record.hold(&both, false) && record.wish.is_some());
    let whole = |record: &SeedRecord| record.widening.as_ref().map(|widening| widening.whole.clone());
    assert_eq!(whole(&record), Some(Some(eu.clone())));
    assert!(record.hold(&all, false));
    assert_eq!(whole(&record), Some(Some(eu.clone())), "nothing was brought in between");
    assert!(SeedRecord::is_whole(record.widening.as_ref(), b"eu/1"));
    assert!(!SeedRecord::is_whole(record.widening.as_ref(), b"us/1"));
    assert!(record.hold(&eu, false));
    assert_eq!(whole(&record), None, "back to what was whole all the time");
    let other = Interest::new(["x"]).expect("a prefix");
    assert!(record.hold(&other, false));
    assert_eq!(whole(&record), Some(None));
    record.pending = Some((1, Floors::default()));
    record.settle();
    assert!(record.widening.is_none() && record.wish.is_none() && record.held == other);
}

#[test]
fn an_origin_that_was_sealed_out_when_more_keys_came_takes_another_seed_when_it_returns() {
    let [eu, both] = [&["eu/"][..], &["eu/", "us/"]].map(|p| Interest::new(p.to_vec()).unwrap());
    let (gone, other) = (OriginTag::new(7), OriginTag::new(8));
    let mut record = SeedRecord { held: eu.clone(), ..SeedRecord::default() };
    record.hold(&both, false);
    record.forgo(BTreeSet::new());
    assert!(record.forgone.is_none());
    record.forgo([gone].into());
    record.pending = Some((1, Floors::default()));
    record.settle();
    assert!(record.widening.is_none() && record.wish.is_none() && record.has_forgone(gone));
    let settled = record.clone();
    record.let_return(other);
    assert_eq!(record, settled);
    record.let_return(gone);
    assert_eq!(record.widening, Some(Widening { whole: Some(eu.clone()) }));
    assert!(record.wish.is_some() && record.forgone.is_none());
    // Not if those keys are not held any more.
    let mut narrow = settled;
    narrow.hold(&eu, false);
    narrow.let_return(gone);
    assert!(narrow.widening.is_none() && narrow.wish.is_none() && narrow.forgone.is_none());
}

#[test]
fn a_record_of_seeds_reads_back_and_every_flipped_bit_is_noticed() {
    let incarnation = Incarnation::new(0x77);
    let nothing = SeedRecord { widening: Some(Widening { whole: None }), ..interested() };
    let forgone = Forgone { origins: [OriginTag::new(3), OriginTag::new(9)].into(), whole: None };
    let all = SeedRecord { forgone: Some(forgone), ..record() };
    let some = Forgone { origins: [OriginTag::new(4)].into(), whole: Interest::new(["eu/"]).ok() };
    let some = SeedRecord { forgone: Some(some), ..interested() };
    for record in [record(), SeedRecord::default(), interested(), nothing, all, some] {
        let bytes = record.encode(incarnation);
        assert_eq!(SeedRecord::decode(&bytes, incarnation), Ok(record));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(SeedRecord::decode(&damaged, incarnation).is_err(), "byte {at}");
        }
        assert!(SeedRecord::decode(&bytes, Incarnation::new(0x78)).is_err(), "of another log");
    }
}

#[test]
fn the_bytes_of_a_record_of_seeds_are_those_of_version_1() {
    let bytes = record().encode(Incarnation::new(0x77));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("../../../golden/seed-v1.hex").trim());
}

#[test]
fn the_bytes_of_a_record_with_an_interest_are_those_of_version_2() {
    let bytes = interested().encode(Incarnation::new(0x77));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("../../../golden/seed-v2.hex").trim());
}

#[test]
fn what_was_ordered_is_off_when_its_giver_is_gone_and_more_keys_wait_for_whoever_comes() {
    let [there, other] = ["there", "other"].map(|name| ClusterId::new(name).expect("a name"));
    let whole = || SeedRecord { holes: Default::default(), ..record() };
    let mut ordered = whole();
    ordered.withdraw(&other);
    assert_eq!(ordered, whole(), "another cluster was to give it");
    ordered.withdraw(&there);
    assert_eq!(ordered, SeedRecord { wish: None, ..whole() }, "nothing else has changed");
    let mut holed = record();
    holed.withdraw(&there);
    let anybody = Some(SeedWish { from: None });
    assert_eq!(holed, SeedRecord { wish: anybody, ..record() }, "what is lacking comes from nowhere else");
    let mut more = interested();
    more.withdraw(&there);
    assert_eq!(more, SeedRecord { wish: Some(SeedWish { from: None }), ..interested() });
    more.withdraw(&there);
    assert_eq!(more.wish, Some(SeedWish { from: None }), "anybody may give it");
}

#[test]
fn who_takes_back_that_more_keys_are_held_waits_for_no_seed_unless_one_was_ordered_or_the_log_has_holes() {
    let wants = |keys: &'static [&'static str]| Interest::new(keys.iter().copied()).expect("an interest");
    let (few, more) = (wants(&["eu/"]), wants(&["eu/", "us/"]));
    let narrow = SeedRecord { held: few.clone(), ..SeedRecord::default() };
    let mut back = narrow.clone();
    assert!(back.hold(&more, false) && back.wish == Some(SeedWish { from: None }));
    assert!(back.hold(&few, false));
    assert_eq!(back, narrow);
    let there = SeedWish { from: Some(ClusterId::new("there").expect("a name")) };
    let mut ordered = SeedRecord { wish: Some(there.clone()), ..narrow.clone() };
    assert!(ordered.hold(&more, false) && ordered.hold(&few, false));
    assert_eq!(ordered.wish, Some(there));
    let mut holed = SeedRecord { holes: record().holes, ..narrow };
    assert!(holed.hold(&more, false) && holed.hold(&few, false));
    assert_eq!(holed.wish, Some(SeedWish { from: None }));
}
