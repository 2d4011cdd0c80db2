//! Tidewire: two `tidewire serve` processes, gRPC over loopback. Written to and read through the HTTP API.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hyper::Method;
use rustix::process::Signal;

use crate::failure::Outcome;
use crate::http::Http;
use crate::ports;
use crate::service::{Launch, Service};
use crate::sights::Sights;
use crate::system::{Source, System, Watch};
use crate::workload::{Workload, key};

/// Requests under way at once then.
const LANES: usize = 4;

/// The two processes.
pub struct Tidewire {
    program: PathBuf,
    dir: PathBuf,
    workload: Workload,
    source: Service,
    target: Option<Service>,
    ports: [u16; 4],
    writes: Writes,
    reads: Http,
}

/// The source's HTTP API, and the target's for probes.
#[derive(Clone)]
struct Writes {
    source: Http,
    target: Http,
    workload: Workload,
}

impl Tidewire {
    /// Starts the source.
    pub async fn start(program: &Path, dir: &Path, workload: Workload) -> Outcome<Self> {
        let ports = ports::free::<4>()?;
        let [http, _, target_http, _] = ports;
        let mut source = serve(program, dir, "source", ports)?;
        source.listens(http).await?;
        let (to_source, to_target) = (Http::new(http), Http::new(target_http));
        let writes = Writes { source: to_source, target: to_target.clone(), workload: workload.clone() };
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            workload,
            source,
            target: None,
            ports,
            writes,
            reads: to_target,
        })
    }
}

/// Starts one of the two: the source sends, the target receives only.
fn serve(program: &Path, dir: &Path, name: &'static str, ports: [u16; 4]) -> Outcome<Service> {
    let [source_http, source_wire, target_http, target_wire] = ports;
    let source = name == "source";
    let (http, wire) = if source { (source_http, source_wire) } else { (target_http, target_wire) };
    let peer = if source {
        format!("id = \"target\"\nurl = \"http://127.0.0.1:{target_wire}\"")
    } else {
        "id = \"source\"\nsend = false".to_owned()
    };
    let directory = dir.join(name);
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("tidewire.toml");
    let config = format!(
        "[cluster]\nid = \"{name}\"\ndata_dir = \"data\"\n\
         [listen]\nhttp = \"127.0.0.1:{http}\"\nreplication = \"127.0.0.1:{wire}\"\n\
         [[trees]]\nname = \"entries\"\n[[peers]]\n{peer}\n"
    );
    std::fs::write(&file, config)?;
    let arguments = vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()];
    Service::start(Launch { name: "tidewire", program, arguments, user: None, directory: &directory })
}

/// A batch as the HTTP API takes it.
pub fn batch(workload: &Workload, first: u64, count: u64) -> Bytes {
    let mut body = String::with_capacity(count as usize * (workload.value(0).len() + 64) + 32);
    body.push_str("{\"ops\":[");
    for entry in first..first + count {
        let comma = if entry == first { "" } else { "," };
        let _ = write!(
            body,
            "{comma}{{\"op\":\"set\",\"key\":\"{}\",\"value\":\"{}\"}}",
            key(entry),
            workload.value(entry)
        );
    }
    body.push_str("]}");
    body.into()
}

#[async_trait]
impl System for Tidewire {
    async fn load(&mut self, entries: u64) -> Outcome<()> {
        let writes = &self.writes;
        let batches = (0..entries).step_by(self.workload.batch as usize);
        stream::iter(batches.map(|first| writes.write(first, self.workload.batch.min(entries - first))))
            .buffer_unordered(LANES)
            .try_collect()
            .await
    }

    async fn open(&mut self) -> Outcome<()> {
        let mut target = serve(&self.program, &self.dir, "target", self.ports)?;
        target.listens(self.ports[2]).await?;
        self.target = Some(target);
        Ok(())
    }

    async fn arrived(&mut self) -> Outcome<u64> {
        let (_, status) = self.reads.ask(Method::GET, "/v1/status", &[], "").await?;
        let status: serde_json::Value = serde_json::from_slice(&status)?;
        status["trees"][0]["entries"].as_u64().ok_or_else(|| "a status without entries".into())
    }

    async fn watch(&mut self, _sights: Sights) -> Outcome<Watch> {
        // A probe's read at the target carries the token of its write, and waits there.
        Ok(Watch::default())
    }

    async fn source(&mut self) -> Outcome<Arc<dyn Source>> {
        Ok(Arc::new(Writes { workload: self.workload.clone(), ..self.writes.clone() }))
    }

    async fn stop(self: Box<Self>) -> Outcome<()> {
        // Data of a measurement: nothing has to be put in order.
        self.source.stop(Signal::KILL).await?;
        match self.target {
            Some(target) => target.stop(Signal::KILL).await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Source for Writes {
    async fn write(&self, first: u64, count: u64) -> Outcome<()> {
        let body = batch(&self.workload, first, count);
        self.source.ask(Method::POST, "/v1/trees/entries/batch", &[], body).await?;
        Ok(())
    }

    async fn probe(&self, number: u64, sights: &Sights) -> Outcome<()> {
        let path = format!("/v1/trees/entries/keys/probe-{number}");
        let value = self.workload.value(number).to_owned();
        let (headers, _) = self.source.ask(Method::PUT, &path, &[], value).await?;
        sights.committed(number);
        let token = headers.get("tidewire-token").ok_or("a write without a token")?.to_str()?;
        self.target.ask(Method::GET, &path, &[("tidewire-token", token)], "").await?;
        sights.seen(number);
        Ok(())
    }
}
