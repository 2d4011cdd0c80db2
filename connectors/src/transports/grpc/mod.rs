//! Links over gRPC: the service `tidewire.replication.v1.Replication` on HTTP/2, without TLS yet.
//!
//! Links to one url share a TCP connection, a stream each, up to [`MAX_STREAMS`]; they take turns frame by frame, and a
//! tree that is not read holds back no other, because the window of a connection holds every stream's window full.
//! Back-pressure is that of HTTP/2: one frame waits in this process, the rest in flow-control windows of a fixed size. The transport knows nothing of
//! sessions; it looks at one thing only, that the first frame of an accepted stream is a `Hello` and comes in time.
//!
//! What a stranger can make this process hold is a constant: [`STRANGER_BYTES`]. What a known peer can is
//! [`CONNECTION_WINDOW_BYTES`] and one message for each connection.

mod client;
mod codec;
mod config;
mod connections;
mod error;
mod first_frame;
mod halves;
mod server;
mod service;
mod socket;
mod strangers;

use async_trait::async_trait;
use tidewire_core::error::LinkError;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::{DialTarget, Link, Listener, Transport};

pub use config::{
    CLOSE_GRACE, CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, FRAME_BYTES, GrpcConfig, HEADER_BYTES,
    HELLO_BYTES, HELLO_DEADLINE, KEEP_ALIVE, MAX_STRANGERS, MAX_STREAMS, STRANGER_BYTES, STREAM_WINDOW_BYTES,
};

/// The transport over gRPC.
#[derive(Clone, Debug)]
pub struct GrpcTransport {
    config: GrpcConfig,
    lingering: Tasks,
    connections: connections::Connections,
}

impl GrpcTransport {
    /// A transport with these settings. Nothing is bound until [`listen`](Transport::listen).
    ///
    /// # Errors
    /// `Config` when a setting is out of its bounds.
    pub fn new(config: GrpcConfig) -> Result<Self, LinkError> {
        let connections = connections::Connections::default();
        Ok(Self { config: config.validate()?, lingering: Tasks::new(Threads::Spawn), connections })
    }

    /// How many connections to other clusters are open; links to one share them.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }
}

#[async_trait]
impl Transport for GrpcTransport {
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError> {
        client::dial(&target.url, self.config.message_bytes(), &self.lingering, &self.connections).await
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(server::GrpcListener::bind(&self.config.listen, self.config.message_bytes()).await?))
    }
}
