//! A transport of your own: here, one that counts what is sent on the links that the one it wraps dials.
//!
//! Its duties, and a conformance suite: `tidewire_core::transport`. `cargo run -p tidewire-examples --example custom_transport`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidewire::{Cluster, ClusterConfig, Peer};
use tidewire_connectors::transports::grpc::{GrpcConfig, GrpcTransport};
use tidewire_core::error::LinkError;
use tidewire_core::transport::{DialTarget, Link, LinkSender, Listener, Transport, wire::Frame};

/// Anything, and how many frames were sent.
struct Counted<T>(T, Arc<AtomicU64>);
#[async_trait]
impl Transport for Counted<Arc<dyn Transport>> {
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError> {
        let link = self.0.dial(target).await?;
        Ok(Link { sender: Box::new(Counted(link.sender, self.1.clone())), ..link })
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.0.listen().await
    }
}

#[async_trait]
impl LinkSender for Counted<Box<dyn LinkSender>> {
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.send(frame).await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (dir, count) = (tempfile::tempdir()?, Arc::new(AtomicU64::new(0)));
    let open = async |name: &str| {
        let wire = GrpcConfig { listen: "127.0.0.1:0".to_owned(), ..GrpcConfig::default() };
        let wire = Counted(Arc::new(GrpcTransport::new(wire)?) as Arc<dyn Transport>, count.clone());
        Cluster::builder(ClusterConfig::new(name, dir.path().join(name)))
            .transport(Arc::new(wire))
            .open()
            .await
    };
    let (europe, america) = (open("eu-west").await?, open("us-east").await?);
    let (here, there) = (europe.tree("orders").await?, america.tree("orders").await?);
    for (one, other) in [(&europe, &america), (&america, &europe)] {
        let url = format!("http://{}", other.replication_address().ok_or("it listens")?);
        one.add_peer(Peer::new(other.id().as_str(), url)).await?;
    }
    let token = here.token(here.put("order-17", "paid").await?);
    there.wait_for(&token, Duration::from_secs(10)).await?;
    europe.shutdown().await?;
    america.shutdown().await?;
    println!("{} frames were sent", count.load(Ordering::Relaxed));
    Ok(())
}
