//! The accepting side: the port, its connections and their end.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::Stream;
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::{Link, Listener};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::config::{
    CLOSE_GRACE, CONNECTION_WINDOW_BYTES, FRAME_BYTES, HEADER_BYTES, KEEP_ALIVE, MAX_STREAMS,
    STREAM_WINDOW_BYTES,
};
use super::service::Replication;
use super::socket::Socket;
use super::strangers::Strangers;

/// Links that have said `Hello` and wait to be accepted.
const BACKLOG: usize = 16;
/// How long to wait after the system could not accept, for instance because it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What to do about an address that cannot be bound.
fn advice(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::AddrInUse => {
            "another process listens there; stop it, or set listen.replication to a free port (0 picks one)"
        }
        std::io::ErrorKind::AddrNotAvailable => "set listen.replication to an address of this machine",
        std::io::ErrorKind::PermissionDenied => {
            "set listen.replication to a port from 1024 up, or allow this one"
        }
        _ => "check listen.replication",
    }
}

/// Listens on a port. Its tasks: the server, streams that have not said `Hello`, and a task for each connection, which ends
/// with its [`Socket`].
pub(super) struct GrpcListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Link>,
    tasks: Tasks,
    /// Breaks every connection.
    kill: CancellationToken,
}

impl GrpcListener {
    /// Binds and starts to serve.
    pub(super) async fn bind(listen: &str, message_bytes: usize) -> Result<Self, LinkError> {
        let refuse = |error: std::io::Error| {
            let said = format!("cannot listen on {listen}: {}", advice(error.kind()));
            LinkError::new(LinkErrorKind::Config, said).with_source(error)
        };
        let listener = TcpListener::bind(listen).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        let tasks = Tasks::new(Threads::Spawn);
        let kill = CancellationToken::new();
        let (links, accepted) = mpsc::channel(BACKLOG);
        let service = Replication { tasks: tasks.clone(), accepted: links, message_bytes };
        let incoming = incoming(listener, kill.clone());
        let stop = tasks.stop_token().cancelled_owned();
        tasks.spawn("grpc server", async move {
            if let Err(error) = server().serve_with_incoming_shutdown(service, incoming, stop).await {
                tracing::error!(%error, "replication port failed");
            }
        });
        Ok(Self { address, accepted, tasks, kill })
    }
}

fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_frame_size(FRAME_BYTES)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
}

/// The connections of a port, each entered as a stranger.
fn incoming(
    listener: TcpListener,
    kill: CancellationToken,
) -> impl Stream<Item = Result<Socket, std::io::Error>> {
    let strangers = Arc::new(Strangers::default());
    futures::stream::unfold((listener, kill, strangers), async |(listener, kill, strangers)| {
        loop {
            match listener.accept().await {
                // Small frames must not wait for company; the server's own setting does not reach these sockets.
                Ok((stream, remote)) if stream.set_nodelay(true).is_ok() => {
                    let visitor = strangers.admit(remote, kill.child_token());
                    return Some((Ok(Socket::new(stream, visitor)), (listener, kill, strangers)));
                }
                // Gone before it was looked at.
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "replication port cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

#[async_trait]
impl Listener for GrpcListener {
    async fn accept(&mut self) -> Result<Link, LinkError> {
        let closed =
            || LinkError::new(LinkErrorKind::Closed, format!("{}: this listener is closed", self.address));
        self.accepted.recv().await.ok_or_else(closed)
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn close(&mut self) {
        self.accepted.close();
        while self.accepted.try_recv().is_ok() {}
        let mut ended = pin!(self.tasks.join());
        if timeout(CLOSE_GRACE, &mut ended).await.is_err() {
            self.kill.cancel();
            ended.await;
        }
    }
}

impl Drop for GrpcListener {
    fn drop(&mut self) {
        self.kill.cancel();
        self.tasks.stop();
    }
}
