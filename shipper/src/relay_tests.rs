//! Claims about a session that carries several origins; without a link.

use tidewire_core::causal::VersionVector;
use tidewire_core::feed::{FeedReader, FeedSource};
use tidewire_core::id::{Incarnation, Offset, PartitionId, TreeName};
use tidewire_core::record::{Block, BlockBuilder, Mutation};
use tidewire_core::sink::MemFeed;
use tidewire_core::transport::marks::{decode_offsets, encode_origin, encode_vector};
use tidewire_core::transport::pages::{Assembler, Page};
use tidewire_core::tree::{Consistency, Located, LogView, MergeMode};

use super::*;

const PARTITIONS: u16 = 4;

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

fn tag(name: &str) -> OriginTag {
    id(name).tag()
}

fn me() -> TreeIdentity {
    TreeIdentity {
        cluster: id("a"),
        tree: TreeName::new("orders").unwrap(),
        incarnation: Incarnation::new(5),
        partitions: PARTITIONS,
        merge: MergeMode::LastWriterWins,
        consistency: Consistency::Causal,
    }
}

/// Another cluster that only commits.
struct Other {
    name: ClusterId,
    incarnation: Incarnation,
    hlc: Hlc,
    next: [Offset; PARTITIONS as usize],
}

impl Other {
    fn new(name: &str, incarnation: u64) -> Self {
        let (hlc, next) = (Hlc::new(10), [Offset::ZERO; PARTITIONS as usize]);
        Self { name: id(name), incarnation: Incarnation::new(incarnation), hlc, next }
    }

    fn block(&mut self, keys: &[&str], bytes: usize) -> Block {
        let mut builder = BlockBuilder::new(self.name.tag(), PARTITIONS, 0, 64);
        for key in keys {
            let partition = PartitionId::of(key.as_bytes(), PARTITIONS);
            let next = &mut self.next[partition.index()];
            self.hlc = self.hlc.next();
            let mutation = Mutation::set(key.to_string(), vec![7; bytes]);
            builder.push(&mutation, partition, *next, self.hlc, false);
            *next = next.next();
        }
        builder.seal(&VersionVector::default(), self.incarnation)
    }
}

/// A relay's session, from `a` to `b`, with the log that it reads and what the far side has put together.
struct Rig {
    log: MemFeed,
    reader: Box<dyn FeedReader>,
    session: Session,
    assembler: Assembler,
    pages: Vec<Page>,
    c: Other,
    d: Other,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let (log, c, d) = (MemFeed::new(me()), Other::new("c", 7), Other::new("d", 8));
        let mut route = Route::new(&me(), None, log.end());
        route.forward(&id("b"));
        for other in [&c, &d] {
            log.know(&other.name, other.incarnation);
            let nothing = OriginMarks::new(other.incarnation, PARTITIONS);
            route.take_up(&other.name, nothing, Located::At(log.end()));
        }
        let welcomed = Welcomed { session: SessionNumber::new(3), credit: u64::MAX, ..Welcomed::default() };
        let now = Instant::now();
        let session = Session::new(id("b"), me(), &welcomed, route, Settings::default(), now);
        let assembler = Assembler::new(PARTITIONS, usize::MAX);
        Self { reader: log.feed(log.end()), log, session, assembler, pages: Vec::new(), c, d, now }
    }

    async fn offer(&mut self) -> Result<(), ShipError> {
        while self.reader.cursor() != self.log.end() {
            let batch = self.reader.next().await.unwrap();
            for (count, group) in (1..).zip(batch.groups()) {
                assert!(self.session.has_room(group));
                self.session.offer(group, batch.cursor_after(count), self.now)?;
            }
        }
        Ok(())
    }

    /// Lets leave what may; whose pages, and how many records each.
    fn send(&mut self) -> Vec<(OriginTag, u64)> {
        let mut left = Vec::new();
        while let Some(out) = self.session.next_wave(self.now) {
            for frame in out.frames {
                let Some(Body::Page(part)) = frame.body else { panic!("a wave is pages") };
                let page = self.assembler.push(part).unwrap();
                left.extend(page.iter().map(|page| (page.origin, page.records())));
                self.pages.extend(page);
            }
        }
        left
    }

    /// The far side covers this many offsets of every partition of an origin, by whatever way it got them.
    fn ack(&mut self, name: &str, incarnation: u64, ends: u64) {
        let mut marks = OriginMarks::new(Incarnation::new(incarnation), PARTITIONS);
        for partition in (0..PARTITIONS).map(PartitionId::new) {
            marks.advance(partition, Offset::new(ends), Hlc::ZERO);
        }
        let watermarks = vec![encode_origin(tag(name), &marks)];
        self.take(wire::Ack { watermarks, credit_bytes: u64::MAX, ..wire::Ack::default() });
    }

    fn take(&mut self, ack: wire::Ack) {
        self.session.receive(Frame::new(3, Body::Ack(ack)), self.now).unwrap();
    }

    fn heartbeats(&mut self) -> Vec<(OriginTag, Hlc, u64)> {
        let frames = self.session.next_heartbeats().into_iter();
        let read = frames.map(|frame| {
            let Some(Body::Heartbeat(beat)) = frame.body else { panic!("heartbeats are heartbeats") };
            let tails = decode_offsets(&beat.tails, PARTITIONS).unwrap();
            let covered = tails.iter().map(|(_, end)| end.get()).sum();
            (OriginTag::new(beat.origin), Hlc::new(beat.closed), covered)
        });
        read.collect()
    }

    fn stand(&mut self) {
        self.session.stand(self.log.standing()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f16_pages_of_several_origins_keep_the_order_of_the_log() {
    let mut rig = Rig::new();
    let (first, second) = (rig.c.block(&["k1"], 10), rig.d.block(&["k2"], 10));
    let third = rig.c.block(&["k3", "k4"], 10);
    rig.log.push_blocks(vec![first, second, third]);
    rig.log.put("own", 10);
    rig.offer().await.unwrap();
    let order = [(tag("c"), 1), (tag("d"), 1), (tag("c"), 2), (tag("a"), 1)];
    assert_eq!(
        rig.send(),
        order,
        "one wave, and what stands in front in the log stands in front on the link"
    );
    assert!(rig.pages.iter().all(|page| page.groups.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn several_groups_of_an_origin_that_lie_in_one_group_here_stay_apart() {
    let mut rig = Rig::new();
    let (first, second) = (rig.c.block(&["k1"], 10), rig.c.block(&["k2"], 10));
    let closed = [first.last_hlc(), second.last_hlc()];
    rig.log.push_blocks(vec![first, second]);
    rig.offer().await.unwrap();
    assert_eq!(rig.send(), [(tag("c"), 2)]);
    let groups: Vec<Hlc> = rig.pages[0].groups.iter().map(|group| group.closed).collect();
    assert_eq!(groups, closed, "each with what its own frame promises");
}

#[tokio::test(start_paused = true)]
async fn f13_nothing_goes_back_to_its_origin() {
    let mut rig = Rig::new();
    let mut b = Other::new("b", 9);
    rig.log.know(&b.name, b.incarnation);
    rig.log.push_blocks(vec![b.block(&["k1"], 10)]);
    rig.log.promise(tag("b"), Hlc::new(5_000));
    rig.offer().await.unwrap();
    rig.stand();
    assert_eq!((rig.send(), rig.heartbeats()), (vec![], vec![]));
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()), "it is of no interest to the peer");
}

#[tokio::test(start_paused = true)]
async fn f09_the_cursor_waits_for_every_origin_that_is_carried() {
    let mut rig = Rig::new();
    let (c, d) = (rig.c.block(&["k1"], 10), rig.d.block(&["k2"], 10));
    rig.log.push_blocks(vec![c]);
    let middle = rig.log.end();
    rig.log.push_blocks(vec![d]);
    rig.offer().await.unwrap();
    rig.send();
    rig.ack("d", 8, 1);
    assert_eq!(rig.session.take_durable(), None, "the page of c stands in front");
    rig.ack("c", 7, 1);
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()));
    assert!(middle.lsn < rig.log.end().lsn);
}

#[tokio::test(start_paused = true)]
async fn f14_what_came_to_the_peer_by_another_link_meanwhile_is_not_sent() {
    let mut rig = Rig::new();
    let blocks = [rig.c.block(&["k1"], 10), rig.d.block(&["k2"], 10)];
    rig.log.push_blocks(blocks.to_vec());
    rig.offer().await.unwrap();
    rig.ack("c", 7, 1);
    assert_eq!(rig.send(), [(tag("d"), 1)], "it was open when the peer said that it has it");
    let more = rig.c.block(&["k1"], 10);
    rig.ack("c", 7, 2);
    rig.log.push_blocks(vec![more]);
    rig.offer().await.unwrap();
    assert_eq!(rig.send(), [], "it was not yet offered");
    rig.ack("d", 8, 1);
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()));
}

#[tokio::test(start_paused = true)]
async fn f02_a_forwarded_promise_leaves_behind_every_page_that_its_tails_claim() {
    let mut rig = Rig::new();
    let block = rig.c.block(&["k1"], 10);
    rig.log.push_blocks(vec![block]);
    rig.log.promise(tag("c"), Hlc::new(900));
    rig.stand();
    assert_eq!(rig.heartbeats(), [], "the log was not taken over up to there");
    rig.offer().await.unwrap();
    assert_eq!(rig.heartbeats(), [], "the page has not left");
    assert_eq!(rig.send(), [(tag("c"), 1)]);
    assert_eq!(rig.heartbeats(), [(tag("c"), Hlc::new(900), 1)]);
    rig.stand();
    assert_eq!(rig.heartbeats(), [], "nothing new is promised");
}

#[tokio::test(start_paused = true)]
async fn promises_alone_are_passed_on_and_not_to_who_knows_them() {
    let mut rig = Rig::new();
    rig.log.promise(tag("c"), Hlc::new(900));
    rig.log.promise(tag("d"), Hlc::new(800));
    let frontier = encode_vector(&[(tag("d"), Hlc::new(800))].into_iter().collect());
    rig.take(wire::Ack { frontier, credit_bytes: 1, ..wire::Ack::default() });
    rig.stand();
    assert_eq!(rig.heartbeats(), [(tag("c"), Hlc::new(900), 0)], "an origin that never wrote is closed too");
}

#[tokio::test(start_paused = true)]
async fn an_origin_of_which_the_peer_was_not_told_ends_the_session_before_it_is_passed_over() {
    let mut rig = Rig::new();
    let mut e = Other::new("e", 9);
    rig.log.know(&e.name, e.incarnation);
    rig.log.promise(tag("e"), Hlc::new(5));
    assert!(matches!(rig.session.stand(rig.log.standing()), Err(ShipError::NewOrigin { .. })));
    rig.log.push_blocks(vec![e.block(&["k1"], 10)]);
    assert!(matches!(rig.offer().await, Err(ShipError::NewOrigin { origin, .. }) if origin == tag("e")));
    assert_eq!(rig.session.take_durable(), None, "the log before it is not given up");
}

#[tokio::test(start_paused = true)]
async fn f02_a_promise_does_not_wait_for_an_open_wave_that_holds_nothing_it_claims() {
    let mut rig = Rig::new();
    let of_d = rig.d.block(&["k2"], 10);
    rig.log.push_blocks(vec![of_d]);
    rig.offer().await.unwrap();
    assert_eq!(rig.send(), [(tag("d"), 1)]);
    // The next wave stays open, as one does that waits for its turn under a limit.
    let of_c = rig.c.block(&["k1"], 10);
    rig.log.push_blocks(vec![of_c]);
    rig.offer().await.unwrap();
    rig.log.promise(tag("c"), Hlc::new(900));
    rig.log.promise(tag("d"), Hlc::new(900));
    rig.stand();
    assert_eq!(rig.heartbeats(), [(tag("d"), Hlc::new(900), 1)], "what c claims is in the open wave");
    // More that cannot even be taken over, and what else is promised meanwhile.
    let more = rig.c.block(&["k3"], 10);
    rig.log.push_blocks(vec![more]);
    rig.log.promise(tag("d"), Hlc::new(950));
    rig.stand();
    assert_eq!(rig.heartbeats(), [(tag("d"), Hlc::new(950), 1)]);
    rig.offer().await.unwrap();
    assert_eq!(rig.send(), [(tag("c"), 2)]);
    let late = rig.heartbeats();
    assert_eq!(late, [(tag("c"), Hlc::new(900), 2)], "and d is not promised less than before: {late:?}");
}
