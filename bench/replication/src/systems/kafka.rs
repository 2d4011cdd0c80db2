//! MirrorMaker 2 between two Kafkas of one node each, as they come: a broker answers when the page cache has a message, and
//! syncs now and then.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use rustix::process::Signal;

use crate::failure::Outcome;
use crate::ports;
use crate::service::{Launch, Service};
use crate::sights::Sights;
use crate::system::{Source, System, Watch};
use crate::workload::{Workload, key};

const TOPIC: &str = "entries";
/// What MirrorMaker calls it at the target.
const MIRRORED: &str = "source.entries";
/// Partitions with entries; one more holds the probes, so that who watches them does not read everything.
const PARTITIONS: i32 = 3;
const WINDOW: u64 = 50_000;
const PATIENCE: Duration = Duration::from_secs(5);

/// Two brokers, and the process between them.
pub struct Kafka {
    jars: PathBuf,
    dir: PathBuf,
    workload: Workload,
    ports: [u16; 4],
    source: Service,
    target: Service,
    mirror: Option<Service>,
    counter: Arc<BaseConsumer>,
}

impl Kafka {
    /// Starts both brokers, with an empty topic at the source. Nothing is mirrored yet.
    pub async fn start(jars: &Path, dir: &Path, workload: Workload) -> Outcome<Self> {
        let ports = ports::free::<4>()?;
        let mut source = broker(jars, dir, "source", [ports[0], ports[1]])?;
        let mut target = broker(jars, dir, "target", [ports[2], ports[3]])?;
        source.listens(ports[0]).await?;
        target.listens(ports[2]).await?;
        let admin: AdminClient<DefaultClientContext> = client(ports[0]).create()?;
        let topic = NewTopic::new(TOPIC, PARTITIONS + 1, TopicReplication::Fixed(1));
        for made in admin.create_topics(&[topic], &AdminOptions::new()).await? {
            made.map_err(|(topic, error)| format!("topic {topic}: {error}"))?;
        }
        let counter = Arc::new(client(ports[2]).create()?);
        let (jars, dir) = (jars.to_owned(), dir.to_owned());
        Ok(Self { jars, dir, workload, ports, source, target, mirror: None, counter })
    }
}

fn client(port: u16) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}"));
    config
}

fn broker(jars: &Path, dir: &Path, name: &'static str, [port, controller]: [u16; 2]) -> Outcome<Service> {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir)?;
    let settings = dir.join("server.properties");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         log.dirs={dir}/data\noffsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n\
         share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n",
        dir = dir.display()
    );
    std::fs::write(&settings, text)?;
    let classes = format!("{}/*", jars.display());
    let formatted = Command::new("java")
        .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &classes, "kafka.tools.StorageTool", "format"])
        .args(["-t", "dGlkZXdpcmUtYmVuY2gtMQ", "-c"])
        .arg(&settings)
        .output()?;
    if !formatted.status.success() {
        return Err(format!("format: {}", String::from_utf8_lossy(&formatted.stderr)).into());
    }
    java(&classes, "kafka", "kafka.Kafka", &settings, &dir)
}

fn java(classes: &str, name: &'static str, main: &str, settings: &Path, dir: &Path) -> Outcome<Service> {
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
    let settings = settings.display().to_string();
    let arguments = ["-Xmx1g", quiet, "-cp", classes, main, &settings].map(str::to_owned).to_vec();
    Service::start(Launch { name, program: Path::new("java"), arguments, user: None, directory: dir })
}

/// Everything by default, but single copies, one topic, and no wait of minutes until that is found.
fn mirror_settings([source, _, target, _]: [u16; 4]) -> String {
    let single = ["replication.factor", "offset-syncs.topic.replication.factor"]
        .into_iter()
        .chain(["checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor"])
        .chain(["offset.storage.replication.factor", "status.storage.replication.factor"])
        .chain(["config.storage.replication.factor"])
        .map(|name| format!("{name}=1\n"))
        .collect::<String>();
    format!(
        "clusters=source,target\nsource.bootstrap.servers=127.0.0.1:{source}\n\
         target.bootstrap.servers=127.0.0.1:{target}\nsource->target.enabled=true\n\
         source->target.topics={TOPIC}\ntarget->source.enabled=false\n{single}\
         refresh.topics.interval.seconds=5\nsync.topic.acls.enabled=false\nemit.heartbeats.enabled=false\n\
         emit.checkpoints.enabled=false\n"
    )
}

fn count(counter: &BaseConsumer) -> u64 {
    let ends = (0..PARTITIONS).map(|partition| {
        // The topic is not there until MirrorMaker has made it.
        let marks = counter.fetch_watermarks(MIRRORED, partition, PATIENCE);
        marks.map_or(0, |(_, end)| u64::try_from(end).unwrap_or(0))
    });
    ends.sum()
}

#[async_trait]
impl System for Kafka {
    async fn load(&mut self, entries: u64) -> Outcome<()> {
        let writes = Writes::new(self.ports[0], self.workload.clone())?;
        for first in (0..entries).step_by(WINDOW as usize) {
            writes.write(first, WINDOW.min(entries - first)).await?;
        }
        Ok(())
    }

    async fn open(&mut self) -> Outcome<()> {
        let settings = self.dir.join("mirror.properties");
        std::fs::write(&settings, mirror_settings(self.ports))?;
        let classes = format!("{}/*", self.jars.display());
        let main = "org.apache.kafka.connect.mirror.MirrorMaker";
        self.mirror = Some(java(&classes, "mirrormaker", main, &settings, &self.dir)?);
        Ok(())
    }

    async fn arrived(&mut self) -> Outcome<u64> {
        let counter = self.counter.clone();
        Ok(tokio::task::spawn_blocking(move || count(&counter)).await?)
    }

    async fn watch(&mut self, sights: Sights) -> Outcome<Watch> {
        let mut config = client(self.ports[2]);
        config.set("group.id", "probes").set("enable.auto.commit", "false");
        let consumer: StreamConsumer = config.create()?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(MIRRORED, PARTITIONS, Offset::Beginning)?;
        consumer.assign(&from)?;
        let task = tokio::spawn(async move {
            while let Ok(message) = consumer.recv().await {
                let text = message.key().and_then(|key| std::str::from_utf8(key).ok());
                let number = text.and_then(|key| key.strip_prefix("probe-")?.parse().ok());
                if let Some(number) = number {
                    sights.seen(number);
                }
            }
        });
        Ok(Watch::of([task.abort_handle()]))
    }

    async fn source(&mut self) -> Outcome<Arc<dyn Source>> {
        Ok(Arc::new(Writes::new(self.ports[0], self.workload.clone())?))
    }

    async fn stop(self: Box<Self>) -> Outcome<()> {
        for service in [self.mirror, Some(self.target), Some(self.source)].into_iter().flatten() {
            service.stop(Signal::KILL).await?;
        }
        Ok(())
    }
}

struct Writes {
    producer: FutureProducer,
    workload: Workload,
}

impl Writes {
    fn new(port: u16, workload: Workload) -> Outcome<Self> {
        let mut config = client(port);
        config.set("acks", "all").set("linger.ms", "1").set("queue.buffering.max.messages", "200000");
        Ok(Self { producer: config.create()?, workload })
    }
}

#[async_trait]
impl Source for Writes {
    async fn write(&self, first: u64, count: u64) -> Outcome<()> {
        let mut answers = Vec::with_capacity(count as usize);
        for entry in first..first + count {
            let key = key(entry);
            let partition = (entry % PARTITIONS as u64) as i32;
            let mut record =
                FutureRecord::to(TOPIC).key(&key).payload(self.workload.value(entry)).partition(partition);
            loop {
                match self.producer.send_result(record) {
                    Ok(answer) => break answers.push(answer),
                    // The queue of the client is full.
                    Err((_, back)) => record = back,
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        for answer in try_join_all(answers).await? {
            answer.map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    async fn probe(&self, number: u64, sights: &Sights) -> Outcome<()> {
        let key = format!("probe-{number}");
        let record =
            FutureRecord::to(TOPIC).key(&key).payload(self.workload.value(number)).partition(PARTITIONS);
        let sent = self.producer.send_result(record).map_err(|(error, _)| error)?;
        sent.await?.map_err(|(error, _)| error)?;
        sights.committed(number);
        Ok(())
    }
}
