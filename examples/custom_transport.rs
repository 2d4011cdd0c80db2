//! A transport of your own: here, channels inside one process, and a count of the frames that cross them.
//!
//! The duties are in the docs of `tidewire_core::transport`; a transport that others rely on also runs the conformance
//! suite there. `cargo run -p tidewire-examples --example custom_transport`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidewire::{Cluster, ClusterConfig, Peer};
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::transport::{
    DialTarget, Link, LinkReceiver, LinkSender, Listener, Transport, wire::Frame,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// What all clusters share: where each one accepts links, and how many frames were sent.
#[derive(Default)]
struct Hall {
    doors: Mutex<BTreeMap<String, Sender<Link>>>,
    frames: AtomicU64,
}

/// One cluster's place in the hall.
struct Channels(Arc<Hall>, &'static str);

fn closed(what: &str) -> LinkError {
    LinkError::new(LinkErrorKind::Closed, what)
}

#[async_trait]
impl Transport for Channels {
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError> {
        let door = self.0.doors.lock().get(&target.url).cloned();
        let nobody = || LinkError::new(LinkErrorKind::Unreachable, format!("nobody is at {}", target.url));
        let door = door.ok_or_else(nobody)?;
        // A stream of frames each way. The bound is what pushes back on a sender that is too fast.
        let ((to_them, from_us), (to_us, from_them)) = (channel(16), channel(16));
        let half = |sender, receiver, remote: &str| Link {
            sender: Box::new(Sending(Some(sender), self.0.clone())),
            receiver: Box::new(Receiving(receiver)),
            remote: remote.to_owned(),
        };
        door.send(half(to_us, from_us, self.1)).await.map_err(|_| nobody())?;
        Ok(half(to_them, from_them, &target.url))
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let (door, links) = channel(16);
        self.0.doors.lock().insert(self.1.to_owned(), door);
        Ok(Box::new(Door(links, self.1)))
    }
}

struct Door(Receiver<Link>, &'static str);

#[async_trait]
impl Listener for Door {
    async fn accept(&mut self) -> Result<Link, LinkError> {
        self.0.recv().await.ok_or_else(|| closed("the door is closed"))
    }

    fn address(&self) -> String {
        self.1.to_owned()
    }

    async fn close(&mut self) {
        self.0.close();
    }
}

struct Sending(Option<Sender<Frame>>, Arc<Hall>);

#[async_trait]
impl LinkSender for Sending {
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError> {
        let sender = self.0.as_ref().ok_or_else(|| closed("this half is closed"))?;
        // Cancel-safe: a frame goes in whole when there is room, or not at all.
        let gone = |_| LinkError::new(LinkErrorKind::Unreachable, "the far side is gone");
        sender.send(frame).await.map_err(gone)?;
        self.1.frames.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn close(&mut self) {
        self.0 = None;
    }
}

struct Receiving(Receiver<Frame>);

#[async_trait]
impl LinkReceiver for Receiving {
    async fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        Ok(self.0.recv().await)
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (dir, hall) = (tempfile::tempdir()?, Arc::new(Hall::default()));
    let mut clusters = Vec::new();
    for name in ["eu-west", "us-east"] {
        let transport = Arc::new(Channels(hall.clone(), name));
        let config = ClusterConfig::new(name, dir.path().join(name));
        clusters.push(Cluster::builder(config).transport(transport).open().await?);
    }
    let here = clusters[0].tree("orders").await?;
    let there = clusters[1].tree("orders").await?;
    clusters[0].add_peer(Peer::new("us-east", "us-east")).await?; // the url is what `dial` makes of it
    clusters[1].add_peer(Peer::new("eu-west", "eu-west")).await?;

    let version = here.put("order-17", "paid").await?;
    there.wait_for(&here.token(version), Duration::from_secs(10)).await?;
    assert!(there.get("order-17").is_some());
    for cluster in &clusters {
        cluster.shutdown().await?;
    }
    println!("{} frames crossed the hall", hall.frames.load(Ordering::Relaxed));
    Ok(())
}
