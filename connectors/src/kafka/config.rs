//! [`KafkaConfig`]: what a Kafka sink is told, and the rules that it keeps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use tidewire_core::error::SinkError;
use tidewire_core::units::{ByteSize, HumanDuration};

use super::client;
use super::topic_name;
use crate::InvalidSettings;

/// What the value of a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueFormat {
    /// The bytes of the value, as they were written.
    #[default]
    Value,
    /// The change as JSON, as `watch` prints it.
    Json,
}

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Snappy.
    Snappy,
    /// Zstandard; in builds with the feature `full` only.
    Zstd,
}

impl Compression {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }
}

/// How often a change may arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaDelivery {
    /// Once, and again after a failure.
    #[default]
    AtLeastOnce,
    /// Once; refused until it exists.
    ExactlyOnce,
}

/// How the connection to the brokers is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityProtocol {
    /// TLS.
    Ssl,
    /// TLS, and a login.
    SaslSsl,
    /// A login without TLS: whoever listens reads everything.
    SaslPlaintext,
}

/// TLS and login; in builds with the feature `full` only. Secrets come from files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSecurity {
    /// `ssl`, `sasl_ssl` or `sasl_plaintext`.
    pub protocol: SecurityProtocol,
    /// The certificates that sign the brokers' ones. Default: those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The certificate of this client, for brokers that ask for one.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// Who logs in.
    #[serde(default)]
    pub username: Option<String>,
    /// The file that holds the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
}

/// The settings of a Kafka sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where brokers are found: `host:port`, several with commas. Required.
    pub brokers: String,
    /// The topic; `{tree}` stands for the name of the tree. Default `{tree}`.
    #[serde(default = "default_topic")]
    pub topic: String,
    /// What the value of a message is. Default `value`.
    #[serde(default)]
    pub value: ValueFormat,
    /// Whether a missing topic is created. Default true.
    #[serde(default = "default_true")]
    pub create_topic: bool,
    /// Partitions of a topic that is created, 1 to 10,000. Default: as the brokers are set.
    #[serde(default)]
    pub partitions: Option<u32>,
    /// Replicas of a topic that is created, 1 to 100. Default: as the brokers are set.
    #[serde(default)]
    pub replication: Option<u16>,
    /// How batches are compressed. Default `none`.
    #[serde(default)]
    pub compression: Compression,
    /// How often a change may arrive. Default `at_least_once`, the only one that there is.
    #[serde(default)]
    pub delivery: KafkaDelivery,
    /// Bytes of keys and values that may wait in the client, 64 KiB to 1 GiB; above it the sink waits. Default 32 MiB.
    #[serde(default = "default_queue")]
    pub queue_bytes: ByteSize,
    /// Nothing was delivered for this long though something waits: the run fails visibly and is tried again. 1 s to
    /// 1 h. Default 60 s.
    #[serde(default = "default_stall")]
    pub stall_after: HumanDuration,
    /// How long a run waits for the brokers and the topic at its start, 1 s to 10 min. Default 30 s.
    #[serde(default = "default_connect")]
    pub connect_timeout: HumanDuration,
    /// How often the number of partitions is looked up, 100 ms to 1 h. Default 30 s.
    #[serde(default = "default_check")]
    pub partition_check: HumanDuration,
    /// TLS and login. Default: neither.
    #[serde(default)]
    pub security: Option<KafkaSecurity>,
    /// Further settings of librdkafka by their names there; those that the sink's promises rest on are refused.
    #[serde(default, deserialize_with = "plain_values")]
    pub librdkafka: BTreeMap<String, String>,
}

fn default_topic() -> String {
    "{tree}".to_owned()
}

const fn default_true() -> bool {
    true
}

const fn default_queue() -> ByteSize {
    ByteSize::new(32 << 20)
}

fn default_stall() -> HumanDuration {
    Duration::from_secs(60).into()
}

fn default_connect() -> HumanDuration {
    Duration::from_secs(30).into()
}

fn default_check() -> HumanDuration {
    Duration::from_secs(30).into()
}

/// Takes numbers and booleans too, because `linger.ms = 20` is how people write it.
fn plain_values<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text, a whole number or a boolean")]
    enum Plain {
        Text(String),
        Number(i64),
        Flag(bool),
    }
    let values = BTreeMap::<String, Plain>::deserialize(from)?;
    let text = |value| match value {
        Plain::Text(text) => text,
        Plain::Number(number) => number.to_string(),
        Plain::Flag(flag) => flag.to_string(),
    };
    Ok(values.into_iter().map(|(key, value)| (key, text(value))).collect())
}

impl KafkaConfig {
    /// The defaults for these brokers and this topic.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: topic.into(),
            value: ValueFormat::default(),
            create_topic: default_true(),
            partitions: None,
            replication: None,
            compression: Compression::default(),
            delivery: KafkaDelivery::default(),
            queue_bytes: default_queue(),
            stall_after: default_stall(),
            connect_timeout: default_connect(),
            partition_check: default_check(),
            security: None,
            librdkafka: BTreeMap::new(),
        }
    }

    /// The settings of the client that a sink with these settings uses; for whoever wants to compare with it.
    ///
    /// # Errors
    /// When a secret cannot be read.
    pub fn client(&self) -> Result<rdkafka::ClientConfig, SinkError> {
        client::producer(self)
    }

    /// Checks every rule and hands the settings back unchanged. Reads no file and reaches no broker.
    ///
    /// # Errors
    /// One problem for each broken rule.
    pub fn validate(self) -> Result<Self, InvalidSettings> {
        let mut problems = Vec::new();
        self.check_destination(&mut problems);
        self.check_ranges(&mut problems);
        self.check_security(&mut problems);
        if problems.is_empty() {
            client::check(&self, &mut problems);
        }
        let problems = problems.into_iter().map(|(key, said)| (key.to_owned(), said)).collect();
        InvalidSettings::unless_empty(problems)?;
        Ok(self)
    }

    fn check_destination(&self, problems: &mut Vec<(&str, String)>) {
        if self.brokers.split(',').any(|broker| broker.trim().is_empty()) {
            problems.push(("brokers", "name at least one broker as host:port, several with commas".into()));
        }
        if let Err(said) = topic_name::check(&self.topic) {
            problems.push(("topic", said));
        }
        if self.delivery == KafkaDelivery::ExactlyOnce {
            let said =
                "exactly_once does not exist yet; use at_least_once and drop repeated dots (header tw-dot)";
            problems.push(("delivery", said.into()));
        }
        let owned = self.librdkafka.keys().filter(|key| client::OWNED.contains(&key.as_str()));
        problems.extend(owned.map(|key| {
            let said =
                format!("{key:?} is set by the sink itself, or by a setting of its own; remove it here");
            ("librdkafka", said)
        }));
    }

    fn check_ranges(&self, problems: &mut Vec<(&str, String)>) {
        let given = |given: Option<String>| given.unwrap_or_default();
        if self.partitions.is_some_and(|count| !(1..=10_000).contains(&count)) {
            let count = given(self.partitions.map(|count| count.to_string()));
            problems.push(("partitions", format!("{count} is out of range; allowed: 1 to 10000")));
        }
        if self.replication.is_some_and(|count| !(1..=100).contains(&count)) {
            let count = given(self.replication.map(|count| count.to_string()));
            problems.push(("replication", format!("{count} is out of range; allowed: 1 to 100")));
        }
        if !(64 << 10..=1 << 30).contains(&self.queue_bytes.get()) {
            let said = format!("{} is out of range; allowed: 64KiB to 1GiB", self.queue_bytes);
            problems.push(("queue_bytes", said));
        }
        let spans = [
            ("stall_after", self.stall_after, 1_000, 3_600),
            ("connect_timeout", self.connect_timeout, 1_000, 600),
            ("partition_check", self.partition_check, 100, 3_600),
        ];
        for (key, given, least_ms, most_secs) in spans {
            let (least, most) = (Duration::from_millis(least_ms), Duration::from_secs(most_secs));
            if !(least..=most).contains(&given.get()) {
                let (least, most) = (HumanDuration::from(least), HumanDuration::from(most));
                problems.push((key, format!("{given} is out of range; allowed: {least} to {most}")));
            }
        }
    }

    fn check_security(&self, problems: &mut Vec<(&str, String)>) {
        const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
        let full = cfg!(feature = "kafka-full");
        if !full && self.compression == Compression::Zstd {
            let said = "this build has no zstd; build with the feature `full`, or use lz4";
            problems.push(("compression", said.into()));
        }
        let Some(security) = &self.security else { return };
        if !full {
            let said = "this build has neither TLS nor SASL for Kafka; build with the feature `full`";
            problems.push(("security", said.into()));
        }
        let logs_in = security.protocol != SecurityProtocol::Ssl;
        let complete =
            security.mechanism.is_some() && security.username.is_some() && security.password_file.is_some();
        if logs_in && !complete {
            problems.push(("security", "a login needs mechanism, username and password_file".into()));
        }
        if let Some(name) = security.mechanism.as_deref().filter(|name| !MECHANISMS.contains(name)) {
            let said = format!("mechanism {name:?} is not known; allowed: {}", MECHANISMS.join(", "));
            problems.push(("security", said));
        }
        if security.certificate_file.is_some() != security.key_file.is_some() {
            problems.push(("security", "certificate_file and key_file go together".into()));
        }
    }
}
