//! What the door lets in, and what it says to the others.

use tidewire_core::tree::{Consistency, MergeMode};

use super::*;

const BOOT: BootId = BootId::new(7);

fn name(text: &str) -> ClusterId {
    ClusterId::new(text).unwrap()
}

fn hello() -> Hello {
    Hello {
        cluster: "there".into(),
        boot_id: 9,
        protocol_min: 1,
        protocol_max: 3,
        tree: "orders".into(),
        incarnation: 5,
        partitions: 8,
        merge_mode: "lww".into(),
        known_clusters: vec!["there".into(), "here".into()],
        capabilities: vec!["of the future".into()],
        forwarded: Vec::new(),
        interest: Vec::new(),
    }
}

/// What comes of a Hello, if the caller may ship the tree and has written before with an incarnation.
fn answer(hello: &Hello, allowed: Option<bool>, incarnation: Option<u64>) -> Result<(), RefusalKind> {
    let here = name("here");
    let there = name("there");
    let identity = TreeIdentity {
        cluster: here.clone(),
        tree: TreeName::new("orders").unwrap(),
        incarnation: Incarnation::new(1),
        partitions: 8,
        merge: MergeMode::LastWriterWins,
        consistency: Consistency::Causal,
    };
    let known = Known {
        cluster: &here,
        boot: BOOT,
        peers: vec![&there],
        allowed,
        paused: false,
        sealed: false,
        tree: (hello.tree == "orders")
            .then(|| (identity, Default::default(), incarnation.map(Incarnation::new))),
    };
    let answered = identify(hello).and_then(|caller| check(hello, &caller, &known));
    answered.map_err(|refusal| {
        assert!(refusal.detail.len() > 20, "{refusal} says what to do");
        refusal.kind
    })
}

/// What comes of a Hello that is changed in one place.
fn changed(change: impl FnOnce(&mut Hello)) -> Result<(), RefusalKind> {
    let mut hello = hello();
    change(&mut hello);
    answer(&hello, Some(true), Some(5))
}

#[test]
fn a_caller_that_fits_comes_in_whatever_else_it_can_do() {
    assert_eq!(changed(|_| {}), Ok(()));
    assert_eq!(answer(&hello(), Some(true), None), Ok(()), "nothing of it is known yet");
}

#[test]
fn f52_each_claim_is_compared_with_what_is_configured_here() {
    use RefusalKind as Kind;
    assert_eq!(answer(&hello(), None, None), Err(Kind::UnknownPeer));
    assert_eq!(answer(&hello(), Some(false), None), Err(Kind::UnknownTree));
    assert_eq!(changed(|hello| hello.tree = "other".into()), Err(Kind::UnknownTree));
    assert_eq!(changed(|hello| hello.protocol_min = 2), Err(Kind::Protocol));
    assert_eq!(changed(|hello| (hello.protocol_min, hello.protocol_max) = (0, 0)), Err(Kind::Protocol));
    assert_eq!(changed(|hello| hello.partitions = 16), Err(Kind::Partitions));
    assert_eq!(changed(|hello| hello.partitions = 8 + (1 << 16)), Err(Kind::Partitions));
    assert_eq!(changed(|hello| hello.merge_mode = "x".repeat(1 << 20)), Err(Kind::MergeMode));
    assert_eq!(changed(|hello| hello.boot_id = 0), Err(Kind::Malformed));
    assert_eq!(changed(|hello| hello.cluster = "No Name".into()), Err(Kind::Malformed));
    assert_eq!(changed(|hello| hello.tree = "../up".into()), Err(Kind::Malformed));
    assert_eq!(changed(|hello| hello.known_clusters = vec![String::new()]), Err(Kind::Malformed));
    assert_eq!(changed(|hello| hello.known_clusters = vec!["a".into(); 257]), Err(Kind::Malformed));
}

#[test]
fn f04_a_log_that_was_created_anew_is_refused() {
    assert_eq!(answer(&hello(), Some(true), Some(6)), Err(RefusalKind::Incarnation));
}

#[test]
fn f53_a_caller_with_this_clusters_name_is_a_copy_or_this_cluster_itself() {
    assert_eq!(changed(|hello| hello.cluster = "here".into()), Err(RefusalKind::TwoCopies));
    let itself = |hello: &mut Hello| (hello.cluster, hello.boot_id) = ("here".into(), BOOT.get());
    assert_eq!(changed(itself), Err(RefusalKind::UnknownPeer));
}

#[test]
fn two_names_under_one_tag_are_found_and_one_name_twice_is_not() {
    let (a, b) = (name("a"), name("b"));
    let tag = OriginTag::new;
    assert_eq!(collision([(tag(1), &a), (tag(2), &b), (tag(1), &a)].into_iter()), None);
    assert_eq!(collision([(tag(1), &a), (tag(1), &b)].into_iter()), Some((&a, &b)));
}

#[test]
fn a_relay_that_holds_less_than_this_cluster_is_refused_and_whoever_sends_its_own_is_not() {
    let forwards = |hello: &mut Hello| {
        let third = tidewire_core::transport::wire::ForwardedOrigin { name: "third".into(), incarnation: 3 };
        hello.forwarded.push(third);
    };
    assert_eq!(changed(forwards), Ok(()));
    assert_eq!(changed(|hello| hello.interest = vec!["eu/".into()]), Ok(()));
    let less = |hello: &mut Hello| {
        forwards(hello);
        hello.interest = vec!["eu/".into()];
    };
    assert_eq!(changed(less), Err(RefusalKind::Interest));
    let on_demand = |hello: &mut Hello| {
        less(hello);
        hello.capabilities.push(RELAY.into());
    };
    assert_eq!(changed(on_demand), Ok(()), "it leaves out what it cannot send, and sends its own");
    assert_eq!(changed(|hello| hello.interest = vec!["".into()]), Err(RefusalKind::Malformed));
}
