//! [`World`]: sites, the network between them, faults from a seed, and the final demand.

use std::fmt::Write as _;
use std::time::Duration;

use tidewire_core::limits::Limits;
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::site::Site;
use crate::topology::{Edge, Topology};
use crate::workload::{Acknowledged, Mix, Workload};

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many sites, each connected to each.
    pub sites: usize,
    /// Writers on each site.
    pub writers: u32,
    /// Keys that they share.
    pub keys: u64,
    /// How long they write, in virtual time.
    pub duration: Duration,
    /// Faults: about one every so often; none at zero.
    pub fault_every: Duration,
}

/// A simulation.
pub struct World {
    /// The seed of everything in it.
    pub seed: u64,
    /// The source of its randomness.
    pub random: Random,
    /// The links.
    pub network: MemNetwork,
    /// The sites.
    pub sites: Vec<Site>,
    /// What happened, in order.
    pub trace: Vec<String>,
    /// How many faults of each kind: cut, kill, clock, disk, repeats and reorders.
    pub faults: [u32; 5],
    /// Snapshots that were asked for and finished.
    pub snapshots: u32,
    began: Instant,
}

impl World {
    /// Sites `a`, `b`, ... each connected to each, not started. Call it inside a runtime with paused time.
    pub fn new(seed: u64, sites: usize) -> Self {
        Self::with_limits(seed, sites, &Limits::tiny())
    }

    /// The same, with other bounds than the tiny ones.
    pub fn with_limits(seed: u64, sites: usize, limits: &Limits) -> Self {
        let mut world = Self::unlinked(seed, sites, limits);
        let ids: Vec<_> = world.sites.iter().map(|site| site.id().clone()).collect();
        for site in &mut world.sites {
            for other in ids.iter().filter(|other| **other != *site.id()).cloned().collect::<Vec<_>>() {
                site.connect(&other);
            }
        }
        world
    }

    /// Sites linked as a topology says, not started.
    pub fn of_topology(seed: u64, topology: Topology) -> Self {
        Self::of_topology_with(seed, topology, &Limits::tiny())
    }

    /// The same, with other bounds than the tiny ones.
    pub fn of_topology_with(seed: u64, topology: Topology, limits: &Limits) -> Self {
        let mut world = Self::unlinked(seed, topology.sites(), limits);
        let edges = topology.edges(&world.random);
        world.link(&edges);
        world
    }

    /// Sites linked by these edges and no others, not started.
    pub fn of_edges(seed: u64, sites: usize, edges: &[Edge], limits: &Limits) -> Self {
        let mut world = Self::unlinked(seed, sites, limits);
        world.link(edges);
        world
    }

    /// From the next start, sites are linked as these edges say and not otherwise.
    pub fn link(&mut self, edges: &[Edge]) {
        let ids: Vec<_> = self.sites.iter().map(|site| site.id().clone()).collect();
        for (at, site) in self.sites.iter_mut().enumerate() {
            for (other, id) in ids.iter().enumerate() {
                let sends = edges.iter().find(|edge| (edge.from, edge.to) == (at, other));
                // Who is named takes part: nothing that he might still write against is reaped. Without an edge he never calls.
                if other != at {
                    site.link(id, sends.is_some(), sends.is_some_and(|edge| edge.forward));
                }
            }
        }
    }

    fn unlinked(seed: u64, sites: usize, limits: &Limits) -> Self {
        let random = Random::from_seed(seed);
        let network = MemNetwork::new(&random);
        let began = Instant::now();
        let names: Vec<String> = ('a'..='z').take(sites).map(String::from).collect();
        let site = |name: &String| {
            let clock = SimClock::new(began, i64::try_from(random.below(400)).expect("small") - 200);
            Site::new(name, &network, clock, random.fork(), limits.clone())
        };
        let sites = names.iter().map(site).collect();
        Self { seed, random, network, sites, trace: Vec::new(), faults: [0; 5], snapshots: 0, began }
    }

    /// Starts every site that is down.
    pub async fn start_all(&mut self) {
        for at in 0..self.sites.len() {
            if !self.sites[at].is_up() {
                self.start(at).await;
            }
        }
    }

    /// Starts a site; files that a crash left must always open.
    pub async fn start(&mut self, at: usize) {
        let seed = self.seed;
        let site = &mut self.sites[at];
        let started = site.start().await;
        assert!(started.is_ok(), "seed {seed}: site {} does not start: {started:?}", site.id());
        self.note(format!("start {at}"));
    }

    /// Runs a plan: faults and writers, then everything healed, then the demands. Returns how many writes were
    /// acknowledged.
    pub async fn run(&mut self, plan: &Plan) -> u64 {
        self.start_all().await;
        let workload = Workload::start(&self.sites, plan.writers, plan.keys, &self.random);
        self.run_faults(plan).await;
        let (acknowledged, writes) = workload.stop().await;
        self.demand_health(&acknowledged).await;
        writes
    }

    /// Runs a plan with writers that do everything there is. Returns what was acknowledged.
    pub async fn run_mixed(&mut self, plan: &Plan) -> Acknowledged {
        self.start_all().await;
        let workload =
            Workload::start_mixed(&self.sites, plan.writers, plan.keys, Mix::Everything, &self.random);
        self.run_faults(plan).await;
        let (acknowledged, _) = workload.stop().await;
        self.demand_health(&acknowledged).await;
        acknowledged
    }

    pub(crate) async fn run_faults(&mut self, plan: &Plan) {
        let end = Instant::now() + plan.duration;
        while Instant::now() < end {
            let pause = if plan.fault_every.is_zero() { plan.duration } else { plan.fault_every };
            tokio::time::sleep(pause.mul_f64(0.5 + self.random.below(1_000) as f64 / 1_000.0)).await;
            if !plan.fault_every.is_zero() {
                self.fault().await;
            }
            self.snapshot_somewhere().await;
            self.observe();
        }
    }

    /// Ends every fault, and demands that all sites agree and that nothing acknowledged is missing.
    async fn demand_health(&mut self, acknowledged: &Acknowledged) {
        self.heal().await;
        self.demand_convergence(Duration::from_secs(120)).await;
        self.demand_acknowledged(acknowledged).await;
    }

    /// Does one thing that goes wrong in a random place, or ends one.
    pub async fn fault(&mut self) {
        let at = usize::try_from(self.random.below(self.sites.len() as u64)).expect("few sites");
        let other = (at + 1 + usize::try_from(self.random.below(self.sites.len() as u64 - 1)).expect("few"))
            % self.sites.len();
        let (here, there) = (self.sites[at].id().clone(), self.sites[other].id().clone());
        let kind = self.random.below(11);
        self.note(format!("fault {kind} {here} {there}"));
        match kind {
            0 | 1 => {
                self.faults[0] += 1;
                self.network.cut(&here, &there);
            }
            2 => {
                self.faults[0] += 1;
                self.network.cut_one_way(&here, &there);
            }
            3 => self.network.heal(&here, &there),
            4 => self.network.break_links(&here, &there),
            5 => {
                self.faults[2] += 1;
                let offset = i64::try_from(self.random.below(4_000)).expect("small") - 2_000;
                self.sites[at].clock.set_offset(offset);
            }
            6 => {
                self.faults[3] += 1;
                use tidewire_core::disk::DiskOperation::{Sync, Write};
                let operation = if self.random.chance(0.5) { Sync } else { Write };
                self.sites[at].faults.fail_nth(operation, 1 + self.random.below(5));
            }
            7 => {
                self.faults[4] += 1;
                self.disturb(at, other);
            }
            _ if self.sites[at].is_up() => {
                self.faults[1] += 1;
                self.sites[at].crash().await;
            }
            _ => {
                self.sites[at].faults.heal();
                self.start(at).await;
            }
        }
    }

    /// Asks a random site for a snapshot; half of the callers go away before it is finished.
    async fn snapshot_somewhere(&mut self) {
        let at = usize::try_from(self.random.below(self.sites.len() as u64)).expect("few sites");
        let patience =
            Duration::from_millis(if self.random.chance(0.5) { 1_000 } else { self.random.below(20) });
        let Some(tree) = self.sites[at].tree() else { return };
        if let Ok(Ok(report)) = tokio::time::timeout(patience, tree.snapshot()).await {
            self.snapshots += 1;
            self.note(format!("snapshot {at} {} {}", report.snapshot.covered, report.snapshot.end));
        }
    }

    /// Cuts a site off from all others, both ways.
    pub fn isolate(&self, at: usize) {
        let here = self.sites[at].id();
        for there in self.sites.iter().map(Site::id).filter(|there| *there != here) {
            self.network.cut(here, there);
        }
    }

    /// From now on frames between two sites take their time, so that several are on the way, and some arrive twice or
    /// before the one in front of them.
    pub fn disturb(&self, at: usize, other: usize) {
        let (here, there) = (self.sites[at].id(), self.sites[other].id());
        self.network.set_delay(here, there, Duration::ZERO, Duration::from_millis(30));
        self.network.set_adversary(here, there, 0.2, 0.2);
    }

    /// Ends every fault and starts what is down.
    pub async fn heal(&mut self) {
        self.network.heal_all();
        for site in &self.sites {
            site.faults.heal();
            site.clock.set_offset(0);
        }
        self.start_all().await;
    }

    /// Waits until every site holds the same state and covers the same, and fails when that takes too long.
    pub async fn demand_convergence(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if self.agree() {
                self.observe();
                return;
            }
            assert!(Instant::now() < end, "seed {}: no convergence: {}", self.seed, self.account());
        }
    }

    /// Whether every site holds the same state, and every link says that nothing is left to send.
    pub fn agree(&self) -> bool {
        let trees: Vec<_> = self.sites.iter().filter_map(Site::tree).collect();
        let digests: Vec<_> =
            trees.iter().map(|tree| (tree.digest().digest, tree.digest().entries)).collect();
        let quiet = self
            .sites
            .iter()
            .filter_map(Site::cluster)
            .all(|cluster| cluster.status().peers.iter().all(|peer| peer.lag.entries == 0));
        trees.len() == self.sites.len() && quiet && digests.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Adds what every site holds to the trace.
    pub fn observe(&mut self) {
        let mut line = String::new();
        for site in &self.sites {
            match site.tree() {
                Some(tree) => {
                    let digest = tree.digest();
                    let frontier: Vec<_> = digest.frontier.iter().map(|(_, hlc)| hlc.get()).collect();
                    let _ = write!(line, "[{:x} {} {frontier:?}]", digest.digest, tree.size().log.next);
                }
                None => line.push_str("[down]"),
            }
        }
        self.note(line);
    }

    fn note(&mut self, what: String) {
        self.trace.push(format!("{} {what}", self.began.elapsed().as_micros()));
    }

    /// The rows that not every site has.
    fn differences(&self) -> String {
        let trees: Vec<_> = self.sites.iter().filter_map(Site::tree).collect();
        let rows: Vec<_> = trees.iter().map(|tree| tree.scan(b"", None, usize::MAX)).collect();
        let mut text = String::new();
        for (here, tree) in rows.iter().zip(&trees) {
            for row in here.iter().filter(|row| rows.iter().any(|other| !other.contains(row))) {
                let _ = write!(text, "\n{} has {row:?} and not everybody else", tree.identity().cluster);
            }
        }
        text
    }

    /// What every site says about itself, for a failing test.
    pub fn account(&self) -> String {
        let mut text = self.differences();
        for site in &self.sites {
            let _ = write!(text, "\n{}:", site.id());
            if let (Some(cluster), Some(tree)) = (site.cluster(), site.tree()) {
                let _ = write!(text, " {:?} failing {:?}", tree.digest(), tree.failure());
                for peer in cluster.status().peers {
                    let _ = write!(text, "\n  {peer:?}");
                }
            }
        }
        text
    }
}
