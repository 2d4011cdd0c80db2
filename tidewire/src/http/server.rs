//! [`HttpServer`]: the socket, its connections, and their end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::config::HttpConfig;
use super::patience::Patient;
use super::site::Site;

/// Open connections; more wait in the listen queue until one is closed. Never more than half of the files that the
/// process may open, so that the log can always open its own.
const MAX_CONNECTIONS: usize = 1_024;
/// How long a client may take from connecting, or from an answer, to the end of its next request's headers.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// How long a client may take for each 64 KiB of an answer that waits for it.
const TAKE_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request's first line and headers: a key of 4 KiB takes 12 KiB when all of it is encoded, a token 9 KiB.
const HEADER_BYTES: usize = 64 * 1024;
/// How long requests in flight may take when the server stops.
const STOP_BUDGET: Duration = Duration::from_secs(5);
/// How long to wait after the system refused to accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The API of one cluster on one address. It stops with its site; this handle only says where it is.
#[derive(Clone, Debug)]
pub struct HttpServer {
    address: SocketAddr,
}

impl HttpServer {
    /// Binds and serves, in tasks of `tasks`, until the site's stop token fires.
    ///
    /// # Errors
    /// `Invalid` when the address cannot be bound or the token is empty; the message says what to do.
    pub async fn start(mut config: HttpConfig, site: Arc<dyn Site>, tasks: &Tasks) -> Result<Self, Error> {
        if config.token.as_deref().is_some_and(|token| token.trim().is_empty()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the token for http is empty; anybody could present it",
            ));
        }
        let listener =
            TcpListener::bind(config.address).await.map_err(|error| cannot_bind(config.address, error))?;
        let address = listener.local_addr().map_err(|error| cannot_bind(config.address, error))?;
        config.address = address;
        let stop = site.stop_token();
        let acceptor = Acceptor {
            api: Arc::new(Api::new(site, config, tasks.clone())),
            places: Arc::new(Semaphore::new(connections())),
            stop,
        };
        tasks.spawn("http", acceptor.run(listener));
        Ok(Self { address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    half.map_or(MAX_CONNECTIONS, |half| half.clamp(1, MAX_CONNECTIONS))
}

fn cannot_bind(address: SocketAddr, error: io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there; stop it or set listen.http to a free port (0 picks one)"
        }
        io::ErrorKind::AddrNotAvailable => "set listen.http to an address of this machine",
        io::ErrorKind::PermissionDenied => "set listen.http to a port from 1024 up, or allow this one",
        _ => "check listen.http",
    };
    Error::new(ErrorKind::Invalid, format!("cannot serve http on {address}: {advice}")).with_source(error)
}

struct Acceptor {
    api: Arc<Api>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                accepted = self.accept(&listener) => {
                    let Some((stream, place)) = accepted else { return };
                    let (api, stop) = (self.api.clone(), self.stop.clone());
                    self.api.tasks.spawn("http connection", async move {
                        serve(stream, api, stop).await;
                        drop(place);
                    });
                }
            }
        }
    }

    async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, place)),
                // The client was gone before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "http connection not accepted; the limit of open files may be too low");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, api: Arc<Api>, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "http connection without nodelay");
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.answer(request.map(Body::new)).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(Patient::new(stream, TAKE_TIME)), service)
    );
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        ended = connection.as_mut() => Some(ended),
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(STOP_BUDGET, connection).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::debug!("http request cut off: it took too long for a stop");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "http connection broke");
    }
}
