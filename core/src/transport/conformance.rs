//! What every transport must do, as checks that an implementation runs in its own tests.
//!
//! Call [`run`] with a function that makes a fresh pair of sides. Each check panics with the promise that was broken.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::time::timeout;

use super::wire::{Frame, Hello, Page, PageGroup, frame::Body};
use super::{DialTarget, Link, Listener, Transport};
use crate::error::LinkErrorKind;
use crate::id::ClusterId;

/// How long anything may take that must happen.
const SOON: Duration = Duration::from_secs(30);
/// How long something is watched that must not happen.
const WHILE: Duration = Duration::from_millis(200);
/// More than any transport may hold between the two ends of a link.
const TOO_MUCH: usize = 256 * 1024 * 1024;

/// Two transports that can reach each other.
pub struct Sides {
    /// The one that dials.
    pub dialler: Arc<dyn Transport>,
    /// The one that listens.
    pub answerer: Arc<dyn Transport>,
    /// Makes the url to dial of the address that the listener tells.
    pub url: fn(&str) -> String,
}

/// Two sides with the answerer listening.
struct Pair {
    dialler: Arc<dyn Transport>,
    listener: Box<dyn Listener>,
    target: DialTarget,
}

impl Pair {
    async fn open(sides: Sides) -> Self {
        let listener = soon("listen", sides.answerer.listen()).await.expect("a listener starts");
        let peer = ClusterId::new("answerer").expect("a valid name");
        let target = DialTarget { peer, url: (sides.url)(&listener.address()) };
        Self { dialler: sides.dialler, listener, target }
    }

    /// A link on which the first frame, a `Hello`, has arrived.
    async fn link(&mut self) -> (Link, Link) {
        let mut mine = soon("dial", self.dialler.dial(&self.target)).await.expect("a dial succeeds");
        soon("send", mine.sender.send(hello())).await.expect("a fresh link takes a frame");
        let mut theirs = soon("accept", self.listener.accept()).await.expect("a link is accepted");
        let first = soon("receive", theirs.receiver.receive()).await.expect("a fresh link delivers");
        assert_eq!(first, Some(hello()), "the first frame arrives as it was sent");
        (mine, theirs)
    }
}

fn hello() -> Frame {
    let hello = Hello { cluster: "dialler".into(), boot_id: 1, tree: "orders".into(), ..Hello::default() };
    Frame::new(0, Body::Hello(hello))
}

/// A page with one block of a given size, filled with a pattern of its number.
fn page(number: u64, size: usize) -> Frame {
    let block = Bytes::from(vec![u8::try_from(number % 251).expect("below 251"); size]);
    let groups = vec![PageGroup { closed: number, blocks: vec![block], more: false }];
    Frame::new(number, Body::Page(Page { page_id: number, groups, ..Page::default() }))
}

#[expect(clippy::panic, reason = "a failed check is a failed test")]
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(SOON, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took longer than {SOON:?}"),
    }
}

/// The number of the next frame, which must come.
async fn number(link: &mut Link) -> u64 {
    let frame = soon("receive", link.receiver.receive()).await.expect("the link stands");
    frame.expect("the far side has not ended the stream").session
}

/// Runs every check, each on fresh sides.
pub async fn run(sides: impl Fn() -> Sides) {
    frames_arrive_whole_and_in_order_both_ways(sides()).await;
    what_was_sent_before_a_close_arrives_then_the_end(sides()).await;
    what_was_sent_before_a_close_arrives_though_the_link_is_dropped(sides()).await;
    a_dropped_link_ends_the_far_side(sides()).await;
    a_sender_waits_while_nobody_reads(sides()).await;
    a_full_link_holds_back_no_other(sides()).await;
    a_cancelled_receive_loses_no_frame(sides()).await;
    a_cancelled_send_is_whole_or_nothing(sides()).await;
    a_link_that_was_closed_here_takes_no_more(sides()).await;
    a_dial_to_nobody_fails(sides()).await;
    a_closed_listener_accepts_no_more_and_frees_its_address(sides()).await;
}

async fn frames_arrive_whole_and_in_order_both_ways(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mut mine, mut theirs) = pair.link().await;
    let sizes = [0, 1, 1000, 64 * 1024, 1024 * 1024, 5, 300_000];
    for (sender, receiver) in
        [(&mut mine.sender, &mut theirs.receiver), (&mut theirs.sender, &mut mine.receiver)]
    {
        let send = async {
            for (number, size) in (0..).zip(sizes) {
                sender.send(page(number, size)).await.expect("the link stands");
            }
        };
        let receive = async {
            for (number, size) in (0..).zip(sizes) {
                let frame = receiver.receive().await.expect("the link stands");
                assert!(frame == Some(page(number, size)), "frame {number} of {size} bytes came damaged");
            }
        };
        soon("a few frames", async { tokio::join!(send, receive) }).await;
    }
}

async fn what_was_sent_before_a_close_arrives_then_the_end(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mut mine, mut theirs) = pair.link().await;
    mine.sender.send(page(1, 100_000)).await.expect("the link stands");
    mine.sender.close().await;
    mine.sender.close().await;
    assert_eq!(number(&mut theirs).await, 1);
    let end = soon("the end", theirs.receiver.receive()).await;
    assert!(matches!(end, Ok(None)), "after a close comes the end: {end:?}");
    soon("send", theirs.sender.send(page(2, 1))).await.expect("the other direction goes on");
    assert_eq!(number(&mut mine).await, 2);
    theirs.sender.close().await;
    let end = soon("the end", mine.receiver.receive()).await;
    assert!(matches!(end, Ok(None)), "after a close comes the end: {end:?}");
}

async fn what_was_sent_before_a_close_arrives_though_the_link_is_dropped(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    for round in 0..20 {
        let (mut mine, mut theirs) = pair.link().await;
        theirs.sender.send(page(round, 1000)).await.expect("the link stands");
        theirs.sender.close().await;
        drop(theirs);
        assert_eq!(number(&mut mine).await, round, "a last word from the answering side");
        let (mut mine, mut theirs) = pair.link().await;
        mine.sender.send(page(round, 1000)).await.expect("the link stands");
        mine.sender.close().await;
        drop(mine);
        assert_eq!(number(&mut theirs).await, round, "a last word from the dialling side");
    }
}

async fn a_dropped_link_ends_the_far_side(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mine, mut theirs) = pair.link().await;
    drop(mine);
    let end = soon("noticing a dropped link", theirs.receiver.receive()).await;
    assert!(!matches!(end, Ok(Some(_))), "nothing was sent");
    let (mut mine, theirs) = pair.link().await;
    drop(theirs);
    let end = soon("noticing a dropped link", mine.receiver.receive()).await;
    assert!(!matches!(end, Ok(Some(_))), "nothing was sent");
    let sends = async { while mine.sender.send(page(1, 1000)).await.is_ok() {} };
    soon("failing to send to nobody", sends).await;
}

/// Sends until the link is full, and returns how many pages of 1 MiB it took.
async fn fill(link: &mut Link) -> u64 {
    let mut sent = 0;
    while let Ok(result) = timeout(WHILE, link.sender.send(page(sent, 1024 * 1024))).await {
        result.expect("the link stands");
        sent += 1;
        let bytes = usize::try_from(sent).expect("few pages") * 1024 * 1024;
        assert!(bytes < TOO_MUCH, "a sender goes on though nobody reads");
    }
    sent
}

async fn a_sender_waits_while_nobody_reads(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    for towards_dialler in [false, true] {
        let (mine, theirs) = pair.link().await;
        let (mut from, mut to) = if towards_dialler { (theirs, mine) } else { (mine, theirs) };
        let sent = fill(&mut from).await;
        assert!(sent > 0, "an empty link takes one frame of any legal size");
        for expected in 0..sent {
            assert_eq!(number(&mut to).await, expected);
        }
        // The page that was cancelled may or may not have been sent; the one after it says that the link lives.
        soon("send", from.sender.send(page(u64::MAX, 1))).await.expect("a link that was full goes on");
        while number(&mut to).await != u64::MAX {}
    }
}

async fn a_full_link_holds_back_no_other(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mut full, _unread) = pair.link().await;
    fill(&mut full).await;
    let (mut mine, mut theirs) = pair.link().await;
    mine.sender.send(page(9, 1000)).await.expect("the link stands");
    assert_eq!(number(&mut theirs).await, 9);
}

async fn a_cancelled_receive_loses_no_frame(sides: Sides) {
    const COUNT: u64 = 200;
    let mut pair = Pair::open(sides).await;
    let (mut mine, mut theirs) = pair.link().await;
    let send = async {
        for number in 0..COUNT {
            mine.sender.send(page(number, 20_000)).await.expect("the link stands");
            tokio::task::yield_now().await;
        }
    };
    let receive = async {
        let mut next = 0;
        while next < COUNT {
            // Polled once and dropped: the hardest way to cancel.
            match theirs.receiver.receive().now_or_never() {
                Some(frame) => {
                    let frame = frame.expect("the link stands").expect("not ended");
                    assert_eq!(frame.session, next, "a cancelled receive lost a frame");
                    next += 1;
                }
                None => tokio::time::sleep(Duration::from_micros(200)).await,
            }
        }
    };
    soon("cancelled receives", async { tokio::join!(send, receive) }).await;
}

async fn a_cancelled_send_is_whole_or_nothing(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mut mine, mut theirs) = pair.link().await;
    let send = async {
        let mut sent = Vec::new();
        for number in 0..400 {
            match mine.sender.send(page(number, 100_000)).now_or_never() {
                Some(result) => {
                    result.expect("the link stands");
                    sent.push(number);
                }
                None => tokio::time::sleep(Duration::from_micros(200)).await,
            }
        }
        mine.sender.close().await;
        sent
    };
    let receive = async {
        let mut seen = Vec::new();
        while let Some(frame) = theirs.receiver.receive().await.expect("the link stands") {
            assert!(frame == page(frame.session, 100_000), "a cancelled send damaged a frame");
            seen.push(frame.session);
        }
        seen
    };
    let (sent, seen) = soon("cancelled sends", async { tokio::join!(send, receive) }).await;
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "frames keep their order and come once");
    assert!(sent.iter().all(|number| seen.binary_search(number).is_ok()), "what was sent arrives");
}

async fn a_link_that_was_closed_here_takes_no_more(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    let (mut mine, _theirs) = pair.link().await;
    mine.sender.close().await;
    let error = soon("send", mine.sender.send(page(1, 1))).await.expect_err("a closed sender fails");
    assert_eq!(error.kind(), LinkErrorKind::Closed, "{error}");
}

async fn a_dial_to_nobody_fails(sides: Sides) {
    let mut pair = Pair::open(sides).await;
    soon("close", pair.listener.close()).await;
    let error = soon("dial", pair.dialler.dial(&pair.target)).await.expect_err("nobody listens");
    assert_eq!(error.kind(), LinkErrorKind::Unreachable, "{error}");
    let nonsense = DialTarget { url: "no address at all".into(), ..pair.target };
    let error = soon("dial", pair.dialler.dial(&nonsense)).await.expect_err("that is no address");
    assert_eq!(error.kind(), LinkErrorKind::Config, "{error}");
}

async fn a_closed_listener_accepts_no_more_and_frees_its_address(sides: Sides) {
    let answerer = sides.answerer.clone();
    let mut pair = Pair::open(sides).await;
    let link = pair.link().await;
    soon("close", pair.listener.close()).await;
    soon("close again", pair.listener.close()).await;
    let error = soon("accept", pair.listener.accept()).await.expect_err("a closed listener accepts nothing");
    assert_eq!(error.kind(), LinkErrorKind::Closed, "{error}");
    drop(link);
    let again = soon("listen", answerer.listen()).await;
    again.expect("the address is free again");
}
