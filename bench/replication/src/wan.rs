//! Clusters far from each other, in namespaces of their own: latency and throughput over delay and loss, a link cut for a
//! while with writes on all sides, and one state in the end.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hyper::Method;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::{Failure, Outcome};
use crate::http::Http;
use crate::systems::tidewire::batch;
use crate::workload::Workload;

/// Entries of one live write.
const BATCH: u64 = 10;
/// Keys that all clusters write: few, so that writes conflict.
const KEYS: u64 = 5_000;
/// Between two probes of a cluster.
const PROBE: Duration = Duration::from_millis(250);
/// The longest that a read waits for its token.
const WAIT: &str = "60000";
const PATIENCE: Duration = Duration::from_secs(120);

/// What is measured, and where.
#[derive(Clone, Debug, Args)]
pub struct WanArgs {
    /// A cluster as NAME=ADDRESS of its HTTP API; three of them
    #[arg(long = "site", required = true)]
    sites: Vec<String>,
    /// Run to cut the link between the first and the last cluster
    #[arg(long)]
    cut: String,
    /// Run to heal it
    #[arg(long)]
    heal: String,
    /// How long it is cut
    #[arg(long, default_value_t = 60)]
    cut_seconds: u64,
    /// How long live writes are measured before it is cut
    #[arg(long, default_value_t = 15)]
    live_seconds: u64,
    /// Entries a second that each cluster writes
    #[arg(long, default_value_t = 100)]
    rate: u64,
    /// Entries of the backlog that the first cluster sends to the others
    #[arg(long, default_value_t = 20_000)]
    backlog: u64,
    #[arg(long, default_value_t = 256)]
    value_bytes: usize,
}

#[derive(Clone)]
struct Site {
    name: String,
    http: Http,
}

/// Milliseconds from commit to sight, by who wrote and who saw; and how many were not seen in time.
type Lags = Arc<Mutex<BTreeMap<(usize, usize), (Vec<f64>, usize)>>>;

/// Runs it, and prints the tables.
pub async fn run(args: &WanArgs) -> Outcome<()> {
    let mut sites = Vec::new();
    for site in &args.sites {
        let (name, address) = site.split_once('=').ok_or("--site is NAME=ADDRESS")?;
        sites.push(Site { name: name.to_owned(), http: Http::at(address) });
    }
    let workload = Workload::new(args.value_bytes, BATCH);
    live(&sites, args, &workload, "nothing else is written", 0, args.live_seconds).await?;
    let said = format!("each writes {} entries/s", args.rate);
    live(&sites, args, &workload, &said, args.rate, args.live_seconds).await?;
    order(&args.cut)?;
    let said = format!("the link {} - {} is cut for {} s", sites[0].name, sites[2].name, args.cut_seconds);
    let phase = live(&sites, args, &workload, &said, args.rate, args.cut_seconds);
    let healed = async {
        sleep(Duration::from_secs(args.cut_seconds)).await;
        order(&args.heal)?;
        Ok::<Instant, Failure>(Instant::now())
    };
    let (phase, healed) = tokio::join!(phase, healed);
    phase?;
    let (took, digest) = converge(&sites, healed?).await?;
    println!("\none digest on all {} clusters {took:.1} s after the link was healed: {digest}", sites.len());
    live(&sites, args, &workload, "after it was healed", args.rate, args.live_seconds).await?;
    backlog(&sites, args, &workload).await?;
    let (took, digest) = converge(&sites, Instant::now()).await?;
    println!("one digest on all {} clusters {took:.1} s after the last write: {digest}", sites.len());
    Ok(())
}

fn order(command: &str) -> Outcome<()> {
    let status = Command::new("sh").args(["-c", command]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command}: {status}").into()) }
}

/// Writes on all clusters for a while, with probes; prints what the probes took.
async fn live(
    sites: &[Site],
    args: &WanArgs,
    workload: &Workload,
    said: &str,
    rate: u64,
    seconds: u64,
) -> Outcome<()> {
    let (lags, began) = (Lags::default(), Instant::now() + Duration::from_millis(50));
    let end = began + Duration::from_secs(seconds);
    let mut tasks: JoinSet<Outcome<u64>> = JoinSet::new();
    for (at, site) in sites.iter().enumerate() {
        if rate > 0 {
            tasks.spawn(write(site.clone(), workload.clone(), at as u64, rate, (began, end)));
        }
        tasks.spawn(probe(sites.to_vec(), at, lags.clone(), (began, end)));
    }
    let mut written = 0;
    while let Some(done) = tasks.join_next().await {
        written += done??;
    }
    println!("\n### {said} ({} B, {written} entries written)\n", args.value_bytes);
    println!("| from | to | probes | p50 | p99 | not within 60 s |\n|---|---|--:|--:|--:|--:|");
    for ((from, to), (took, missed)) in lags.lock().iter_mut() {
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (took.len() as f64 * share).ceil() as usize;
            took.get(rank.saturating_sub(1)).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"))
        };
        let (from, to) = (&sites[*from].name, &sites[*to].name);
        println!("| {from} | {to} | {} | {} | {} | {missed} |", took.len() + *missed, at(0.5), at(0.99));
    }
    Ok(())
}

/// Writes at a rate: batches due at fixed times, one under way.
async fn write(
    site: Site,
    workload: Workload,
    salt: u64,
    rate: u64,
    (began, end): (Instant, Instant),
) -> Outcome<u64> {
    let pace = Duration::from_secs_f64(BATCH as f64 / rate as f64);
    for at in 0_u64.. {
        let due = began + pace * u32::try_from(at)?;
        if due >= end {
            return Ok(at * BATCH);
        }
        sleep_until(due).await;
        let first = (at * 7 + salt * 13) * BATCH % KEYS;
        site.http.ask(Method::POST, "/v1/trees/entries/batch", &[], batch(&workload, first, BATCH)).await?;
    }
    Ok(0)
}

/// Writes probes, and reads each at every other cluster with the token of its write.
async fn probe(sites: Vec<Site>, from: usize, lags: Lags, (began, end): (Instant, Instant)) -> Outcome<u64> {
    let mut reads: JoinSet<()> = JoinSet::new();
    for at in 0_u32.. {
        let due = began + PROBE * at;
        if due >= end {
            break;
        }
        sleep_until(due).await;
        let path = format!("/v1/trees/entries/keys/probe-{from}-{}", at % 16);
        let (headers, _) = sites[from].http.ask(Method::PUT, &path, &[], "p").await?;
        let committed = Instant::now();
        let token = headers.get("tidewire-token").ok_or("a write without a token")?.to_str()?.to_owned();
        for (to, site) in sites.iter().cloned().enumerate().filter(|(to, _)| *to != from) {
            let (path, token, lags) = (path.clone(), token.clone(), lags.clone());
            reads.spawn(async move {
                let headers = [("tidewire-token", token.as_str()), ("tidewire-wait", WAIT)];
                let seen = site.http.ask(Method::GET, &path, &headers, "").await;
                let ms = committed.elapsed().as_secs_f64() * 1_000.0;
                let mut lags = lags.lock();
                let (took, missed) = lags.entry((from, to)).or_default();
                match seen {
                    Ok(_) => took.push(ms),
                    Err(_) => *missed += 1,
                }
            });
        }
    }
    while reads.join_next().await.is_some() {}
    Ok(0)
}

/// New keys at the first cluster, as fast as it takes them; how long until all are at the others.
async fn backlog(sites: &[Site], args: &WanArgs, workload: &Workload) -> Outcome<()> {
    let first = KEYS * 1_000;
    let mut before = Vec::new();
    for site in sites {
        before.push(digest(site).await?.1);
    }
    let began = Instant::now();
    for at in (0..args.backlog).step_by(1_000) {
        let body = batch(workload, first + at, 1_000.min(args.backlog - at));
        sites[0].http.ask(Method::POST, "/v1/trees/entries/batch", &[], body).await?;
    }
    println!("\n### a backlog of {} entries of {} B\n", args.backlog, args.value_bytes);
    println!("| from | to | entries/s | bytes/s of keys and values |\n|---|---|--:|--:|");
    let mut tasks: JoinSet<Outcome<(String, f64)>> = JoinSet::new();
    for (site, before) in sites.iter().cloned().zip(before).skip(1) {
        let wanted = before + args.backlog;
        tasks.spawn(async move {
            while digest(&site).await?.1 < wanted {
                if began.elapsed() > PATIENCE {
                    return Err(format!("the backlog is not at {} after {PATIENCE:?}", site.name).into());
                }
                sleep(Duration::from_millis(50)).await;
            }
            Ok((site.name, began.elapsed().as_secs_f64()))
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (to, took) = done??;
        let rate = args.backlog as f64 / took;
        let bytes = rate * (args.value_bytes + 16) as f64;
        println!("| {} | {to} | {rate:.0} | {bytes:.0} |", sites[0].name);
    }
    println!();
    Ok(())
}

async fn digest(site: &Site) -> Outcome<(String, u64)> {
    let (_, body) = site.http.ask(Method::GET, "/v1/trees/entries/digest", &[], "").await?;
    let body: serde_json::Value = serde_json::from_slice(&body)?;
    let digest = body["digest"].as_str().ok_or("a digest without a digest")?.to_owned();
    Ok((digest, body["entries"].as_u64().ok_or("a digest without entries")?))
}

/// Waits until all clusters hold the same; after how many seconds that was, and what it is.
async fn converge(sites: &[Site], since: Instant) -> Outcome<(f64, String)> {
    loop {
        let mut digests = Vec::new();
        for site in sites {
            digests.push(digest(site).await?);
        }
        let took = since.elapsed();
        if digests.windows(2).all(|pair| pair[0] == pair[1]) {
            let (digest, entries) = digests.swap_remove(0);
            return Ok((took.as_secs_f64(), format!("{digest}, {entries} entries")));
        }
        if took > PATIENCE {
            return Err(format!("no convergence within {PATIENCE:?}: {digests:?}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
}
