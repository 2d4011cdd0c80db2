//! What a session takes and what ends it, each check by name.

use bytes::Bytes;
use proptest::prelude::*;
use tidewire_core::record::{BlockBuilder, Mutation};
use tidewire_core::transport::pages::split;

use super::*;
use crate::origin::MemOrigin;

const PARTITIONS: u16 = 4;
const NUMBER: SessionNumber = SessionNumber::new(3);

fn name(text: &str) -> ClusterId {
    ClusterId::new(text).unwrap()
}

fn origin() -> MemOrigin {
    MemOrigin::new(&name("there"), PARTITIONS)
}

fn session() -> Session {
    let peer = name("there");
    let forwarded = (name("forwarded").tag(), (name("forwarded"), Incarnation::new(77)));
    let origins = [(peer.tag(), (peer.clone(), origin().incarnation)), forwarded].into();
    let terms =
        Terms { me: name("here").tag(), origins, peer, partitions: PARTITIONS, packs: false, filters: false };
    let settings = Settings { max_record_bytes: 1_000, max_page_bytes: 100_000, ..Settings::default() };
    let (marks, frontier) = Default::default();
    let said = Standing { marks: &marks, frontier: &frontier, credit: 50, held: 0, pause: None };
    Session::new(NUMBER, terms, &settings, said)
}

fn page(origin: &MemOrigin, from: usize, to: usize) -> Page {
    origin.page(PageId::new(1), from, to)
}

/// The one frame of a page that fits into one part, changed.
fn frame(page: &Page, change: impl FnOnce(&mut wire::Page)) -> Frame {
    let [mut part]: [wire::Page; 1] = split(page).try_into().unwrap();
    change(&mut part);
    Frame::new(NUMBER.get(), Body::Page(part))
}

fn no_skew(_: Hlc) -> Option<Duration> {
    None
}

fn refused(frame: Frame) -> RefusalKind {
    session().receive(frame, &no_skew).expect_err("this ends the session").kind
}

/// What is wrong with records of a page that is taken.
fn faulty(frame: Frame) -> Vec<RefusalKind> {
    match session().receive(frame, &no_skew) {
        Ok(Event::Faulty(_, faults)) => faults.iter().map(|fault| fault.kind).collect(),
        _ => Vec::new(),
    }
}

fn one_group() -> MemOrigin {
    let mut origin = origin();
    origin.commit(&[&["a", "b"], &["c"]]);
    origin
}

#[test]
fn a_page_comes_out_as_it_was_sent() {
    let mut origin = one_group();
    origin.give_up("a", 3);
    origin.commit(&[&["a"]]);
    let page = page(&origin, 0, 2);
    match session().receive(frame(&page, |_| {}), &no_skew) {
        Ok(Event::Page(out, _)) => assert_eq!(out, page),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f13_own_records_that_come_back_end_the_session() {
    let mut own = MemOrigin::new(&name("here"), PARTITIONS);
    own.commit(&[&["a"]]);
    assert_eq!(refused(frame(&page(&own, 0, 1), |_| {})), RefusalKind::OwnOrigin);
    let heartbeat = own.heartbeat();
    assert_eq!(refused(Frame::new(NUMBER.get(), Body::Heartbeat(heartbeat))), RefusalKind::OwnOrigin);
}

#[test]
fn f52_records_of_a_third_cluster_were_not_agreed_on() {
    let mut third = MemOrigin::new(&name("third"), PARTITIONS);
    third.commit(&[&["a"]]);
    assert_eq!(refused(frame(&page(&third, 0, 1), |_| {})), RefusalKind::Malformed);
}

#[test]
fn a_forwarded_origin_is_taken_under_the_incarnation_that_was_agreed_and_no_other() {
    let mut forwarded = MemOrigin::new(&name("forwarded"), PARTITIONS);
    forwarded.incarnation = Incarnation::new(77);
    forwarded.commit(&[&["a"]]);
    let heartbeat = forwarded.heartbeat();
    let mut session = session();
    let Ok(Event::Page(out, _)) = session.receive(frame(&page(&forwarded, 0, 1), |_| {}), &no_skew) else {
        panic!("the page was agreed on");
    };
    assert_eq!(out.origin, forwarded.origin());
    match session.receive(Frame::new(NUMBER.get(), Body::Heartbeat(heartbeat)), &no_skew) {
        Ok(Event::Heartbeat(promise)) => assert_eq!(promise.origin, forwarded.origin()),
        other => panic!("{other:?}"),
    }
    forwarded.incarnation = Incarnation::new(78);
    forwarded.commit(&[&["a"]]);
    assert_eq!(refused(frame(&page(&forwarded, 0, 1), |_| {})), RefusalKind::Incarnation);
}

#[test]
fn an_acknowledgement_says_what_is_covered_of_every_origin_of_the_link_and_of_no_other() {
    let mut session = session();
    let frontier = VersionVector::default();
    let mut marks = Watermarks::default();
    for (of, incarnation) in [("there", origin().incarnation), ("forwarded", Incarnation::new(77))] {
        let of = marks.origin_mut(name(of).tag(), incarnation, PARTITIONS);
        of.advance(PartitionId::new(1), Offset::new(4), Hlc::new(9));
    }
    let third = marks.origin_mut(name("third").tag(), Incarnation::new(1), PARTITIONS);
    third.advance(PartitionId::new(0), Offset::new(1), Hlc::new(9));
    let mut said = |marks: &Watermarks| {
        let now = Standing { marks, frontier: &frontier, credit: 50, held: 0, pause: None };
        let Some(Body::Ack(ack)) = session.acknowledge(now, false)?.body else { panic!("an ack") };
        Some(ack.watermarks.iter().map(|of| OriginTag::new(of.origin)).collect::<Vec<_>>())
    };
    let mut both = vec![name("there").tag(), name("forwarded").tag()];
    both.sort_unstable();
    assert_eq!(said(&marks), Some(both));
    assert_eq!(said(&marks), None);
    let of = marks.origin_mut(name("forwarded").tag(), Incarnation::new(77), PARTITIONS);
    of.advance(PartitionId::new(2), Offset::new(1), Hlc::new(10));
    assert_eq!(said(&marks), Some(vec![name("forwarded").tag()]), "whichever link brought it");
}

#[test]
fn f04_another_incarnation_than_that_of_hello_is_refused() {
    let mut other = origin();
    other.incarnation = Incarnation::new(1);
    other.commit(&[&["a"]]);
    assert_eq!(refused(frame(&page(&other, 0, 1), |_| {})), RefusalKind::Incarnation);
}

#[test]
fn a_damaged_block_is_told_apart_from_a_wrong_one() {
    let origin = one_group();
    let damage = |part: &mut wire::Page| {
        let block = &mut part.groups[0].blocks[0];
        let mut bytes = block.to_vec();
        let at = bytes.len() - 6;
        bytes[at] ^= 1;
        *block = Bytes::from(bytes);
    };
    assert_eq!(refused(frame(&page(&origin, 0, 1), damage)), RefusalKind::Checksum);
    assert_eq!(
        refused(
            frame(&page(&origin, 0, 1), |part| part.groups[0].blocks[0] = Bytes::from_static(b"no block"))
        ),
        RefusalKind::Malformed
    );
}

#[test]
fn f20_a_clock_too_far_ahead_is_refused_with_the_figure() {
    let mut origin = one_group();
    let skew = |hlc: Hlc| (hlc >= origin.hlc).then_some(Duration::from_millis(45_000));
    let refusal = session().receive(frame(&page(&origin, 0, 1), |_| {}), &skew).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::ClockSkew);
    assert!(refusal.detail.contains("45000 ms"), "{refusal}");
    assert!(refusal.kind.may_retry() && refusal.page == Some(PageId::new(1)));
    let heartbeat = origin.clone().heartbeat();
    let refusal = session().receive(Frame::new(NUMBER.get(), Body::Heartbeat(heartbeat)), &skew).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::ClockSkew);
    origin.commit(&[&["a"]]);
    assert!(session().receive(frame(&page(&origin, 0, 1), |_| {}), &no_skew).is_ok());
}

#[test]
fn f35_a_record_over_the_limit_is_named_and_the_session_decides_nothing() {
    let mut origin = origin();
    origin.value_bytes = 1_000;
    origin.commit(&[&["a"]]);
    assert_eq!(faulty(frame(&page(&origin, 0, 1), |_| {})), [RefusalKind::TooLarge]);
}

#[test]
fn f52_a_group_of_more_blocks_than_a_log_can_frame_is_refused() {
    let mut origin = one_group();
    origin.commit(&vec![&["a"][..]; MAX_GROUP_FRAMES + 1]);
    let mut session = session();
    session.assembler = Assembler::new(PARTITIONS, 1 << 30);
    let mut parts = split(&page(&origin, 0, 2)).into_iter();
    let refusal =
        parts.find_map(|part| session.receive(Frame::new(NUMBER.get(), Body::Page(part)), &no_skew).err());
    assert_eq!(refusal.map(|refusal| refusal.kind), Some(RefusalKind::Malformed));
}

/// A page of one record at the start of partition of "a".
fn page_of(mutation: &Mutation) -> Page {
    let origin = origin();
    let mut builder = BlockBuilder::new(origin.origin(), PARTITIONS, 0, 100);
    let partition = PartitionId::of(b"a", PARTITIONS);
    builder.push(mutation, partition, Offset::ZERO, origin.hlc, false);
    let block = builder.seal(&VersionVector::default(), origin.incarnation);
    let groups = vec![tidewire_core::transport::pages::PageGroup { closed: origin.hlc, blocks: vec![block] }];
    let (after, through) = (vec![(partition, Offset::ZERO)], vec![(partition, Offset::new(1))]);
    let (id, incarnation) = (PageId::new(1), origin.incarnation);
    Page { id, origin: origin.origin(), incarnation, after, groups, through }
}

#[test]
fn maintenance_is_refused_and_ranges_that_are_none_are_named() {
    let range = Mutation::delete_range("a", "b");
    let long = vec![b'z'; tidewire_core::limits::MAX_KEY_BYTES + 1];
    let mark = Mutation { kind: Kind::Mark, ..Mutation::set("a", "1") };
    assert_eq!(refused(frame(&page_of(&mark), |_| {})), RefusalKind::Malformed);
    for mutation in [
        Mutation { kind: Kind::DeleteRange, ..Mutation::set("a", "") },
        Mutation { end_key: Some("a".into()), ..range.clone() },
        Mutation { end_key: Some("".into()), ..range.clone() },
        Mutation { end_key: Some(long.into()), ..range.clone() },
        Mutation { value: "v".into(), ..range.clone() },
        Mutation { deadline_ms: Some(1), ..range.clone() },
        Mutation { deadline_ms: Some(1), ..Mutation::delete("a") },
        Mutation { end_key: Some("b".into()), ..Mutation::set("a", "1") },
    ] {
        assert_eq!(faulty(frame(&page_of(&mutation), |_| {})), [RefusalKind::Malformed], "{mutation:?}");
    }
    for mutation in [range, Mutation { deadline_ms: Some(1), ..Mutation::set("a", "1") }] {
        let taken = session().receive(frame(&page_of(&mutation), |_| {}), &no_skew);
        assert!(matches!(taken, Ok(Event::Page(..))), "{mutation:?}");
    }
}

#[test]
fn records_are_left_out_only_where_not_all_keys_are_held() {
    let mut page = page_of(&Mutation::set("a", "1"));
    let block = &mut page.groups[0].blocks[0];
    *block = tidewire_core::record::Coverage::of(block).cover(block.origin(), page.incarnation);
    assert_eq!(refused(frame(&page, |_| {})), RefusalKind::Malformed);
    let mut session = session();
    session.terms.filters = true;
    assert!(matches!(session.receive(frame(&page, |_| {}), &no_skew), Ok(Event::Page(..))));
}

#[test]
fn a_group_promises_at_least_what_it_holds_and_the_next_one_lies_above() {
    let mut origin = one_group();
    let held = origin.hlc.get();
    origin.commit(&[&["a"]]);
    let both = page(&origin, 0, 2);
    assert_eq!(refused(frame(&both, |part| part.groups[1].closed = held)), RefusalKind::Malformed);
    assert_eq!(
        refused(frame(&both, |part| part.groups[0].closed = origin.hlc.get())),
        RefusalKind::Malformed
    );
    assert_eq!(refused(frame(&both, |part| part.groups.swap(0, 1))), RefusalKind::Malformed);
}

#[test]
fn f09_blocks_below_the_start_of_their_page_are_refused() {
    let mut origin = one_group();
    origin.commit(&[&["a"]]);
    let late = page(&origin, 1, 2);
    assert!(late.after.iter().any(|(_, after)| after.get() > 0));
    let raised = |part: &mut wire::Page| {
        part.after.iter_mut().for_each(|mark| mark.offset += 1);
        part.through.iter_mut().for_each(|mark| mark.offset += 1);
    };
    assert_eq!(refused(frame(&late, raised)), RefusalKind::Malformed);
}

#[test]
fn f12_frames_of_another_session_change_nothing() {
    let mut session = session();
    let mut late = frame(&page(&one_group(), 0, 1), |_| {});
    late.session = NUMBER.get() - 1;
    assert!(matches!(session.receive(late.clone(), &no_skew), Ok(Event::Nothing)));
    late.session = NUMBER.get();
    assert!(
        matches!(session.receive(late, &no_skew), Ok(Event::Page(..))),
        "the numbers of its pages begin at 1"
    );
}

#[test]
fn frames_that_no_shipper_sends_end_the_session() {
    let bodies = [
        Body::Ack(wire::Ack::default()),
        Body::Welcome(wire::Welcome::default()),
        Body::Refusal(wire::Refusal::default()),
        Body::Hello(wire::Hello::default()),
    ];
    for body in bodies {
        assert_eq!(refused(Frame::new(NUMBER.get(), body)), RefusalKind::Malformed);
    }
    assert_eq!(refused(Frame { session: NUMBER.get(), body: None }), RefusalKind::Malformed);
}

#[test]
fn a_page_that_is_skipped_or_comes_twice_ends_the_session() {
    let origin = one_group();
    assert_eq!(refused(frame(&page(&origin, 0, 1), |part| part.page_id = 2)), RefusalKind::Malformed);
    let mut session = session();
    session.receive(frame(&page(&origin, 0, 1), |_| {}), &no_skew).unwrap();
    let again = session.receive(frame(&page(&origin, 0, 1), |_| {}), &no_skew).unwrap_err();
    assert_eq!(again.kind, RefusalKind::Malformed);
}

#[test]
fn a_heartbeat_never_comes_between_the_parts_of_a_page() {
    let mut origin = one_group();
    let mut session = session();
    let open = frame(&page(&origin, 0, 1), |part| (part.last, part.through) = (false, Vec::new()));
    assert!(matches!(session.receive(open, &no_skew), Ok(Event::Nothing)));
    let heartbeat = Frame::new(NUMBER.get(), Body::Heartbeat(origin.heartbeat()));
    assert_eq!(session.receive(heartbeat, &no_skew).unwrap_err().kind, RefusalKind::Malformed);
}

#[test]
fn an_ack_says_what_changed_and_nothing_twice() {
    let mut session = session();
    let tag = name("there").tag();
    let mut marks = Watermarks::default();
    let of = marks.origin_mut(name("there").tag(), origin().incarnation, PARTITIONS);
    of.advance(PartitionId::new(1), Offset::new(4), Hlc::new(9));
    let mut frontier = VersionVector::default();
    frontier.raise(tag, Hlc::new(9));
    let ack = |frame: Option<Frame>| match frame.map(|frame| frame.body) {
        Some(Some(Body::Ack(ack))) => Some(ack),
        None => None,
        other => panic!("{other:?}"),
    };
    let now = Standing { marks: &marks, frontier: &frontier, credit: 50, held: 0, pause: None };
    let first = ack(session.acknowledge(now, false)).unwrap();
    assert_eq!((first.watermarks.len(), first.frontier.len(), first.credit_bytes), (1, 1, 50));
    assert_eq!(ack(session.acknowledge(now, false)), None);
    let room = ack(session.acknowledge(Standing { credit: 0, held: 7, ..now }, false)).unwrap();
    assert_eq!((room.watermarks.len(), room.frontier.len()), (0, 0), "absent is unchanged");
    assert_eq!((room.credit_bytes, room.held_bytes), (0, 7));
    assert!(ack(session.acknowledge(Standing { credit: 0, held: 7, ..now }, true)).is_some(), "a repeat");
}

proptest! {
    #[test]
    fn no_frame_of_a_peer_makes_a_session_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        numbers in prop::collection::vec(any::<u64>(), 8),
        marks in prop::collection::vec((any::<u32>(), any::<u64>()), 0..6),
        honest in any::<bool>(),
    ) {
        let spoil = |part: &mut wire::Page| {
            let block = &mut part.groups[0].blocks[0];
            let mut bytes = block.to_vec();
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            *block = Bytes::from(bytes);
            if !honest {
                part.groups[0].closed = numbers[0];
                part.page_id = numbers[1] % 3;
                part.incarnation ^= numbers[2] % 2;
                part.through = marks.iter().map(|(p, o)| wire::PartitionMark { partition: p % 6, offset: *o }).collect();
            }
        };
        let mut session = session();
        let _ = session.receive(frame(&page(&one_group(), 0, 1), spoil), &no_skew);
        let tails = marks.iter().map(|(p, o)| wire::PartitionMark { partition: *p, offset: *o }).collect();
        let (origin, incarnation) = (origin().origin().get(), origin().incarnation.get());
        let heartbeat = wire::Heartbeat { origin, incarnation, closed: numbers[3], tails, tail_bytes: numbers[4], canary: false };
        let _ = session.receive(Frame::new(NUMBER.get(), Body::Heartbeat(heartbeat)), &no_skew);
    }
}
