//! Claims about the session: when pages leave, what they cover, and how a session ends; without a link.

use std::time::Duration;

use proptest::prelude::*;
use tidewire_core::causal::VersionVector;
use tidewire_core::feed::{Batch, FeedReader, FeedSource};
use tidewire_core::id::{Incarnation, Lsn, Offset, OriginTag, PartitionId, TreeName};
use tidewire_core::record::{Block, BlockBuilder, Mutation};
use tidewire_core::sink::MemFeed;
use tidewire_core::transport::marks::encode_origin;
use tidewire_core::transport::pages::{Assembler, Page};
use tidewire_core::tree::{Consistency, LogView, MergeMode};

use super::*;

const PARTITIONS: u16 = 4;
const NUMBER: u64 = 77;
const MIB: usize = 1024 * 1024;

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
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

/// A session with a log, and the far side's view: what it has put together and covers.
struct Rig {
    log: MemFeed,
    reader: Box<dyn FeedReader>,
    session: Session,
    assembler: Assembler,
    pages: Vec<Page>,
    now: Instant,
}

impl Rig {
    fn new(credit: u64) -> Self {
        Self::with(credit, Settings::default())
    }

    fn with(credit: u64, settings: Settings) -> Self {
        let log = MemFeed::new(me());
        let welcomed = Welcomed { session: SessionNumber::new(NUMBER), credit, ..Welcomed::default() };
        let now = Instant::now();
        let route = Route::new(&me(), None, log.end());
        let session = Session::new(id("b"), me(), &welcomed, route, settings, now);
        let assembler = Assembler::new(PARTITIONS, 64 * MIB);
        Self { reader: log.feed(log.end()), log, session, assembler, pages: Vec::new(), now }
    }

    async fn batch(&mut self) -> Batch {
        self.reader.next().await.unwrap()
    }

    /// Offers everything that is in the log while there is room; whether all of it was taken.
    async fn offer_all(&mut self) -> bool {
        while self.reader.cursor() != self.log.end() {
            let batch = self.batch().await;
            for (count, group) in (1..).zip(batch.groups()) {
                if !self.session.has_room(group) {
                    self.send();
                    if !self.session.has_room(group) {
                        return false;
                    }
                }
                self.session.offer(group, batch.cursor_after(count), self.now).unwrap();
                self.send();
            }
        }
        true
    }

    /// Lets leave what may; how many pages that were.
    fn send(&mut self) -> usize {
        let before = self.pages.len();
        while let Some(out) = self.session.next_wave(self.now) {
            for frame in out.frames {
                assert_eq!(frame.session, NUMBER);
                let Some(Body::Page(part)) = frame.body else { panic!("a page was promised") };
                self.pages.extend(self.assembler.push(part).unwrap());
            }
        }
        self.pages.len() - before
    }

    /// What covers the first pages.
    fn marks_after(&self, pages: usize) -> OriginMarks {
        let mut marks = OriginMarks::new(me().incarnation, PARTITIONS);
        for (partition, end) in self.pages[..pages].iter().flat_map(|page| &page.through) {
            marks.advance(*partition, *end, Hlc::ZERO);
        }
        marks
    }

    fn receive(&mut self, ack: wire::Ack) -> Result<bool, ShipError> {
        self.session.receive(Frame::new(NUMBER, Body::Ack(ack)), self.now)
    }

    fn ack(&mut self, pages: usize, credit: u64) {
        let watermarks = vec![encode_origin(me().origin(), &self.marks_after(pages))];
        self.receive(wire::Ack { watermarks, credit_bytes: credit, ..wire::Ack::default() }).unwrap();
    }

    async fn put(&mut self, bytes: usize) -> usize {
        let key = format!("k{}", self.log.end().lsn);
        self.log.put(&key, bytes);
        let before = self.pages.len();
        self.offer_all().await;
        self.pages.len() - before
    }
}

fn remote_block(log: &MemFeed) -> Block {
    let mut builder = BlockBuilder::new(id("c").tag(), PARTITIONS, 0, 64);
    let partition = PartitionId::of(b"r", PARTITIONS);
    builder.push(&Mutation::set("r", "1"), partition, Offset::new(log.end().lsn.get()), Hlc::new(9), false);
    builder.seal(&VersionVector::default(), Incarnation::new(99))
}

#[tokio::test(start_paused = true)]
async fn small_groups_leave_at_once_until_two_pages_are_in_flight_and_then_fill_one() {
    let mut rig = Rig::new(u64::MAX);
    assert_eq!((rig.put(100).await, rig.put(100).await), (1, 1));
    for _ in 0..50 {
        assert_eq!(rig.put(100).await, 0, "the third page fills");
    }
    rig.ack(1, u64::MAX);
    assert_eq!(rig.send(), 1);
    assert_eq!(rig.pages[2].groups.len(), 50, "what came meanwhile travels together");
}

#[tokio::test(start_paused = true)]
async fn a_full_page_leaves_without_waiting_and_a_large_group_is_a_page_of_its_own() {
    let mut rig = Rig::new(u64::MAX);
    for _ in 0..8 {
        rig.put(300_000).await;
    }
    assert!(rig.pages.iter().all(|page| page.groups.len() == 1), "large pages do not wait");
    let mut rig = Rig::new(u64::MAX);
    let (first, second) = (rig.put(10).await, rig.put(10).await);
    for _ in 0..25 {
        rig.put(100_000).await;
    }
    rig.put(3 * MIB).await;
    let sizes: Vec<u64> = rig.pages.iter().map(Page::bytes).collect();
    assert_eq!((first, second), (1, 1));
    assert!(sizes[2..4].iter().all(|size| *size > 900_000), "{sizes:?}");
    let last = rig.pages.last().unwrap();
    assert!(last.groups.len() == 1 && last.bytes() > 3_000_000, "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn f32_what_is_in_flight_stays_below_credit_and_window() {
    let mut rig = Rig::new(500_000);
    for _ in 0..40 {
        rig.put(100_000).await;
        assert!(rig.session.ledger().bytes() <= 500_000);
    }
    let held: u64 = rig.pages.iter().map(Page::bytes).sum();
    assert!(held > 150_000 && held <= 500_000);
    rig.ack(rig.pages.len(), 0);
    assert_eq!(rig.send(), 0, "no credit, nothing leaves");
    rig.ack(rig.pages.len(), 1);
    assert_eq!(rig.send(), 1, "a single page leaves with any credit at all");
}

#[tokio::test(start_paused = true)]
async fn groups_of_other_origins_send_nothing_and_move_the_cursor() {
    let mut rig = Rig::new(u64::MAX);
    let remote = remote_block(&rig.log);
    rig.log.push_blocks(vec![remote]);
    rig.offer_all().await;
    assert!(rig.pages.is_empty());
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()));
    rig.put(10).await;
    let remote = remote_block(&rig.log);
    rig.log.push_blocks(vec![remote]);
    rig.offer_all().await;
    assert_eq!(rig.session.take_durable(), None, "not before the page in front of it");
    rig.ack(1, u64::MAX);
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()));
}

#[tokio::test(start_paused = true)]
async fn a_page_covers_offsets_that_were_given_up_on() {
    let mut rig = Rig::new(u64::MAX);
    for partition in 0..PARTITIONS {
        rig.log.skip_offset(PartitionId::new(partition));
    }
    rig.put(10).await;
    let page = &rig.pages[0];
    assert_eq!(page.after[0].1, Offset::ZERO);
    assert_eq!(page.through[0].1, Offset::new(2));
}

#[tokio::test(start_paused = true)]
async fn f02_a_heartbeat_waits_for_every_page_before_it() {
    let mut rig = Rig::new(0);
    rig.put(10).await;
    let idle = rig.reader.idle().await.unwrap().unwrap();
    rig.session.promise(idle.resolved().unwrap().clone(), 0);
    assert_eq!((rig.send(), rig.session.next_heartbeats()), (0, vec![]));
    rig.ack(0, u64::MAX);
    assert_eq!((rig.session.next_heartbeats(), rig.send()), (vec![], 1));
    let Some(Body::Heartbeat(heartbeat)) = rig.session.next_heartbeats().remove(0).body else { panic!() };
    assert!(heartbeat.closed > rig.pages[0].groups[0].closed.get());
    assert_eq!(rig.session.next_heartbeats(), [], "once");
}

#[tokio::test(start_paused = true)]
async fn f12_an_acknowledgement_that_covers_nothing_new_moves_no_cursor() {
    let mut rig = Rig::new(u64::MAX);
    rig.put(10).await;
    for _ in 0..5 {
        rig.ack(0, u64::MAX);
        rig.receive(wire::Ack { credit_bytes: 9, ..wire::Ack::default() }).unwrap();
    }
    assert_eq!(rig.session.take_durable(), None);
    rig.ack(1, u64::MAX);
    assert_eq!(rig.session.take_durable(), Some(rig.log.end()));
}

#[tokio::test(start_paused = true)]
async fn f42_no_progress_shows_and_silence_ends_the_session() {
    let mut rig = Rig::new(u64::MAX);
    assert_eq!(rig.session.deadline(), None, "nothing is owed");
    rig.put(10).await;
    assert_eq!(rig.session.deadline(), Some(rig.now + Duration::from_secs(10)));
    rig.now += Duration::from_secs(10);
    rig.session.on_time(rig.now).unwrap();
    assert!(rig.session.waits().unwrap().contains("acknowledged nothing"));
    assert_eq!(rig.session.deadline(), Some(rig.now + Duration::from_secs(20)));
    rig.now += Duration::from_secs(20);
    assert!(matches!(rig.session.on_time(rig.now), Err(ShipError::Silent { .. })));
    rig.receive(wire::Ack { held_bytes: 55, ..wire::Ack::default() }).unwrap();
    rig.now += Duration::from_secs(300);
    rig.session.on_time(rig.now).unwrap();
    assert!(
        rig.session.waits().unwrap().contains("55 bytes"),
        "what waits for others may wait long, visibly"
    );
    rig.ack(1, u64::MAX);
    assert_eq!((rig.session.waits(), rig.session.deadline()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn f42_a_page_that_waits_for_its_turn_under_the_limit_is_not_the_peers_to_acknowledge() {
    let rate = Some(crate::rate::RateLimit::new(100));
    let mut rig = Rig::with(u64::MAX, Settings { rate, ..Settings::default() });
    assert_eq!((rig.put(4_000).await, rig.put(10).await), (1, 0), "the second has no turn for 40 s");
    rig.ack(1, u64::MAX);
    let turn = rig.session.deadline().expect("a turn comes");
    assert!(turn - rig.now > Duration::from_secs(30), "nothing else is waited for");
    rig.now += Duration::from_secs(20);
    rig.session.on_time(rig.now).unwrap();
    assert_eq!((rig.session.waits(), rig.session.deadline()), (None, Some(turn)));
    rig.now = turn;
    rig.session.on_time(rig.now).unwrap();
    assert_eq!((rig.send(), rig.session.waits()), (1, None));
    assert_eq!(rig.session.deadline(), Some(rig.now + Duration::from_secs(10)), "from when it left");
    rig.now += Duration::from_secs(10);
    rig.session.on_time(rig.now).unwrap();
    assert!(rig.session.waits().unwrap().contains("acknowledged nothing"));
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_another_session_is_dropped() {
    let mut rig = Rig::new(u64::MAX);
    let refusal = Body::Refusal(wire::Refusal { kind: "busy".into(), ..wire::Refusal::default() });
    assert!(!rig.session.receive(Frame::new(NUMBER - 1, refusal.clone()), rig.now).unwrap());
    assert!(rig.session.receive(Frame::new(NUMBER, refusal), rig.now).is_err());
}

#[tokio::test(start_paused = true)]
async fn f52_what_a_peer_cannot_mean_ends_the_session() {
    for body in [None, Some(Body::Hello(wire::Hello::default())), Some(Body::Page(wire::Page::default()))] {
        let frame = Frame { session: NUMBER, body };
        let mut rig = Rig::new(u64::MAX);
        assert!(matches!(rig.session.receive(frame, rig.now), Err(ShipError::Link { .. })));
    }
    let mut rig = Rig::new(u64::MAX);
    let other = OriginMarks::new(Incarnation::new(6), PARTITIONS);
    let watermarks = vec![encode_origin(me().origin(), &other)];
    let error = rig.receive(wire::Ack { watermarks, ..wire::Ack::default() }).unwrap_err();
    assert!(matches!(error, ShipError::IncarnationChanged { .. }), "{error}");
    let elsewhere = vec![encode_origin(OriginTag::new(3), &other)];
    assert!(rig.receive(wire::Ack { watermarks: elsewhere, ..wire::Ack::default() }).is_ok(), "not about us");
}

#[tokio::test(start_paused = true)]
async fn a_refused_page_ends_the_session_by_its_kind() {
    use crate::status::ShipperState::{Connecting, Refused};
    for (kind, state) in
        [("gap", Connecting), ("unavailable", Connecting), ("clock_skew", Refused), ("own_origin", Refused)]
    {
        let mut rig = Rig::new(u64::MAX);
        let refused = wire::PageRefusal { page_id: 1, kind: kind.into(), detail: "in their words".into() };
        let error = rig.receive(wire::Ack { refused: Some(refused), ..wire::Ack::default() }).unwrap_err();
        assert_eq!(error.state(), state, "{kind}");
        assert!(error.to_string().contains("in their words"));
    }
}

proptest! {
    /// Whatever the sizes, the acknowledgements and the credit: the receiver puts together exactly the log, without a
    /// gap, and the cursor follows what it covers.
    #[test]
    fn f07_pages_are_the_log_without_gap_or_repetition(
        steps in proptest::collection::vec((0_usize..400_000, any::<prop::sample::Index>(), 0_u64..600_000), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let mut rig = Rig::new(1);
            let mut offered = Vec::new();
            for (size, acked, credit) in steps {
                rig.log.put(&format!("k{size}"), size);
                let batch = rig.batch().await;
                offered.push(batch);
                let mut left = Vec::new();
                for batch in offered.drain(..) {
                    let group = &batch.groups()[0];
                    if left.is_empty() && rig.session.has_room(group) {
                        rig.session.offer(group, batch.end(), rig.now).unwrap();
                    } else {
                        left.push(batch);
                    }
                    rig.send();
                }
                offered = left;
                let pages = acked.index(rig.pages.len() + 1);
                rig.ack(pages, credit);
                rig.send();
            }
            for _ in 0..500 {
                for batch in std::mem::take(&mut offered) {
                    if offered.is_empty() && rig.session.has_room(&batch.groups()[0]) {
                        rig.session.offer(&batch.groups()[0], batch.end(), rig.now).unwrap();
                    } else {
                        offered.push(batch);
                    }
                }
                rig.ack(rig.pages.len(), u64::MAX);
                rig.send();
            }
            let mut covered = OriginMarks::new(me().incarnation, PARTITIONS);
            for page in &rig.pages {
                for (partition, after) in &page.after {
                    assert_eq!(covered.get(*partition).next, *after, "a page begins where the last one ended");
                }
                for run in page.blocks().flat_map(Block::runs) {
                    assert_eq!(covered.get(run.partition).next, run.first);
                    covered.advance(run.partition, run.end(), Hlc::ZERO);
                }
            }
            assert_eq!(covered.covered(), rig.log.tails().covered());
            rig.ack(rig.pages.len(), u64::MAX);
            assert_eq!(rig.session.ledger().durable(), rig.log.end());
            assert!(!rig.session.has_backlog() && rig.log.end().lsn > Lsn::ZERO);
        });
    }
}
