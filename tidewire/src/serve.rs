//! `serve`: one cluster in this process, until a signal ends it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tidewire_core::error::{Error, ErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::cli::Failure;
use crate::cluster::{Cluster, Reloaded};
use crate::config::{self, ClusterConfig};
use crate::http::{HttpConfig, HttpServer};
use crate::local::runtime;

/// A token that is shorter can be guessed; a longer one does not fit the headers.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 4_096;

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// Runs it.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let config = config::load(&args.config)?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    raise_open_files();
    let runtime = runtime()?;
    let stopped = runtime.block_on(serve(config, &args.config));
    runtime.shutdown_background();
    Ok(stopped?)
}

/// Segments and connections are open files: take as many as the system allows this process.
fn raise_open_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).is_err() {
        tracing::warn!("the limit on open files stays as it is; many trees or connections may need more");
    }
}

async fn serve(config: ClusterConfig, file: &Path) -> Result<ExitCode, Error> {
    let mut signals = Signals::new()?;
    let mut http = HttpConfig::new(config.listen.http, &config.limits());
    http.token = config.listen.token_file.as_deref().map(token).transpose()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        cluster = config.cluster.id,
        data_dir = %config.cluster.data_dir.display(),
        "starting"
    );
    let cluster = Cluster::open(config.clone()).await?;
    let server = match HttpServer::start(http, Arc::new(cluster.clone()), cluster.tasks()).await {
        Ok(server) => server,
        Err(error) => {
            cluster.shutdown().await?;
            return Err(error);
        }
    };
    tracing::info!(
        http = %server.address(),
        replication = cluster.replication_address().unwrap_or_default(),
        "listening"
    );
    for tree in cluster.trees() {
        let size = tree.size();
        tracing::info!(tree = %tree.identity().tree, entries = size.entries, next = %size.log.next, "tree open");
    }
    for peer in &config.peers {
        tracing::info!(peer = peer.id, url = peer.url.as_deref().unwrap_or("-"), send = peer.send, "peer");
    }
    if let Err(error) = cluster.release_unlisted_peers().await {
        tracing::warn!(%error, "what logs hold for peers that are not listed any more is not released; the next start tries again");
    }
    while signals.next().await == Wish::Reload {
        tokio::select! {
            biased;
            () = signals.stop() => break,
            () = reload(file, &cluster) => {}
        }
    }
    tracing::info!("stopping: no new writes, finishing what is pending; a second signal ends at once");
    tokio::select! {
        biased;
        stopped = cluster.shutdown() => {
            stopped?;
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        () = signals.stop() => {
            tracing::warn!("ended at once by a second signal");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The token that requests have to present: the first line of a file that nobody else should be able to read.
fn token(file: &Path) -> Result<String, Error> {
    #[expect(clippy::disallowed_methods, reason = "what is read once at the start of the process is no data")]
    let text = std::fs::read_to_string(file).map_err(|error| {
        let said = format!(
            "listen.token_file: {} cannot be read: {error}; write the token into it, or leave the key out",
            file.display()
        );
        Error::new(ErrorKind::Invalid, said)
    })?;
    let token = text.trim();
    let fits = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !fits {
        let said = format!(
            "listen.token_file: {} holds no token: {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters on one line, for example of `openssl rand -hex 32`",
            file.display()
        );
        return Err(Error::new(ErrorKind::Invalid, said));
    }
    Ok(token.to_owned())
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Stop,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "signals cannot be listened for").with_source(error)
            })
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    async fn next(&mut self) -> Wish {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Waits for a signal that ends the process. Cancel-safe; other signals are left for later.
    async fn stop(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Reads the configuration again and takes over what can change while the cluster runs.
async fn reload(file: &Path, cluster: &Cluster) {
    let config = match config::load(file) {
        Ok(config) => config,
        Err(error) => {
            for problem in error.problems() {
                tracing::error!(file = %file.display(), %problem, "the configuration is not valid; nothing has changed");
            }
            return;
        }
    };
    match cluster.reload(config).await {
        Ok(done) => {
            for key in &done.needs_restart {
                tracing::warn!(key, "a changed setting takes a restart; it goes on as it was");
            }
            let Reloaded { added, changed, removed, freed_bytes, trees, sinks, interests, .. } = done;
            tracing::info!(
                ?added,
                ?changed,
                ?removed,
                freed_bytes,
                ?trees,
                ?sinks,
                ?interests,
                "configuration read again"
            );
        }
        Err(error) => {
            tracing::error!(%error, "the configuration is not taken over whole; mend it and send SIGHUP again");
        }
    }
}
