//! The applier in front of a real tree: what it acknowledged is there after a crash.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidewire_applier::{Applier, ApplierMetrics, Server, ServerConfig, Settings};
use tidewire_core::clock::{CeilingStore, HybridClock, WallClock};
use tidewire_core::disk::MemDisk;
use tidewire_core::error::MetaError;
use tidewire_core::id::{BootId, Hlc};
use tidewire_core::limits::Limits;
use tidewire_core::metrics::Metrics;
use tidewire_core::random::Random;
use tidewire_core::sink::News;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::wire::{Frame, frame::Body};
use tidewire_core::transport::{DialTarget, MemNetwork, Transport};
use tidewire_core::tree::{Consistency, MergeMode, Tree, TreeConfig, TreeMetrics};
use tidewire_core::wal::{CommitRunner, WalMetrics};

use crate::origin::MemOrigin;
use crate::rig::{Caller, PARTITIONS, hello, name, origin, soon, tree};

#[derive(Default)]
struct Ceiling(Mutex<Hlc>);

#[async_trait]
impl CeilingStore for Ceiling {
    async fn load(&self) -> Result<Hlc, MetaError> {
        Ok(*self.0.lock())
    }

    async fn store(&self, ceiling: Hlc) -> Result<(), MetaError> {
        *self.0.lock() = ceiling;
        Ok(())
    }
}

struct Noon;

impl WallClock for Noon {
    fn now_millis(&self) -> u64 {
        60_000
    }
}

/// One run of the cluster `here` over a disk that outlives it.
struct Run {
    tasks: Tasks,
    tree: Tree,
    network: MemNetwork,
}

impl Run {
    async fn start(disk: &MemDisk, boot: u64) -> Self {
        let tasks = Tasks::new(Threads::Inline);
        let (metrics, random) = (Metrics::default(), Random::from_seed(boot));
        let ceiling = Arc::new(Ceiling::default());
        let clock = HybridClock::open(Arc::new(Noon), ceiling, Duration::from_secs(30)).await.unwrap();
        let tree = Tree::open(TreeConfig {
            cluster: name("here"),
            name: tree(),
            dir: PathBuf::from("/trees/orders"),
            partitions: PARTITIONS,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
            interest: tidewire_core::record::Interest::all(),
            limits: Limits::tiny(),
            disk: Arc::new(disk.clone()),
            clock: Arc::new(clock),
            letters: None,
            tasks: tasks.clone(),
            runner: CommitRunner::simulated(tasks.clone(), Duration::from_millis(2), random.fork()),
            random: random.fork(),
            wal_metrics: WalMetrics::new(&metrics),
            tree_metrics: TreeMetrics::new(&metrics),
        });
        let tree = tree.await.unwrap();
        let network = MemNetwork::new(&random);
        let target = Arc::new(tree.clone());
        let families = ApplierMetrics::new(&metrics);
        let applier = Applier::spawn(&tasks, target, Settings::default(), &families).unwrap();
        let listener = network.endpoint(&name("here")).listen().await.unwrap();
        let config = ServerConfig { cluster: name("here"), boot: BootId::new(boot), news: News::default() };
        let server = Server::spawn(&tasks, listener, config);
        server.enroll_tree(applier);
        server.allow(&name("x"), None);
        Self { tasks, tree, network }
    }

    async fn call(&self, origin: &MemOrigin) -> Caller {
        let target = DialTarget { peer: name("here"), url: "mem://here".into() };
        let mut link = soon(self.network.endpoint(&origin.cluster).dial(&target)).await.unwrap();
        link.sender.send(Frame::new(0, Body::Hello(hello(origin, 7)))).await.unwrap();
        match soon(link.receiver.receive()).await.unwrap().and_then(|frame| frame.body) {
            Some(Body::Welcome(welcome)) => Caller::new(link, welcome),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_real_tree_has_acknowledged_is_there_after_a_crash() {
    let disk = MemDisk::new();
    let mut x = origin("x");
    for _ in 0..30 {
        x.commit(&[&["a", "b", "c"], &["d"]]);
    }
    let run = Run::start(&disk, 1).await;
    let mut caller = run.call(&x).await;
    for group in 0..20 {
        caller.page(&x, group, group + 1).await;
    }
    caller.acked(80).await;
    run.tasks.abort_and_join().await;
    let disk = disk.crash(5);

    let run = Run::start(&disk, 2).await;
    let mut caller = run.call(&x).await;
    let held: u64 =
        caller.welcome.watermarks.iter().flat_map(|marks| &marks.partitions).map(|mark| mark.next).sum();
    assert_eq!(held, 80);
    caller.page(&x, 15, 30).await;
    caller.acked(120).await;
    caller.heartbeat(&mut x).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for key in ["a", "b", "c", "d"] {
        assert!(run.tree.get(key.as_bytes()).is_some(), "{key}");
    }
    let progress = tidewire_core::tree::ApplyTarget::progress(&run.tree);
    assert_eq!(progress.frontier.get(x.origin()), x.hlc);
    assert_eq!(run.tasks.panics(), Vec::<String>::new());
}
