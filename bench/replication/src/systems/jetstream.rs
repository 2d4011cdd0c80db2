//! NATS JetStream: two servers, the second a leaf of the first, each with a domain of its own; a stream that the second one
//! mirrors. Files, `sync_interval: always`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{Config, External, Source as Origin, StorageType};
use async_nats::{Client, jetstream};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use rustix::process::Signal;

use crate::failure::Outcome;
use crate::ports;
use crate::service::{Launch, Service};
use crate::sights::Sights;
use crate::system::{Source, System, Watch};
use crate::workload::Workload;

const STREAM: &str = "entries";
/// Messages on their way at once while the backlog is loaded.
const WINDOW: u64 = 2_000;

/// The two servers.
pub struct Jetstream {
    program: PathBuf,
    dir: PathBuf,
    workload: Workload,
    /// Clients of the source and of its leaves, and the target's clients.
    ports: [u16; 3],
    source: Option<Service>,
    target: Option<Service>,
    to_target: Option<Context>,
}

impl Jetstream {
    /// Starts the source, with a stream.
    pub async fn start(program: &Path, dir: &Path, workload: Workload) -> Outcome<Self> {
        let ports = ports::free::<3>()?;
        let dir = dir.to_owned();
        std::fs::create_dir_all(&dir)?;
        let program = program.to_owned();
        let mut system = Self { program, dir, workload, ports, source: None, target: None, to_target: None };
        // Loading is not measured: the syncs come with the stop that follows it.
        system.source = Some(system.serve("source", false).await?);
        let context = context(ports[0]).await?;
        context.create_stream(Config { subjects: vec![format!("{STREAM}.>")], ..stream() }).await?;
        Ok(system)
    }

    async fn serve(&self, name: &'static str, synced: bool) -> Outcome<Service> {
        let [clients, leaves, target] = self.ports;
        let (port, leaf) = if name == "source" {
            (clients, format!("leafnodes {{ listen: \"127.0.0.1:{leaves}\" }}"))
        } else {
            (target, format!("leafnodes {{ remotes: [{{ url: \"nats-leaf://127.0.0.1:{leaves}\" }}] }}"))
        };
        let sync = if synced { "sync_interval: always" } else { "" };
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\nserver_name: {name}\n{leaf}\n\
             jetstream {{ store_dir: \"{name}\"\n domain: {name}\n max_file_store: 100GB\n {sync} }}\n"
        );
        let file = self.dir.join(format!("{name}.conf"));
        std::fs::write(&file, config)?;
        let mut server = Service::start(Launch {
            name: "nats-server",
            program: &self.program,
            arguments: vec!["-c".to_owned(), file.display().to_string()],
            user: None,
            directory: &self.dir,
        })?;
        server.listens(port).await?;
        Ok(server)
    }
}

fn stream() -> Config {
    Config { name: STREAM.to_owned(), storage: StorageType::File, ..Config::default() }
}

async fn context(port: u16) -> Outcome<Context> {
    let client: Client = async_nats::connect(format!("127.0.0.1:{port}")).await?;
    let context = jetstream::ContextBuilder::new()
        .timeout(Duration::from_secs(30))
        .max_ack_inflight(usize::MAX >> 4)
        .build(client);
    // The port is open before JetStream is.
    for _ in 0..500 {
        if context.query_account().await.is_ok() {
            return Ok(context);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("JetStream does not answer".into())
}

#[async_trait]
impl System for Jetstream {
    async fn load(&mut self, entries: u64) -> Outcome<()> {
        let writes = Writes { context: context(self.ports[0]).await?, workload: self.workload.clone() };
        for first in (0..entries).step_by(WINDOW as usize) {
            writes.write(first, WINDOW.min(entries - first)).await?;
        }
        if let Some(source) = self.source.take() {
            source.stop(Signal::TERM).await?;
        }
        self.source = Some(self.serve("source", true).await?);
        context(self.ports[0]).await?;
        Ok(())
    }

    async fn open(&mut self) -> Outcome<()> {
        self.target = Some(self.serve("target", true).await?);
        let context = context(self.ports[2]).await?;
        let external = External { api_prefix: "$JS.source.API".to_owned(), delivery_prefix: None };
        let mirror = Origin { name: STREAM.to_owned(), external: Some(external), ..Origin::default() };
        context.create_stream(Config { mirror: Some(mirror), ..stream() }).await?;
        self.to_target = Some(context);
        Ok(())
    }

    async fn arrived(&mut self) -> Outcome<u64> {
        let Some(target) = &self.to_target else { return Ok(0) };
        let mut stream = target.get_stream(STREAM).await?;
        Ok(stream.info().await?.state.last_sequence)
    }

    async fn watch(&mut self, sights: Sights) -> Outcome<Watch> {
        let Some(target) = &self.to_target else { return Err("the target is off".into()) };
        let stream = target.get_stream(STREAM).await?;
        let deliver = target.clone().client().new_inbox();
        let wanted = push::Config {
            deliver_subject: deliver,
            deliver_policy: DeliverPolicy::New,
            ack_policy: AckPolicy::None,
            filter_subject: format!("{STREAM}.probe.>"),
            ..push::Config::default()
        };
        let consumer = stream.create_consumer(wanted).await?;
        let mut messages = consumer.messages().await?;
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
                if let Some(number) = number {
                    sights.seen(number);
                }
            }
        });
        Ok(Watch::of([task.abort_handle()]))
    }

    async fn source(&mut self) -> Outcome<Arc<dyn Source>> {
        let context = context(self.ports[0]).await?;
        Ok(Arc::new(Writes { context, workload: self.workload.clone() }))
    }

    async fn stop(self: Box<Self>) -> Outcome<()> {
        for server in [self.source, self.target].into_iter().flatten() {
            server.stop(Signal::KILL).await?;
        }
        Ok(())
    }
}

struct Writes {
    context: Context,
    workload: Workload,
}

#[async_trait]
impl Source for Writes {
    async fn write(&self, first: u64, count: u64) -> Outcome<()> {
        let mut acks = Vec::with_capacity(count as usize);
        for entry in first..first + count {
            let value = Bytes::copy_from_slice(self.workload.value(entry).as_bytes());
            let sent = self.context.publish(format!("{STREAM}.key.{entry:012}"), value).await?;
            acks.push(sent.into_future());
        }
        try_join_all(acks).await?;
        Ok(())
    }

    async fn probe(&self, number: u64, sights: &Sights) -> Outcome<()> {
        let value = Bytes::copy_from_slice(self.workload.value(number).as_bytes());
        self.context.publish(format!("{STREAM}.probe.{number}"), value).await?.await?;
        sights.committed(number);
        Ok(())
    }
}
