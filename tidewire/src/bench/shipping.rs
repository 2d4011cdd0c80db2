//! What shipping costs in processor time: a shipper sends a log to a far end that takes everything and applies nothing,
//! in turn with a bare loop that reads as many bytes of the same files, takes their checksum, and sends them over the same
//! transport to the same far end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use serde::Serialize;
use tidewire_connectors::transports::grpc::{GrpcConfig, GrpcTransport};
use tidewire_core::disk::{Disk, DiskFile, OpenMode, RealDisk};
use tidewire_core::error::{Error, ErrorKind, LinkError};
use tidewire_core::id::ClusterId;
use tidewire_core::record::checksum;
use tidewire_core::tasks::{Tasks, Threads};
use tidewire_core::transport::wire::frame::Body;
use tidewire_core::transport::wire::{self, Frame};
use tidewire_core::transport::{DialTarget, Link, Listener, Transport};
use tidewire_core::tree::Operation;
use tokio::time::{Instant, sleep};

use crate::cli::Table;
use crate::config::Peer;
use crate::local::{LocalSite, Quartiles};

const ENTRIES: u64 = 200_000;
const BATCH: u64 = 1_000;
/// The small and the large value of the other figures.
const VALUES: [usize; 2] = [256, 1024];
const PAIRS: usize = 7;
/// Of the bare loop: what a page of a shipper is about.
const PIECE: usize = 256 * 1024;
/// What the far end lets be on its way.
const CREDIT: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of one size of values.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    value_bytes: usize,
    log_bytes: u64,
    pairs: usize,
    shipper_ns_per_byte: Quartiles,
    bare_loop_ns_per_byte: Quartiles,
    at_most: f64,
    ratio: Quartiles,
}

/// Both sizes of values.
pub(super) async fn measure(dir: &Path) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for value_bytes in VALUES {
        rows.push(of_values(&dir.join(format!("shipping-{value_bytes}")), value_bytes).await?);
    }
    Ok(rows)
}

async fn of_values(dir: &Path, value_bytes: usize) -> Result<Row, Error> {
    let mut site = LocalSite::start("sender", dir).await?;
    let tree = site.tree().cloned().ok_or_else(|| Error::new(ErrorKind::Unavailable, "it does not run"))?;
    let value = Bytes::from(vec![b'v'; value_bytes]);
    for first in (0..ENTRIES).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let set = |at: u64| Operation::Set(format!("key-{at:09}").into(), value.clone());
        tree.batch((first..first + BATCH).map(set).collect()).await?;
    }
    let files = segments(&dir.join("sender").join("trees").join(tree.identity().tree.as_str()).join("wal"))?;
    let tasks = Tasks::new(Threads::Spawn);
    let far = FarEnd::listen(&tasks).await?;
    let (mut shipped, mut bare, mut bytes) = (Vec::new(), Vec::new(), 0);
    for round in 0..=PAIRS {
        // Every other round the other way about; the first one warms up.
        for turn in [round % 2, 1 - round % 2] {
            if turn == 0 {
                let (cost, all) = ship(&site, &far, round).await?;
                shipped.push(cost);
                bytes = all;
            } else {
                bare.push(send(&files, &far, if bytes == 0 { u64::MAX } else { bytes }).await?);
            }
        }
    }
    tasks.stop();
    drop(tree);
    site.shutdown().await?;
    tasks.join().await;
    let ratios = shipped.iter().zip(&bare).map(|(shipped, bare)| shipped / bare).skip(1);
    Ok(Row {
        value_bytes,
        log_bytes: bytes,
        pairs: PAIRS,
        ratio: Quartiles::of(ratios),
        at_most: 2.0,
        shipper_ns_per_byte: Quartiles::of(shipped[1..].iter().copied()),
        bare_loop_ns_per_byte: Quartiles::of(bare[1..].iter().copied()),
    })
}

/// Processor time of the whole process so far, all threads.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn per_byte(began: Duration, bytes: u64) -> f64 {
    (processor_time() - began).as_nanos() as f64 / bytes as f64
}

/// One turn of the shipper, to a peer that has nothing yet: nanoseconds of processor time for a byte of blocks, and how
/// many bytes they were.
async fn ship(site: &LocalSite, far: &FarEnd, round: usize) -> Result<(f64, u64), Error> {
    let name = format!("far-{round}");
    far.begin(&name);
    let began = processor_time();
    site.connect(&Peer::new(&name, far.url())).await?;
    far.until(|taken| taken.records >= ENTRIES).await?;
    let bytes = far.taken().bytes;
    let cost = per_byte(began, bytes);
    if let Some(cluster) = site.cluster() {
        cluster.remove_peer(&name).await?;
    }
    Ok((cost, bytes))
}

fn segments(dir: &Path) -> Result<Vec<Arc<dyn DiskFile>>, Error> {
    let failed = |error| Error::new(ErrorKind::Unavailable, "the log cannot be read").with_source(error);
    let names = RealDisk.list(dir).map_err(failed)?;
    let paths = names.iter().filter(|name| name.ends_with(".seg")).map(|name| -> PathBuf { dir.join(name) });
    paths.map(|path| RealDisk.open(&path, OpenMode::Read).map_err(failed)).collect()
}

/// One turn of the bare loop.
async fn send(files: &[Arc<dyn DiskFile>], far: &FarEnd, most: u64) -> Result<f64, Error> {
    let failed = |error| Error::new(ErrorKind::Unavailable, "the log cannot be read").with_source(error);
    let target = DialTarget { peer: ClusterId::new("far-bare")?, url: far.url() };
    far.begin("far-bare");
    let began = processor_time();
    let mut link = far.transport.dial(&target).await?;
    link.sender.send(frame(Body::Hello(wire::Hello::default()))).await?;
    let (mut sent, mut sums) = (0_u64, 0_u32);
    for file in files {
        let mut at = 0;
        while sent < most {
            let mut piece = BytesMut::zeroed(PIECE);
            let read = file.read_at(&mut piece, at).map_err(failed)?;
            if read == 0 {
                break;
            }
            piece.truncate(read);
            sums ^= checksum(at, &[&piece]);
            (at, sent) = (at + read as u64, sent + read as u64);
            let groups = vec![wire::PageGroup { blocks: vec![piece.freeze()], ..wire::PageGroup::default() }];
            link.sender.send(frame(Body::Page(wire::Page { groups, ..wire::Page::default() }))).await?;
        }
    }
    far.until(|taken| taken.bytes >= sent).await?;
    let cost = per_byte(began, sent);
    tracing::debug!(sums, sent, "the bare loop is through");
    link.sender.close().await;
    Ok(cost)
}

fn frame(body: Body) -> Frame {
    Frame { session: 1, body: Some(body) }
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    bytes: u64,
    records: u64,
}

/// A peer that takes everything, acknowledges it, and keeps nothing.
struct FarEnd {
    transport: GrpcTransport,
    address: String,
    state: Arc<Mutex<(String, Taken)>>,
}

impl FarEnd {
    async fn listen(tasks: &Tasks) -> Result<Self, Error> {
        let config = GrpcConfig { listen: "127.0.0.1:0".to_owned(), ..GrpcConfig::default() };
        let transport = GrpcTransport::new(config)?;
        let mut listener: Box<dyn Listener> = transport.listen().await?;
        let address = listener.address();
        let state = Arc::<Mutex<(String, Taken)>>::default();
        let (here, links, stop) = (state.clone(), tasks.clone(), tasks.stop_token());
        tasks.spawn("far end", async move {
            loop {
                let link = tokio::select! { biased;
                    () = stop.cancelled() => return,
                    link = listener.accept() => link,
                };
                let (Ok(link), state, stop) = (link, here.clone(), stop.clone()) else { return };
                links.spawn("far end's link", async move {
                    tokio::select! { biased;
                        () = stop.cancelled() => {}
                        ended = take(link, &state) => {
                            if let Err(error) = ended {
                                tracing::debug!(%error, "a link has ended");
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { transport, address, state })
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it is that cluster, and has nothing.
    fn begin(&self, name: &str) {
        *self.state.lock() = (name.to_owned(), Taken::default());
    }

    fn taken(&self) -> Taken {
        self.state.lock().1
    }

    async fn until(&self, done: impl Fn(Taken) -> bool) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while !done(self.taken()) {
            if Instant::now() > end {
                return Err(Error::new(ErrorKind::Unavailable, "the far end did not get everything in time"));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

/// Takes one link.
async fn take(mut link: Link, state: &Mutex<(String, Taken)>) -> Result<(), LinkError> {
    let mut marks = BTreeMap::new();
    while let Some(frame) = link.receiver.receive().await? {
        let answer = match frame.body {
            Some(Body::Hello(_)) => Body::Welcome(wire::Welcome {
                session: 1,
                protocol: 1,
                cluster: state.lock().0.clone(),
                boot_id: 7,
                incarnation: 7,
                credit_bytes: CREDIT,
                ..wire::Welcome::default()
            }),
            Some(Body::Page(page)) => {
                let blocks = page.groups.iter().flat_map(|group| &group.blocks);
                state.lock().1.bytes += blocks.map(|block| block.len() as u64).sum::<u64>();
                if !page.last {
                    continue;
                }
                marks.extend(page.through.iter().map(|mark| (mark.partition, mark.offset)));
                state.lock().1.records = marks.values().sum();
                acknowledgement(page.origin, page.incarnation, &marks)
            }
            _ => continue,
        };
        link.sender.send(self::frame(answer)).await?;
    }
    Ok(())
}

fn acknowledgement(origin: u64, incarnation: u64, marks: &BTreeMap<u32, u64>) -> Body {
    let mark = |(partition, next): (&u32, &u64)| wire::PartitionWatermark {
        partition: *partition,
        next: *next,
        ..wire::PartitionWatermark::default()
    };
    let partitions = marks.iter().map(mark).collect();
    Body::Ack(wire::Ack {
        watermarks: vec![wire::OriginWatermarks { origin, incarnation, partitions }],
        credit_bytes: CREDIT,
        ..wire::Ack::default()
    })
}

/// The figures for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["SHIPPING, CPU A BYTE", "SHIPPER", "BARE LOOP", "RATIO", "QUARTILES"]);
    for row in rows {
        table.row([
            format!("values of {} B", row.value_bytes),
            format!("{:.2} ns", row.shipper_ns_per_byte.median),
            format!("{:.2} ns", row.bare_loop_ns_per_byte.median),
            format!("{:.2} (<= {})", row.ratio.median, row.at_most),
            format!("{:.2} to {:.2}", row.ratio.first, row.ratio.third),
        ]);
    }
    table
}
