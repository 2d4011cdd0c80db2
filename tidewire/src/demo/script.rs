//! The course of the demo, on a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::Tree;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::board::Board;
use super::topic::Topic;
use super::verdict::{counted, digests, first_difference, rate, settled};
use super::workload::{PACE, Write, fingerprint, writes};
use crate::cli::Failure;
use crate::local::{LocalSite, Probes, connect_all, millis};

const NAMES: [&str; 3] = ["eu-west", "us-east", "ap-south"];
/// What happens when, in tenths of a second.
const CUT_AT: u64 = 25;
const HEAL_AT: u64 = 45;
const KILL_AT: u64 = 60;
const RESTART_AT: u64 = 70;
/// How long everything together may take.
const PATIENCE: Duration = Duration::from_secs(50);

/// Where a writer finds its tree; empty while the cluster is down.
type Slot = Arc<Mutex<Option<Tree>>>;

struct Demo {
    sites: Vec<LocalSite>,
    slots: Vec<Slot>,
    probes: Probes,
    tasks: Tasks,
    board: Board,
    issued: Arc<AtomicU64>,
    /// Counted in runs that have ended: a killed cluster takes its counters with it.
    before: (u64, u64),
    began: Instant,
    topic: Option<Topic>,
}

/// Plays it; says whether all three were equal at the end.
pub(super) async fn play(seed: u64, brokers: Option<&str>) -> Result<bool, Failure> {
    let dir = tempfile::tempdir().map_err(no_directory)?;
    let mut board = Board::new();
    board.say(&format!("seed {seed}: three clusters below {}", dir.path().display()))?;
    let mut sites = Vec::new();
    for name in NAMES {
        sites.push(LocalSite::start(name, dir.path()).await?);
    }
    connect_all(&sites).await?;
    let topic = brokers.map(Topic::new).transpose()?;
    if let Some(topic) = &topic {
        topic.feed_from(&sites[2]).await?;
        board.say(&format!("{} feeds the topic {}", NAMES[2], topic.name()))?;
    }
    let slots = sites.iter().map(|site| Arc::new(Mutex::new(site.tree().cloned()))).collect();
    let mut demo = Demo {
        sites,
        slots,
        probes: Probes::default(),
        tasks: Tasks::new(Threads::Spawn),
        board,
        issued: Arc::default(),
        before: (0, 0),
        began: Instant::now(),
        topic,
    };
    let equal = demo.play(seed).await?;
    demo.tasks.join().await;
    for site in &mut demo.sites {
        site.shutdown().await?;
    }
    Ok(equal)
}

impl Demo {
    async fn play(&mut self, seed: u64) -> Result<bool, Failure> {
        let work: Vec<Vec<Write>> = NAMES.iter().map(|name| writes(seed, name)).collect();
        let fingerprint = fingerprint(work.iter().flatten());
        let total: u64 = work.iter().map(|work| work.len() as u64).sum();
        for site in &self.sites {
            self.watch(site);
        }
        for (slot, work) in self.slots.iter().zip(work) {
            self.start_writers(slot, work);
        }
        let mut ticks = interval(Duration::from_millis(100));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let end = self.began + PATIENCE;
        for tick in 0.. {
            ticks.tick().await;
            self.act(tick).await?;
            let issued = self.issued.load(Ordering::Relaxed);
            if tick % 10 == 0 {
                self.board.show(self.began.elapsed(), issued, &self.sites)?;
            }
            let over = issued == total && tick > RESTART_AT && tick % 5 == 0 && settled(&self.sites);
            if over || Instant::now() > end {
                break;
            }
        }
        let equal = self.report(total, fingerprint)?;
        let Some(topic) = &self.topic else { return Ok(equal) };
        let (same, said) = topic.compare(&self.sites[2]).await?;
        self.board.say(&said)?;
        Ok(equal && same)
    }

    async fn act(&mut self, tick: u64) -> Result<(), Failure> {
        match tick {
            CUT_AT => {
                self.board.say(&format!("---- link {} = {} is cut", NAMES[0], NAMES[1]))?;
                self.sites[0].cut(NAMES[1])?;
                self.sites[1].cut(NAMES[0])?;
            }
            HEAL_AT => {
                self.board.say(&format!("---- link {} = {} is healed", NAMES[0], NAMES[1]))?;
                self.sites[0].heal(NAMES[1])?;
                self.sites[1].heal(NAMES[0])?;
            }
            KILL_AT => {
                self.board.say(&format!("---- {} is stopped hard", NAMES[2]))?;
                self.slots[2].lock().take();
                self.before.0 += counted(&self.sites[2..], "tidewire_conflicts_total");
                self.before.1 += counted(&self.sites[2..], "tidewire_applied_records_total");
                self.sites[2].kill().await;
            }
            RESTART_AT => {
                self.board.say(&format!("---- {} is started again", NAMES[2]))?;
                self.sites[2].open().await?;
                for other in &self.sites[..2] {
                    self.sites[2].connect(&other.as_peer()).await?;
                }
                if let Some(topic) = &self.topic {
                    topic.feed_from(&self.sites[2]).await?;
                }
                self.watch(&self.sites[2]);
                *self.slots[2].lock() = self.sites[2].tree().cloned();
            }
            _ => {}
        }
        Ok(())
    }

    fn watch(&self, site: &LocalSite) {
        if let Some(tree) = site.tree() {
            self.probes.watch(&self.tasks, tree);
        }
    }

    /// A few writers share the writes of a cluster, each on its own clock, so that one slow answer delays no other.
    fn start_writers(&self, slot: &Slot, work: Vec<Write>) {
        const WRITERS: usize = 16;
        let mut shares: Vec<Vec<(Instant, Write)>> = (0..WRITERS).map(|_| Vec::new()).collect();
        for (at, write) in (0_u32..).zip(work) {
            shares[at as usize % WRITERS].push((self.began + PACE * at, write));
        }
        for share in shares {
            let (slot, probes, issued) = (slot.clone(), self.probes.clone(), self.issued.clone());
            let stop = self.tasks.stop_token();
            self.tasks.spawn("write", async move {
                for (due, write) in share {
                    sleep_until(due).await;
                    while !issue(&slot, &probes, &write).await {
                        if stop.is_cancelled() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    issued.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    fn report(&mut self, total: u64, fingerprint: u64) -> Result<bool, Failure> {
        let took = self.began.elapsed();
        self.board.show(took, self.issued.load(Ordering::Relaxed), &self.sites)?;
        let conflicts = self.before.0 + counted(&self.sites, "tidewire_conflicts_total");
        let applied = self.before.1 + counted(&self.sites, "tidewire_applied_records_total");
        let mut visible = self.probes.commit_to_visible();
        let (p50, p99) = (millis(visible.quantile(0.5)), millis(visible.quantile(0.99)));
        self.board.say(&format!("workload {fingerprint:016x}"))?;
        self.board.say(&format!("writes {total}  conflicts {conflicts}  in {:.1} s", took.as_secs_f64()))?;
        self.board.say(&format!("replicated {applied} entries, {:.0} a second", rate(applied, took)))?;
        self.board.say(&format!(
            "commit to visible: p50 {p50:.1} ms  p99 {p99:.1} ms over {} probes, the cut and the stop included",
            visible.len()
        ))?;
        for (site, (digest, entries)) in self.sites.iter().zip(digests(&self.sites)) {
            self.board.say(&format!("digest {digest:032x}  {entries} entries  {}", site.name()))?;
        }
        let equal = settled(&self.sites) && self.issued.load(Ordering::Relaxed) == total;
        let said = match (equal, first_difference(&self.sites)) {
            (true, _) => "all three hold the same state".to_owned(),
            (false, Some(key)) => format!("NOT converged: {key}"),
            (false, None) => {
                "NOT converged: not every write was taken, or a link still has entries to send".to_owned()
            }
        };
        self.board.say(&said)?;
        Ok(equal)
    }
}

/// Issues one write; false if the cluster is down or did not take it.
async fn issue(slot: &Slot, probes: &Probes, write: &Write) -> bool {
    let Some(tree) = slot.lock().clone() else { return false };
    let done = match write {
        Write::Set(key, value) => tree.put(key.clone(), value.clone()).await.map(|_| ()),
        Write::Delete(key) => tree.delete(key.clone()).await.map(|_| ()),
        Write::Probe(key, value) => probes.write(&tree, key, value.clone()).await,
    };
    done.is_ok()
}

fn no_directory(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no temporary directory can be made; set TMPDIR").with_source(error)
}
