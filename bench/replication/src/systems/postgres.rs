//! PostgreSQL: two clusters, one table, a publication and a subscription.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::SinkExt;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, NoTls};

use crate::failure::Outcome;
use crate::ports;
use crate::service::{Launch, Service};
use crate::sights::Sights;
use crate::system::{Source, System, Watch};
use crate::workload::{Workload, entry_of, key};

/// Who runs the servers: they refuse to run as root.
const USER: &str = "postgres";
/// How often the target is asked for probes.
const POLL: Duration = Duration::from_millis(1);
/// Connections that write live.
const WRITERS: usize = 16;
/// What differs from a new cluster's own settings: room, and no checkpoints while one measures. Syncs are as they come:
/// on, by fdatasync.
const SETTINGS: &str = "wal_level = logical\nsynchronous_commit = on\nfsync = on\nshared_buffers = 512MB\n\
    max_wal_size = 16GB\ncheckpoint_timeout = 1h\nautovacuum = off\nunix_socket_directories = ''\n\
    listen_addresses = '127.0.0.1'\nwal_sender_timeout = 0\nwal_receiver_timeout = 0\n";
const TABLE: &str = "create table entries (key text collate \"C\" primary key, value text not null)";

/// The two clusters.
pub struct Postgres {
    workload: Workload,
    ports: [u16; 2],
    source: Service,
    target: Service,
    at_source: Connected,
    at_target: Connected,
}

struct Connected {
    client: Client,
    task: AbortHandle,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Postgres {
    /// Makes both clusters; the target holds an empty table and a subscription that is off.
    pub async fn start(programs: &Path, dir: &Path, workload: Workload) -> Outcome<Self> {
        let ports = ports::free::<2>()?;
        std::fs::create_dir_all(dir)?;
        let chowned = std::process::Command::new("chown").arg(USER).arg(dir).status()?;
        if !chowned.success() {
            return Err(format!("{} is not given to {USER}", dir.display()).into());
        }
        let (source, at_source) = cluster(programs, dir, "source", ports[0]).await?;
        let (target, at_target) = cluster(programs, dir, "target", ports[1]).await?;
        at_source.client.batch_execute(&format!("{TABLE}; create publication p for table entries")).await?;
        let from = format!("host=127.0.0.1 port={} user={USER} dbname=postgres", ports[0]);
        at_target.client.batch_execute(TABLE).await?;
        let subscribe = format!(
            "create subscription s connection '{from}' publication p \
             with (copy_data = false, enabled = false, create_slot = true, synchronous_commit = 'on')"
        );
        at_target.client.batch_execute(&subscribe).await?;
        Ok(Self { workload, ports, source, target, at_source, at_target })
    }
}

async fn cluster(programs: &Path, dir: &Path, name: &str, port: u16) -> Outcome<(Service, Connected)> {
    let data = dir.join(name);
    let made = std::process::Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--init-groups", "--"])
        .arg(programs.join("initdb"))
        .args(["--no-sync", "--auth", "trust", "--username", USER, "-D"])
        .arg(&data)
        .current_dir(dir)
        .output()?;
    if !made.status.success() {
        return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    let settings = data.join("postgresql.conf");
    let ours = format!("{}\n{SETTINGS}port = {port}\n", std::fs::read_to_string(&settings)?);
    std::fs::write(&settings, ours)?;
    let program = programs.join("postgres");
    let mut server = Service::start(Launch {
        name: "postgres",
        program: &program,
        arguments: vec!["-D".to_owned(), data.display().to_string()],
        user: Some(USER),
        directory: dir,
    })?;
    server.ready(move || async move { connect(port).await.is_ok() }).await?;
    Ok((server, connect(port).await?))
}

async fn connect(port: u16) -> Outcome<Connected> {
    let to = format!("host=127.0.0.1 port={port} user={USER} dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&to, NoTls).await?;
    let task = tokio::spawn(async move {
        // An error of the connection is an error of the client that waits for it.
        let _ = connection.await;
    });
    Ok(Connected { client, task: task.abort_handle() })
}

/// Rows in one transaction, by COPY.
async fn copy(client: &Client, workload: &Workload, first: u64, count: u64) -> Outcome<()> {
    let mut rows = String::new();
    for entry in first..first + count {
        rows.extend([key(entry).as_str(), "\t", workload.value(entry), "\n"]);
    }
    let mut copy = Box::pin(client.copy_in("copy entries from stdin").await?);
    copy.send(Bytes::from(rows)).await?;
    copy.close().await?;
    Ok(())
}

#[async_trait]
impl System for Postgres {
    async fn load(&mut self, entries: u64) -> Outcome<()> {
        // The setting of this one connection: the table is on disk when the checkpoint is done.
        self.at_source.client.batch_execute("set synchronous_commit = off").await?;
        for first in (0..entries).step_by(self.workload.batch as usize) {
            copy(&self.at_source.client, &self.workload, first, self.workload.batch.min(entries - first))
                .await?;
        }
        self.at_source.client.batch_execute("reset synchronous_commit; checkpoint").await?;
        Ok(())
    }

    async fn open(&mut self) -> Outcome<()> {
        self.at_target.client.batch_execute("alter subscription s enable").await?;
        Ok(())
    }

    async fn arrived(&mut self) -> Outcome<u64> {
        // Transactions arrive in the order in which one connection committed them: the highest key counts them all.
        let row = self.at_target.client.query_one("select max(key) from entries", &[]).await?;
        let last: Option<String> = row.get(0);
        Ok(last.and_then(|key| entry_of(&key)).map_or(0, |entry| entry + 1))
    }

    async fn watch(&mut self, sights: Sights) -> Outcome<Watch> {
        let connected = connect(self.ports[1]).await?;
        let find =
            connected.client.prepare("select key from entries where key >= $1 and key < 'probf'").await?;
        let task = tokio::spawn(async move {
            loop {
                let first = sights.first_unseen().unwrap_or(0);
                let from = format!("probe-{first:012}");
                let Ok(rows) = connected.client.query(&find, &[&from]).await else { return };
                for row in rows {
                    let key: String = row.get(0);
                    if let Some(number) = key.strip_prefix("probe-").and_then(|number| number.parse().ok()) {
                        sights.seen(number);
                    }
                }
                tokio::time::sleep(POLL).await;
            }
        });
        Ok(Watch::of([task.abort_handle()]))
    }

    async fn source(&mut self) -> Outcome<Arc<dyn Source>> {
        let mut free = Vec::new();
        for _ in 0..WRITERS {
            free.push(connect(self.ports[0]).await?);
        }
        let places = tokio::sync::Semaphore::new(WRITERS);
        let probes = connect(self.ports[0]).await?;
        Ok(Arc::new(Writes { free: Mutex::new(free), places, probes, workload: self.workload.clone() }))
    }

    async fn stop(self: Box<Self>) -> Outcome<()> {
        self.target.stop(Signal::QUIT).await?;
        self.source.stop(Signal::QUIT).await
    }
}

struct Writes {
    free: Mutex<Vec<Connected>>,
    places: tokio::sync::Semaphore,
    probes: Connected,
    workload: Workload,
}

#[async_trait]
impl Source for Writes {
    async fn write(&self, first: u64, count: u64) -> Outcome<()> {
        let _place = self.places.acquire().await?;
        let writer = self.free.lock().pop().ok_or("a place without a connection")?;
        let written = copy(&writer.client, &self.workload, first, count).await;
        self.free.lock().push(writer);
        written
    }

    async fn probe(&self, number: u64, sights: &Sights) -> Outcome<()> {
        let (key, value) = (format!("probe-{number:012}"), self.workload.value(number));
        self.probes.client.execute("insert into entries values ($1, $2)", &[&key, &value]).await?;
        sights.committed(number);
        Ok(())
    }
}

/// Where the programs of PostgreSQL lie, if they are here.
pub fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    versions.sort();
    versions.pop()
}
