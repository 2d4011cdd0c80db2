//! The far side, scripted: accepts a link, answers Hello as told, puts pages together, acknowledges on demand.

use std::time::Duration;

use tidewire_core::causal::OriginMarks;
use tidewire_core::id::{ClusterId, Hlc};
use tidewire_core::record::Block;
use tidewire_core::transport::marks::{decode_offsets, encode_origin};
use tidewire_core::transport::pages::{Assembler, Page};
use tidewire_core::transport::wire::{self, Frame, Hello, frame::Body};
use tidewire_core::transport::{Link, Listener, MemNetwork, Transport};
use tokio::time::timeout;

use crate::rig::{PARTITIONS, id, me};

/// The far side between sessions: what it holds of the shipper's origin.
pub(crate) struct Peer {
    listener: Box<dyn Listener>,
    pub(crate) held: OriginMarks,
    sessions: u64,
}

/// One session of it.
pub(crate) struct Conn {
    link: Link,
    number: u64,
    assembler: Assembler,
    pub(crate) hello: Hello,
    pub(crate) pages: Vec<Page>,
    pub(crate) heartbeats: Vec<wire::Heartbeat>,
    pub(crate) goodbye: Option<String>,
    /// What pages said that there is beyond them.
    pub(crate) beyond: Vec<(Vec<wire::PartitionMark>, u64)>,
    /// Bytes of packed groups that came.
    pub(crate) packed: u64,
}

impl Peer {
    pub(crate) async fn listen(network: &MemNetwork) -> Self {
        let listener = network.endpoint(&id("b")).listen().await.unwrap();
        Self { listener, held: OriginMarks::new(me().incarnation, PARTITIONS), sessions: 100 }
    }

    /// The next link, after its Hello.
    pub(crate) async fn meet(&mut self) -> Conn {
        let mut link = self.listener.accept().await.unwrap();
        let Some(Frame { session: 0, body: Some(Body::Hello(hello)) }) =
            link.receiver.receive().await.unwrap()
        else {
            panic!("the first frame is a hello, without a session");
        };
        self.sessions += 1;
        let assembler = Assembler::new(PARTITIONS, usize::MAX).unpacking(1024 * 1024);
        let (pages, heartbeats) = Default::default();
        Conn {
            link,
            number: self.sessions,
            assembler,
            hello,
            pages,
            heartbeats,
            goodbye: None,
            packed: 0,
            beyond: Vec::new(),
        }
    }

    /// What it says in a welcome.
    pub(crate) fn welcome(&self, credit: u64) -> wire::Welcome {
        wire::Welcome {
            protocol: 1,
            cluster: "b".into(),
            boot_id: 9,
            incarnation: 8,
            watermarks: vec![encode_origin(me().origin(), &self.held)],
            credit_bytes: credit,
            ..wire::Welcome::default()
        }
    }

    /// The next session, opened with the given credit.
    pub(crate) async fn accept(&mut self, credit: u64) -> Conn {
        let mut conn = self.meet().await;
        let welcome = self.welcome(credit);
        conn.send_welcome(welcome).await;
        conn
    }

    /// Takes the pages of a session over, up to the number given.
    pub(crate) fn hold(&mut self, conn: &Conn, pages: usize) {
        for block in conn.pages[..pages].iter().flat_map(Page::blocks) {
            for record in block.records() {
                let record = record.unwrap();
                let next = self.held.get(record.partition).next.next();
                self.held.advance(record.partition, next, record.hlc);
            }
        }
    }

    pub(crate) fn ack(&self, credit: u64) -> wire::Ack {
        let watermarks = vec![encode_origin(me().origin(), &self.held)];
        wire::Ack { watermarks, credit_bytes: credit, ..wire::Ack::default() }
    }
}

impl Conn {
    pub(crate) async fn send_welcome(&mut self, mut welcome: wire::Welcome) {
        welcome.session = self.number;
        self.send(Body::Welcome(welcome)).await;
    }

    pub(crate) async fn send(&mut self, body: Body) {
        self.send_as(self.number, body).await;
    }

    pub(crate) async fn send_as(&mut self, session: u64, body: Body) {
        self.link.sender.send(Frame::new(session, body)).await.unwrap();
    }

    /// The next frame, taken in; false when the link has ended.
    async fn take(&mut self) -> bool {
        let Ok(Some(frame)) = self.link.receiver.receive().await else { return false };
        assert_eq!(frame.session, self.number);
        match frame.body {
            Some(Body::Page(part)) => {
                self.packed += part.packed.len() as u64;
                if !part.tails.is_empty() {
                    self.beyond.push((part.tails.clone(), part.tail_bytes));
                }
                self.pages.extend(self.assembler.push(part).unwrap());
            }
            Some(Body::Heartbeat(heartbeat)) => {
                assert!(!self.assembler.is_midway(), "nothing comes between the parts of a page");
                self.heartbeats.push(heartbeat);
            }
            Some(Body::Goodbye(goodbye)) => self.goodbye = Some(goodbye.reason),
            other => panic!("a shipper does not send {other:?}"),
        }
        true
    }

    /// Takes in what comes within the time; false when the link has ended.
    pub(crate) async fn listen_for(&mut self, time: Duration) -> bool {
        let ended = timeout(time, async { while self.take().await {} }).await;
        ended.is_err()
    }

    /// Takes in frames until that many records have come.
    pub(crate) async fn until_records(&mut self, records: u64) {
        while self.records() < records {
            assert!(self.take().await, "the link ended");
        }
    }

    pub(crate) fn records(&self) -> u64 {
        self.pages.iter().map(Page::records).sum()
    }

    /// What the pages so far cover.
    pub(crate) fn covered(&self) -> OriginMarks {
        Self::covered_by(&self.pages)
    }

    /// What some pages cover.
    pub(crate) fn covered_by(pages: &[Page]) -> OriginMarks {
        let mut covered = OriginMarks::new(me().incarnation, PARTITIONS);
        for (partition, end) in pages.iter().flat_map(|page| &page.through) {
            covered.advance(*partition, *end, Hlc::ZERO);
        }
        covered
    }

    /// The HLC of every record in the order of arrival.
    pub(crate) fn hlcs(&self) -> Vec<Hlc> {
        let blocks = self.pages.iter().flat_map(Page::blocks);
        blocks.flat_map(Block::records).map(|record| record.unwrap().hlc).collect()
    }
}

/// Whether a heartbeat's tails are covered by what a peer holds.
pub(crate) fn covers(held: &OriginMarks, heartbeat: &wire::Heartbeat) -> bool {
    let tails = decode_offsets(&heartbeat.tails, PARTITIONS).unwrap();
    tails.iter().all(|(partition, end)| held.get(*partition).next >= *end)
}

pub(crate) fn tag(name: &str) -> u64 {
    ClusterId::new(name).unwrap().tag().get()
}
