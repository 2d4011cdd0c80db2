//! A server over one tree, and a client that sends exactly what it is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidewire_core::clock::{HybridClock, SystemClock};
use tidewire_core::cursors::Registry;
use tidewire_core::disk::MemDisk;
use tidewire_core::error::Error;
use tidewire_core::gc::{self, GcReport};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::limits::Limits;
use tidewire_core::meta::{MemMeta, StoredCeiling};
use tidewire_core::metrics::Metrics;
use tidewire_core::random::Random;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Consistency, MergeMode, Tree, TreeConfig, TreeMetrics};
use tidewire_core::wal::{CommitRunner, WalMetrics};
use tokio_util::sync::CancellationToken;

use crate::http::api::Api;
use crate::http::{HttpConfig, HttpServer, Site};
use crate::status::{Health, HealthState, ListenStatus, Status};

/// One cluster with the tree `orders`.
pub(super) struct TestSite {
    id: ClusterId,
    tree: Tree,
    metrics: Metrics,
    consumers: Registry,
    pub(super) reasons: Mutex<Vec<String>>,
    stop: CancellationToken,
}

impl Site for TestSite {
    fn id(&self) -> &ClusterId {
        &self.id
    }

    fn find_tree(&self, name: &str) -> Option<Tree> {
        (name == "orders").then(|| self.tree.clone())
    }

    fn trees(&self) -> Vec<Tree> {
        vec![self.tree.clone()]
    }

    fn status(&self) -> Status {
        Status {
            cluster: self.id.to_string(),
            version: "1".to_owned(),
            boot: "2".to_owned(),
            uptime_seconds: 3,
            listen: ListenStatus::default(),
            health: Health { state: HealthState::Ok, reasons: Vec::new() },
            trees: Vec::new(),
            peers: Vec::new(),
            members: Vec::new(),
            sinks: Vec::new(),
        }
    }

    fn gc<'a>(&'a self, _tree: &'a str, dry_run: bool) -> BoxFuture<'a, Result<GcReport, Error>> {
        let options = gc::PassOptions { dry_run, may_snapshot: true, ..gc::PassOptions::default() };
        Box::pin(async move { gc::collect(&self.tree, &self.consumers, options).await })
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        let reasons = self.reasons.lock().clone();
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

/// What a server is made of.
pub(super) struct Parts {
    pub(super) tree: Tree,
    pub(super) disk: MemDisk,
    pub(super) tasks: Tasks,
    pub(super) site: Arc<TestSite>,
    pub(super) config: HttpConfig,
}

impl Parts {
    pub(super) async fn new(threads: Threads) -> Self {
        let (tasks, disk, metrics) = (Tasks::new(threads), MemDisk::new(), Metrics::default());
        let limits = Limits { max_record_bytes: 64 * 1024, ..Limits::default() };
        let id = ClusterId::new("eu-west").expect("a name");
        let ceiling = Arc::new(StoredCeiling::new(Arc::new(MemMeta::new())));
        let clock = HybridClock::open(Arc::new(SystemClock), ceiling, Duration::from_secs(30)).await;
        let runner = match threads {
            Threads::Spawn => CommitRunner::new(tasks.clone()),
            Threads::Inline => {
                CommitRunner::simulated(tasks.clone(), Duration::from_millis(1), Random::from_seed(1))
            }
        };
        let tree = Tree::open(TreeConfig {
            cluster: id.clone(),
            name: TreeName::new("orders").expect("a name"),
            dir: PathBuf::from("/data/trees/orders"),
            partitions: 4,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
            interest: tidewire_core::record::Interest::all(),
            limits: limits.clone(),
            disk: Arc::new(disk.clone()),
            clock: Arc::new(clock.expect("a clock")),
            letters: None,
            tasks: tasks.clone(),
            runner,
            random: Random::from_seed(2),
            wal_metrics: WalMetrics::new(&metrics),
            tree_metrics: TreeMetrics::new(&metrics),
        })
        .await
        .expect("a tree");
        let stop = tasks.stop_token();
        let consumers = Registry::open(Arc::new(MemMeta::new()), &tree.identity().tree).await.expect("empty");
        let site = TestSite { id, tree: tree.clone(), metrics, consumers, reasons: Mutex::default(), stop };
        let config = HttpConfig::new("127.0.0.1:0".parse().expect("an address"), &limits);
        Self { tree, disk, tasks, site: Arc::new(site), config }
    }

    /// The API without a socket.
    pub(super) fn api(&self) -> Api {
        Api::new(self.site.clone(), self.config.clone(), self.tasks.clone())
    }

    pub(super) async fn serve(self) -> Served {
        let server = HttpServer::start(self.config.clone(), self.site.clone(), &self.tasks).await;
        Served { address: server.expect("it binds").address(), parts: self }
    }
}

/// A running server.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) parts: Parts,
}

/// What the server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(present, _)| present.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The message of an error; checks status and kind.
    pub(super) fn refused(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{self:?} {}", String::from_utf8_lossy(&self.body));
        let json = self.json();
        assert_eq!(json["error"]["kind"], kind, "{json}");
        json["error"]["message"].as_str().expect("a message").to_owned()
    }
}

impl Served {
    pub(super) async fn start() -> Self {
        Parts::new(Threads::Spawn).await.serve().await
    }

    pub(super) async fn stop(self) {
        self.parts.tasks.join().await;
        assert_eq!(self.parts.tasks.panics(), Vec::<String>::new());
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// One request on a connection of its own, its target sent as it is.
    pub(super) fn send(&self, request: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let chunked = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("transfer-encoding"));
        if !chunked && !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
        stream.write_all(body).expect("sent");
        read_answer(stream)
    }

    pub(super) fn get(&self, target: &str) -> Answer {
        self.send(&format!("GET {target}"), &[], b"")
    }

    pub(super) fn put(&self, key: &str, value: &[u8]) -> Answer {
        self.send(&format!("PUT /v1/trees/orders/keys/{key}"), &[], value)
    }

    pub(super) fn post_batch(&self, json: &str) -> Answer {
        self.send("POST /v1/trees/orders/batch", &[("Content-Type", "application/json")], json.as_bytes())
    }
}

/// Reads an answer up to the end of the connection.
pub(super) fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

/// Percent-encodes every byte.
pub(super) fn encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}
