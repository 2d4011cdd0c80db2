//! What more clusters and causal order cost: writes on all clusters at once, of the same keys, until every cluster has
//! everything. Two clusters, three in a mesh, and the same mesh without waiting for causes, in turn.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::tree::{Operation, Token, Tree};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cli::Table;
use crate::config::Consistency;
use crate::local::{LocalSite, Quartiles, connect_all};

const PAIRS: usize = 7;
const NAMES: [&str; 3] = ["mesh-a", "mesh-b", "mesh-c"];
const VALUE_BYTES: usize = 256;
/// Entries that each cluster writes in a turn.
const ENTRIES: u64 = 100_000;
const BATCH: u64 = 1_000;
/// Keys that all of them write: writes of the same key meet.
const KEYS: u64 = 20_000;
/// The first turn of each side opens links and files, and is not counted.
const WARM_UP: usize = 1;
const PATIENCE: Duration = Duration::from_secs(120);

/// One side.
struct Side {
    name: &'static str,
    clusters: usize,
    consistency: Consistency,
}

const SIDES: [Side; 3] = [
    Side { name: "two clusters", clusters: 2, consistency: Consistency::Causal },
    Side { name: "mesh of three", clusters: 3, consistency: Consistency::Causal },
    Side { name: "mesh of three, eventual", clusters: 3, consistency: Consistency::Eventual },
];

/// One side's figures. A link is one direction between two clusters; all clusters share this machine, so what all links
/// carry together is what it has to give, and the share of one link falls with their number.
#[derive(Debug, Serialize)]
struct Row {
    side: &'static str,
    links: usize,
    /// Entries that each cluster writes.
    entries: u64,
    value_bytes: usize,
    entries_per_second_of_all_links: Quartiles,
    entries_per_second_of_a_link: Quartiles,
}

/// One side by another, turn by turn.
#[derive(Debug, Serialize)]
struct Ratio {
    what: &'static str,
    at_least: Option<f64>,
    ratio: Quartiles,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pairs: usize,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

/// Everybody has a turn in every round; every other round goes backwards.
pub(super) async fn measure(dir: &Path) -> Result<Figures, Error> {
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..WARM_UP + PAIRS {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let rate = turn(&SIDES[at], &dir.join(format!("turn-{round}-{at}"))).await?;
            if round >= WARM_UP {
                rates[at].push(rate);
            }
        }
    }
    let row = |(side, rates): (&Side, &Vec<f64>)| Row {
        side: side.name,
        links: side.links(),
        entries: ENTRIES,
        value_bytes: VALUE_BYTES,
        entries_per_second_of_all_links: Quartiles::of(rates.iter().map(|rate| rate * side.links() as f64)),
        entries_per_second_of_a_link: Quartiles::of(rates.iter().copied()),
    };
    let ratio = |what, at_least, of: usize, by: usize, scale: f64| Ratio {
        what,
        at_least,
        ratio: Quartiles::of(rates[of].iter().zip(&rates[by]).map(|(of, by)| scale * of / by)),
    };
    // Six links for two: the machine is the same.
    let links = SIDES[1].links() as f64 / SIDES[0].links() as f64;
    Ok(Figures {
        pairs: PAIRS,
        rows: SIDES.iter().zip(&rates).map(row).collect(),
        ratios: vec![
            ratio("mesh of three / two clusters, all links together", Some(0.8), 1, 0, links),
            ratio("mesh of three / two clusters, each link", None, 1, 0, 1.0),
            ratio("causal / eventual", Some(0.9), 1, 2, 1.0),
        ],
    })
}

impl Side {
    fn links(&self) -> usize {
        self.clusters * (self.clusters - 1)
    }
}

/// Entries a second of one link.
async fn turn(side: &Side, dir: &Path) -> Result<f64, Error> {
    let mut sites = Vec::new();
    for name in &NAMES[..side.clusters] {
        sites.push(LocalSite::start_with(name, dir, side.consistency).await?);
    }
    connect_all(&sites).await?;
    let trees: Vec<Tree> = sites.iter().filter_map(|site| site.tree().cloned()).collect();
    meet(&trees).await?;
    let began = Instant::now();
    let tasks = Tasks::new(Threads::Spawn);
    let (done, mut written) = mpsc::channel(trees.len());
    for (salt, tree) in (0_u64..).zip(trees.iter().cloned()) {
        let done = done.clone();
        tasks.spawn("writer", async move {
            // Nobody waits any more if the measurement was given up.
            let _ = done.send(write(&tree, salt).await).await;
        });
    }
    drop(done);
    let mut tokens = Vec::new();
    while let Some(token) = written.recv().await {
        tokens.push(token?);
    }
    all_have(&trees, &tokens).await?;
    let took = began.elapsed();
    tasks.join().await;
    drop(trees);
    for site in &mut sites {
        site.kill().await;
    }
    Ok(ENTRIES as f64 / took.as_secs_f64())
}

/// Waits until every link works: each cluster has seen a write of every other one.
async fn meet(trees: &[Tree]) -> Result<(), Error> {
    let mut tokens = Vec::new();
    for tree in trees {
        let version = tree.put("met", tree.identity().cluster.to_string()).await?;
        tokens.push(tree.token(version));
    }
    all_have(trees, &tokens).await
}

async fn all_have(trees: &[Tree], tokens: &[Token]) -> Result<(), Error> {
    for tree in trees {
        for token in tokens {
            tree.wait_for(token, PATIENCE).await?;
        }
    }
    Ok(())
}

/// Writes one cluster's entries; the token of the last.
async fn write(tree: &Tree, salt: u64) -> Result<Token, Error> {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let mut last = Err(Error::new(ErrorKind::Invalid, "there is nothing to write"));
    for first in (0..ENTRIES).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        // The same keys everywhere, each cluster at another place of the round.
        let from = first + salt * KEYS / 3;
        let set = |at: u64| Operation::Set(format!("key-{:09}", at % KEYS).into(), value.clone());
        last = Ok(tree.token(tree.batch((from..from + BATCH).map(set).collect()).await?));
    }
    last
}

/// The figures for people.
pub(super) fn table(figures: &Figures) -> Table {
    let mut table =
        Table::new(["WRITES ON ALL, SAME KEYS", "LINKS", "ENTRIES/S, ALL", "A LINK", "QUARTILES"]);
    for row in &figures.rows {
        let (all, link) = (row.entries_per_second_of_all_links, row.entries_per_second_of_a_link);
        table.row([
            row.side.to_owned(),
            row.links.to_string(),
            format!("{:.0}", all.median),
            format!("{:.0}", link.median),
            format!("{:.0} to {:.0}", link.first, link.third),
        ]);
    }
    for Ratio { what, at_least, ratio } in &figures.ratios {
        let wanted = at_least.map_or_else(String::new, |least| format!(">= {least}"));
        table.row([
            (*what).to_owned(),
            wanted,
            String::new(),
            format!("{:.3}", ratio.median),
            format!("{:.3} to {:.3}", ratio.first, ratio.third),
        ]);
    }
    table
}
