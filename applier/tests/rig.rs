//! A cluster that receives, and callers that say to it what they like.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidewire_applier::{
    Applier, ApplierMetrics, ReceiveState, ReceiveStatus, Server, ServerConfig, Settings,
};
use tidewire_core::id::{BootId, ClusterId, Hlc, Incarnation, OriginTag, PageId, TreeName};
use tidewire_core::metrics::Metrics;
use tidewire_core::random::Random;
use tidewire_core::sink::News;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::pages::split;
use tidewire_core::transport::wire::{Ack, Frame, Goodbye, Hello, Refusal, Welcome, frame::Body};
use tidewire_core::transport::{DialTarget, Link, MemNetwork, Transport};
use tidewire_core::tree::{Consistency, MemTarget, MergeMode, TreeIdentity};
use tokio::time::timeout;

use crate::origin::MemOrigin;

pub(crate) const PARTITIONS: u16 = 4;

pub(crate) fn name(text: &str) -> ClusterId {
    ClusterId::new(text).unwrap()
}

pub(crate) fn tree() -> TreeName {
    TreeName::new("orders").unwrap()
}

pub(crate) fn origin(text: &str) -> MemOrigin {
    MemOrigin::new(&name(text), PARTITIONS)
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what).await.expect("this happens within a minute")
}

/// Lets everything that can happen at once happen.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The cluster `here`, with peers `x`, `y` and `z`.
pub(crate) struct Here {
    pub(crate) network: MemNetwork,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Metrics,
    pub(crate) target: Arc<MemTarget>,
    pub(crate) applier: Applier,
    pub(crate) server: Server,
}

impl Here {
    pub(crate) async fn open(settings: Settings) -> Self {
        let network = MemNetwork::new(&Random::from_seed(1));
        let tasks = Tasks::new(Threads::Inline);
        let metrics = Metrics::default();
        let target = Arc::new(MemTarget::new(TreeIdentity {
            cluster: name("here"),
            tree: tree(),
            incarnation: Incarnation::new(1),
            partitions: PARTITIONS,
            merge: MergeMode::LastWriterWins,
            consistency: Consistency::Causal,
        }));
        let families = ApplierMetrics::new(&metrics);
        let applier = Applier::spawn(&tasks, target.clone(), settings, &families).unwrap();
        let listener = network.endpoint(&name("here")).listen().await.unwrap();
        let config = ServerConfig { cluster: name("here"), boot: BootId::new(1), news: News::default() };
        let server = Server::spawn(&tasks, listener, config);
        server.enroll_tree(applier.clone());
        for peer in ["x", "y", "z"] {
            server.allow(&name(peer), None);
        }
        Self { network, tasks, metrics, target, applier, server }
    }

    /// A new link from a cluster, on which nothing was said.
    pub(crate) async fn dial(&self, from: &ClusterId) -> Link {
        let target = DialTarget { peer: name("here"), url: "mem://here".into() };
        soon(self.network.endpoint(from).dial(&target)).await.unwrap()
    }

    /// Says Hello for an origin.
    pub(crate) async fn hello(&self, origin: &MemOrigin, boot: u64) -> Result<Caller, Refusal> {
        self.hello_as(origin, hello(origin, boot)).await
    }

    /// Says this Hello for an origin.
    pub(crate) async fn hello_as(&self, origin: &MemOrigin, hello: Hello) -> Result<Caller, Refusal> {
        let mut link = self.dial(&origin.cluster).await;
        soon(link.sender.send(Frame::new(0, Body::Hello(hello)))).await.unwrap();
        match soon(link.receiver.receive()).await.unwrap().and_then(|frame| frame.body) {
            Some(Body::Welcome(welcome)) => Ok(Caller::new(link, welcome)),
            Some(Body::Refusal(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn call(&self, origin: &MemOrigin) -> Caller {
        self.hello(origin, 7).await.unwrap()
    }

    pub(crate) fn status(&self, peer: &str) -> ReceiveStatus {
        self.server.status().into_iter().find(|status| status.id == peer).expect("the peer is there")
    }

    pub(crate) fn state(&self, peer: &str) -> ReceiveState {
        self.status(peer).state
    }

    /// The value of a series with these words in its labels.
    pub(crate) fn metric(&self, metric: &str, origin: &str) -> i64 {
        let text = self.metrics.render();
        let label = format!("origin=\"{origin}\"");
        let line =
            text.lines().find(|line| line.starts_with(&format!("{metric}{{")) && line.contains(&label));
        let line = line.unwrap_or_else(|| panic!("no {metric} of {origin} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Nothing went wrong on the way: every duty was kept, nothing panicked.
    pub(crate) fn check(&self) {
        assert_eq!(self.target.violations(), Vec::<String>::new());
        assert_eq!(self.tasks.panics(), Vec::<String>::new());
    }
}

pub(crate) fn hello(origin: &MemOrigin, boot: u64) -> Hello {
    Hello {
        cluster: origin.cluster.to_string(),
        boot_id: boot,
        protocol_min: 1,
        protocol_max: 1,
        tree: tree().to_string(),
        incarnation: origin.incarnation.get(),
        partitions: PARTITIONS.into(),
        merge_mode: "lww".into(),
        known_clusters: vec![origin.cluster.to_string()],
        capabilities: Vec::new(),
        forwarded: Vec::new(),
        interest: Vec::new(),
    }
}

/// The sending side of a session.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) link: Link,
    pub(crate) welcome: Welcome,
    pages: u64,
}

impl Caller {
    pub(crate) fn new(link: Link, welcome: Welcome) -> Self {
        Self { link, welcome, pages: 0 }
    }

    pub(crate) async fn send(&mut self, body: Body) {
        soon(self.link.sender.send(Frame::new(self.welcome.session, body))).await.unwrap();
    }

    /// Sends the groups of an origin from `from` to before `to` as one page.
    pub(crate) async fn page(&mut self, origin: &MemOrigin, from: usize, to: usize) {
        self.pages += 1;
        for part in split(&origin.page(PageId::new(self.pages), from, to)) {
            self.send(Body::Page(part)).await;
        }
    }

    pub(crate) async fn heartbeat(&mut self, origin: &mut MemOrigin) {
        let heartbeat = origin.heartbeat();
        self.send(Body::Heartbeat(heartbeat)).await;
    }

    /// The next thing that is said, or None if nothing is.
    pub(crate) async fn hears(&mut self) -> Option<Body> {
        let next = timeout(Duration::from_secs(3), self.link.receiver.receive()).await.ok()?;
        next.unwrap()?.body
    }

    /// The last of the acknowledgements that have come or come at once.
    pub(crate) async fn last_ack(&mut self) -> Option<Ack> {
        let mut last = None;
        while let Ok(Ok(Some(frame))) = timeout(Duration::from_millis(1), self.link.receiver.receive()).await
        {
            match frame.body {
                Some(Body::Ack(ack)) => last = Some(ack),
                other => panic!("{other:?}"),
            }
        }
        last
    }

    /// Waits until this many records are acknowledged.
    pub(crate) async fn acked(&mut self, records: u64) {
        let all = async {
            loop {
                match self.link.receiver.receive().await.unwrap().and_then(|frame| frame.body) {
                    Some(Body::Ack(ack)) if covered(&ack) >= records => return,
                    Some(Body::Ack(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        soon(all).await;
    }

    /// How the session is ended from the other side: what was refused on the way, and the last words.
    pub(crate) async fn ended(&mut self) -> (Option<Ack>, Last) {
        let mut refused = None;
        loop {
            match soon(self.link.receiver.receive()).await.unwrap().and_then(|frame| frame.body) {
                Some(Body::Ack(ack)) if ack.refused.is_some() => refused = Some(ack),
                Some(Body::Ack(_)) => {}
                Some(Body::Refusal(refusal)) => return (refused, Last::Refusal(refusal)),
                Some(Body::Goodbye(Goodbye { reason })) => return (refused, Last::Goodbye(reason)),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The last words of a session.
#[derive(Debug, PartialEq)]
pub(crate) enum Last {
    Refusal(Refusal),
    Goodbye(String),
}

impl Last {
    pub(crate) fn kind(self) -> String {
        match self {
            Self::Refusal(refusal) => refusal.kind,
            Self::Goodbye(reason) => panic!("goodbye: {reason}"),
        }
    }
}

/// How many records an acknowledgement covers.
pub(crate) fn covered(ack: &Ack) -> u64 {
    ack.watermarks.iter().flat_map(|marks| &marks.partitions).map(|mark| mark.next).sum()
}

/// What an acknowledgement says of an origin's frontier.
pub(crate) fn frontier(ack: &Ack, origin: OriginTag) -> Option<Hlc> {
    ack.frontier.iter().find(|entry| entry.origin == origin.get()).map(|entry| Hlc::new(entry.hlc))
}
